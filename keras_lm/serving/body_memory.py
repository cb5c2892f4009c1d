"""Limits on what all requests take together, such as the memory of their bodies."""

import contextlib
import threading

from keras_lm.serving.errors import ServingError, StatusCode

# Bytes of each request that are not counted, so that a small one never has to wait for large ones.
SMALL = 2**16


class Budget:
    """A number that all requests share; thread-safe. Subclasses say of what."""

    def __init__(self, size):
        self._size = self._left = size
        self._lock = threading.Lock()

    @property
    def free(self):
        """How much of each request is not counted."""
        raise NotImplementedError

    @property
    def message(self):
        """What a client is told if too little is left."""
        raise NotImplementedError

    @contextlib.contextmanager
    def share(self):
        """Yield a function that reserves a number until the end of the block.

        It raises a `ServingError` if fewer are left.
        """
        asked = held = 0

        def take(number):
            nonlocal asked, held
            asked += number
            more = max(asked - self.free, 0) - held
            with self._lock:
                if more > self._left:
                    raise ServingError(StatusCode.RESOURCE_EXHAUSTED, self.message)
                self._left -= more
            held += more

        try:
            yield take
        finally:
            with self._lock:
                self._left += held


class BodyMemory(Budget):
    """The bytes of all bodies."""

    @property
    def free(self):
        return SMALL

    @property
    def message(self):
        return (
            f"The bodies of all requests together may have {self._size} bytes, and other requests "
            "use them now: try again later."
        )


class Work(Budget):
    """The rows × beams × new tokens of all requests that generate, which take memory until the end.

    One that is alone may have all; `free` is about what a single short text needs.
    """

    free = 2**10

    @property
    def message(self):
        return (
            f"All requests that generate may have {self._size} rows times beams times new tokens "
            "together, and others use them now: try again later."
        )
