"""Classic pretrained language models for Keras 3: raw text in, one servable artefact out."""

import sys

from keras_lm.version import __version__

__all__ = [
    "__version__",
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
# The command goes without until it needs one: `keras-lm --help` does not wait for TensorFlow.
if "keras_lm_command" not in sys.modules:
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
