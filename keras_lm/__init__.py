"""Classic pretrained language models for Keras 3: raw text in, one servable artefact out."""

import importlib
import os
import platform
import sys

# TensorFlow reads this on import. Its default leaves oneDNN off on processors without the newer
# parts of AVX-512, where oneDNN makes training some 20 % faster; see benchmarks/README.md.
if platform.machine() in ("x86_64", "AMD64"):
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

from keras_lm.version import __version__

__all__ = [
    "__version__",
    "converters",
    "data",
    "export",
    "knowledge",
    "layers",
    "metrics",
    "models",
    "objectives",
    "packers",
    "prompting",
    "serving",
    "tasks",
    "tokenizers",
    "training",
]


def __getattr__(name):
    # The server and its client are imported on first use; in the command, all packages are.
    if name in __all__:
        return importlib.import_module(f"keras_lm.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return __all__


# Importing the packages registers their classes with Keras, so that `keras.models.load_model` knows
# them. The command imports them only when needed, so that `keras-lm --help` does not wait for
# TensorFlow.
if "keras_lm_command" not in sys.modules:
    from keras_lm import (
        converters,
        data,
        export,
        knowledge,
        layers,
        metrics,
        models,
        objectives,
        packers,
        prompting,
        tasks,
        tokenizers,
        training,
    )
