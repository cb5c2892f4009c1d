"""Tracing for LiteRT, which lacks some of TensorFlow's operations."""

import contextlib
import contextvars

_IS_FOR_LITE = contextvars.ContextVar("is_for_lite", default=False)


@contextlib.contextmanager
def for_lite():
    """A context for tracing with LiteRT's operations only.

    LiteRT has no tensor arrays, so loops read and write slices of whole tensors, which are copied
    at every step. It has no fingerprints, so all words are computed. It has no in-place scatter.
    """
    token = _IS_FOR_LITE.set(True)
    try:
        yield
    finally:
        _IS_FOR_LITE.reset(token)


def is_for_lite():
    """Whether LiteRT's operations only are being traced."""
    return _IS_FOR_LITE.get()
