"""Who waits for an answer. Once nobody does, the work for it is dropped, or stopped.

TensorFlow stops a graph between two operations or turns of a loop, so that texts end at the next
token.
"""

import contextlib
import contextvars
import threading

from tensorflow.python.eager import cancellation

from keras_lm.serving.errors import ServingError, StatusCode

_CURRENT = contextvars.ContextVar("caller", default=None)


class Caller:
    """One who waits for an answer, or several who wait for the same batch."""

    def __init__(self):
        self._manager = cancellation.CancellationManager()
        self._lock = threading.Lock()
        self._whoever = []
        self.has_left = False

    def leave(self):
        """Tell that nobody waits any more; from any thread, any number of times."""
        with self._lock:
            if self.has_left:
                return
            self.has_left, whoever = True, self._whoever
        self._manager.start_cancel()
        for call in whoever:
            call()

    def when_left(self, call):
        """Call a function once this caller has left, at once if that was before."""
        with self._lock:
            if not self.has_left:
                self._whoever.append(call)
                return
        call()

    def check(self):
        """Raise a `ServingError` if this caller has left."""
        if self.has_left:
            raise ServingError(StatusCode.CANCELLED, "Nobody waits for the answer any more.")

    @contextlib.contextmanager
    def served(self):
        """A context for this caller's work: TensorFlow's functions in it stop once it has left."""
        self.check()
        token = _CURRENT.set(self)
        try:
            with cancellation.CancellationManagerContext(self._manager):
                yield
        finally:
            _CURRENT.reset(token)


def current():
    """Return the `Caller` for whom this thread works; one who stays, if none is known."""
    return _CURRENT.get() or Caller()


def all_of(callers):
    """Return a `Caller` who leaves once all of these have left."""
    together = Caller()
    for caller in callers:
        caller.when_left(lambda: all(one.has_left for one in callers) and together.leave())
    return together
