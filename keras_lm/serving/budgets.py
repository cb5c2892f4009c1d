"""Limits on what all requests take together: the memory of bodies, the work of generating."""

import contextlib
import threading

from keras_lm.serving.errors import ServingError, StatusCode


class Budget:
    """A number that all requests share; thread-safe.

    Subclasses say of what: `free` is how much of each request is not counted, so that a small one
    never has to wait for large ones; `message` is what a client is told if too little is left.
    """

    free = 0
    message = "{}"

    def __init__(self, size):
        self._size = self._left = size
        self._lock = threading.Lock()

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
                    message = self.message.format(self._size)
                    raise ServingError(StatusCode.RESOURCE_EXHAUSTED, message)
                self._left -= more
            held += more

        try:
            yield take
        finally:
            with self._lock:
                self._left += held


class BodyMemory(Budget):
    """The bytes of all bodies."""

    free = 2**16
    message = (
        "The bodies of all requests together may have {} bytes, and other requests use them now: "
        "try again later."
    )


class Work(Budget):
    """Rows × beams × new tokens of all requests that generate, whose memory is held to their end.

    What is free is a text of usual length.
    """

    free = 2**10
    message = (
        "All requests that generate may have {} rows times beams times new tokens together, and "
        "others use them now: try again later."
    )
