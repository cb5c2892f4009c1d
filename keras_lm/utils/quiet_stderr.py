"""Hides what C++ libraries write to standard error, which Python's logging does not control."""

import contextlib
import importlib.util
import os
import sys


@contextlib.contextmanager
def quiet():
    """Discard what is written to standard error inside the block; exceptions are still raised."""
    if sys.stderr is not None:
        sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # standard error is closed, as in some services
        yield
        return
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


class QuietImport:
    """A finder for `sys.meta_path` that hides what a module writes when it is imported.

    TensorFlow 2.21 writes lines before it reads `TF_CPP_MIN_LOG_LEVEL`.
    """

    def __init__(self, name):
        self._name = name

    def find_spec(self, name, path=None, target=None):
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            execute = spec.loader.exec_module

            def quietly(module):
                with quiet():
                    execute(module)

            spec.loader.exec_module = quietly
        return spec
