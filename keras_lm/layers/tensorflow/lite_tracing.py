"""Tracing for LiteRT, which lacks some of TensorFlow's operations."""

import contextlib
import contextvars

_IS_FOR_LITE = contextvars.ContextVar("is_for_lite", default=False)


@contextlib.contextmanager
def for_lite():
    """A context for tracing with LiteRT's operations only.

    It lacks tensor arrays: loops read and write slices of whole tensors, which copies them at every
    step. It lacks fingerprints: all words are computed. It lacks in-place scatter.
    """
    token = _IS_FOR_LITE.set(True)
    try:
        yield
    finally:
        _IS_FOR_LITE.reset(token)


def is_for_lite():
    """Whether this is traced with LiteRT's operations only."""
    return _IS_FOR_LITE.get()
