"""A limit on the memory that the bodies of all requests take together."""

import contextlib
import threading

from keras_lm.serving.errors import ServingError, StatusCode

# Bytes of each request that are not counted, so that a small one never has to wait for large ones.
SMALL = 2**16


class BodyMemory:
    """A number of bytes that all requests share; thread-safe."""

    def __init__(self, size):
        self._size = self._left = size
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def share(self):
        """Yield a function that reserves a number of bytes until the end of the block.

        It raises a `ServingError` if fewer are left.
        """
        asked = held = 0

        def take(number):
            nonlocal asked, held
            asked += number
            more = max(asked - SMALL, 0) - held
            with self._lock:
                if more > self._left:
                    raise ServingError(
                        StatusCode.RESOURCE_EXHAUSTED,
                        f"The bodies of all requests together may have {self._size} bytes, and "
                        "other requests use them now: try again later.",
                    )
                self._left -= more
            held += more

        try:
            yield take
        finally:
            with self._lock:
                self._left += held
