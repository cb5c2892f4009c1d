"""Classic pretrained language models for Keras 3: raw text in, one servable artefact out.

Packages are imported when they are first used, so that a client of a server or a `.tflite` does not
wait for TensorFlow. `keras_lm.tasks` registers all classes with Keras; if Keras is imported before
`keras_lm`, they are registered at once, and `keras.models.load_model` knows them.
"""

import importlib
import importlib.util
import os
import platform
import sys
from importlib.machinery import PathFinder
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


class PackagesOfAClone:
    """Finds `keras_lm.export` and `keras_lm.lectures` beside this folder, as in a clone."""

    FOLDERS = {
        f"keras_lm.{name}": Path(__file__).parents[1] / name for name in ("export", "lectures")
    }

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if (folder := cls.FOLDERS.get(name)) is None:
            return None
        return importlib.util.spec_from_file_location(name, folder / "__init__.py")


# An installation has these packages inside of this folder, where Python finds them itself. It is
# asked first: this finder only sees what is in no folder, but before those of other clones.
if not Path(__file__).with_name("export").exists():
    sys.meta_path.insert(sys.meta_path.index(PathFinder) + 1, PackagesOfAClone)


def __getattr__(name):
    if name in __all__:
        return importlib.import_module(f"keras_lm.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return __all__


if "keras" in sys.modules:
    importlib.import_module("keras_lm.tasks")
