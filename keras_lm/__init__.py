"""Classic pretrained language models for Keras 3: raw text in, one servable artefact out."""

import sys
from pathlib import PurePath

__version__ = "0.1.0"
__all__ = [
    "converters",
    "export",
    "layers",
    "models",
    "objectives",
    "packers",
    "prompting",
    "tasks",
    "tokenizers",
    "training",
]

# Importing them registers their classes with Keras, so that `keras.models.load_model` knows them.
# The command alone goes without at first: `keras-lm --help` should not wait for TensorFlow.
if PurePath((sys.argv or [""])[0]).stem != "keras-lm":
    from keras_lm import (
        converters,
        export,
        layers,
        models,
        objectives,
        packers,
        prompting,
        tasks,
        tokenizers,
        training,
    )
