"""The memory that the bodies of all requests take together."""

import contextlib
import threading

from keras_lm.serving.errors import ServingError, StatusCode

# Bytes of each request that are not counted, so that a small one never has to wait for large ones.
SMALL = 2**16


class BodyMemory:
    """So many bytes, of which each request takes a part; from any thread."""

    def __init__(self, size):
        self._size = self._left = size
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def share(self):
        """Yield a function that takes a number of bytes, which come back at the end of the block.

        It raises a `ServingError` if there are not so many left.
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
                        f"The bodies of all requests may have {self._size} bytes together, and "
                        "others have them now: try again later.",
                    )
                self._left -= more
            held += more

        try:
            yield take
        finally:
            with self._lock:
                self._left += held
