"""Optional packages, which only a part of the library needs: import, or a hint to install them."""

import importlib.util

EXTRAS = {
    "ai_edge_litert": "litert",
    "apache_beam": "beam",
    "matplotlib": "plot",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "opentelemetry": "otel",
    "orbax": "orbax",
    "prometheus_client": "serving",
    "pyarrow": "tables",
    "rouge_score": "translation",
    "sacrebleu": "translation",
    "scipy": "coreference",
    "sentencepiece": "vocab",
    "simplemma": "knowledge",
    "sklearn": "sklearn",
    "starlette": "serving",
    "tensorboard": "tensorboard",
    "tf2onnx": "onnx",
    "tokenizers": "vocab",
    "usearch": "search",
    "uvicorn": "serving",
}
INSTALL_TEXT = (
    "needs TensorFlow Text, which is not installed here: pip install tensorflow-text, in "
    "TensorFlow's minor version (there are wheels for Linux and macOS, also under WSL 2)"
)
# The format of an export → the package that runs it here.
RUNTIMES = {"litert": "ai_edge_litert", "onnx": "onnxruntime", "web": "ai_edge_litert"}


def require(name, purpose):
    """Import the module `name`, such as `"package.module"`, which `purpose` needs.

    Raises:
        ImportError: if it cannot be imported; the message has the command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{hint([name.partition('.')[0]], purpose)} ({error})") from error


def check_installed(name, purpose):
    """Raise the error of `require` if a package is not installed, without importing it.

    A command calls it before work that would be lost.
    """
    if importlib.util.find_spec(name) is None:
        raise ImportError(hint([name], purpose))


def packages(extra):
    """Return the names of the packages of an extra."""
    return [package for package, name in EXTRAS.items() if name == extra]


def hint(packages, purpose):
    """Return a message that names missing `packages` and the command that installs them."""
    extras = ",".join(dict.fromkeys(EXTRAS[package] for package in packages))
    return f"{purpose} needs {', '.join(packages)}: pip install 'keras-lm[{extras}]'"
