"""Packages that only a part of the library needs: importing them, and what to install."""

import importlib

EXTRAS = {
    "ai_edge_litert": "litert",
    "apache_beam": "beam",
    "matplotlib": "plot",
    "rouge_score": "translation",
    "sacrebleu": "translation",
    "scipy": "coreference",
    "sentencepiece": "vocab",
    "sklearn": "sklearn",
    "starlette": "serving",
    "tokenizers": "vocab",
    "uvicorn": "serving",
}


def require(name, purpose):
    """Return the module `name`, perhaps `"package.module"`, which `purpose` needs.

    Raises:
        ImportError: if it cannot be imported, with the command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{hint([name.partition('.')[0]], purpose)} ({error})") from error


def hint(packages, purpose):
    """Return the sentence that says which `packages` are missing, and how to install them."""
    extras = ",".join(dict.fromkeys(EXTRAS[package] for package in packages))
    return f"{purpose} needs {', '.join(packages)}: pip install 'keras-lm[{extras}]'"
