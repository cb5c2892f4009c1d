"""Who waits for an answer. Once nobody does, the work for it is dropped, or stopped.

TensorFlow stops a graph between two operations or turns of a loop, so that texts end at the next
token.
"""

import asyncio
import contextlib
import threading

from starlette.requests import ClientDisconnect
from tensorflow.python.eager import cancellation

from keras_lm.serving.errors import ServingError, StatusCode

_CURRENT = threading.local()  # `caller`, of a thread that works for one


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
        before, _CURRENT.caller = getattr(_CURRENT, "caller", None), self
        try:
            with cancellation.CancellationManagerContext(self._manager):
                yield
        finally:
            _CURRENT.caller = before


def current():
    """Return the `Caller` for whom this thread works; one who stays, if none is known."""
    return getattr(_CURRENT, "caller", None) or Caller()


def all_of(callers):
    """Return a `Caller` who leaves once all of these have left."""
    together = Caller()
    for caller in callers:
        caller.when_left(lambda: all(one.has_left for one in callers) and together.leave())
    return together


# === Clients of REST ===


@contextlib.asynccontextmanager
async def watched(request, caller=None):
    """Yield a `Caller` and a task that ends, and makes it leave, once the client is gone."""
    caller = caller or Caller()

    async def watch():
        while (await request.receive())["type"] != "http.disconnect":
            pass
        caller.leave()

    gone = asyncio.ensure_future(watch())
    try:
        yield caller, gone
    except asyncio.CancelledError:  # at the server's end
        caller.leave()
        raise
    finally:
        gone.cancel()


async def unless_gone(waiting, gone):
    """Return what an awaitable returns; raise `ClientDisconnect` if the client is gone before."""
    waiting = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        waiting.cancel()
        raise
    if not waiting.done():
        waiting.cancel()
        raise ClientDisconnect
    return waiting.result()
