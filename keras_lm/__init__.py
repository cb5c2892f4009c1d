"""Classic pretrained language models for Keras 3: raw text in, one servable artefact out.

Packages are imported when they are first used, so that a client of a server or a `.tflite` does not
wait for TensorFlow. `keras_lm.tasks` registers all classes with Keras; if Keras is imported before
`keras_lm`, they are registered at once, and `keras.models.load_model` knows them.
"""

import importlib
import os
import platform
import sys
from pathlib import Path

# TensorFlow reads this on import. Its default leaves oneDNN off on processors without the newer
# parts of AVX-512, where oneDNN makes training some 20 % faster; see benchmarks/README.md.
if platform.machine() in ("x86_64", "AMD64"):
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")

from keras_lm.version import __version__

__all__ = [
    "__version__",
    "analysis",
    "converters",
    "data",
    "evaluation",
    "export",
    "knowledge",
    "layers",
    "litert",
    "metrics",
    "models",
    "objectives",
    "packers",
    "prompting",
    "search",
    "serving",
    "tasks",
    "tokenizers",
    "training",
]


# `keras_lm.export` and `keras_lm.lectures` are inside of this folder in an installation, and beside
# it in a clone.
if not Path(__file__).with_name("export").exists():
    __path__.append(str(Path(__file__).parents[1]))


def __getattr__(name):
    if name in __all__:
        return importlib.import_module(f"keras_lm.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return __all__


if "keras" in sys.modules:
    importlib.import_module("keras_lm.tasks")
