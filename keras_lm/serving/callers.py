"""Who waits for an answer. Once nobody does, the work for it is dropped, or stopped.

TensorFlow stops a graph between two operations or turns of a loop, so that texts end at the next
token.
"""

import asyncio
import contextlib
import threading
import weakref

from starlette.requests import ClientDisconnect
from tensorflow.python.eager import cancellation

from keras_lm.serving.errors import ServingError, StatusCode

# Why callers leave, as the arguments of a `ServingError`. Not errors that stay: each time one is
# raised, its traceback grows by the frames there, and all that they hold.
GONE = StatusCode.CANCELLED, "Nobody waits for the answer any more."
SHUTTING_DOWN = StatusCode.UNAVAILABLE, "The server is shutting down."

_CURRENT = threading.local()  # `caller`, of a thread that works for one


def _make_threads_independent():
    """Let TensorFlow ask each thread what stops its functions.

    Its own context is one for the whole process, so that who leaves would stop what others wait
    for (`findings/tensorflow-cancellation-of-others.sh`).
    """
    of_process = cancellation.context

    def context():
        caller = getattr(_CURRENT, "caller", None)
        return of_process() if caller is None else caller.manager

    cancellation.context = context


_make_threads_independent()


class Caller:
    """One who waits for an answer, or several who wait for the same batch.

    Attributes:
        has_left: whether nobody waits any more.
        why: the code and the message of the `ServingError` that is raised then.
        manager: TensorFlow's `CancellationManager`.
    """

    def __init__(self):
        self.manager = cancellation.CancellationManager()
        self._lock = threading.Lock()
        self._whoever = []
        self.has_left, self.why = False, GONE

    def leave(self, why=GONE):
        """Report that nobody waits any longer; from any thread, any number of times."""
        for call in self.mark(why):
            call()

    def mark(self, why):
        """Let nobody wait any longer; return the functions to call then, none if it was before."""
        with self._lock:
            if self.has_left:
                return []
            self.has_left, self.why = True, why
            # They may refer to this caller, and a circle would hold its memory for long.
            calls, self._whoever = [self.manager.start_cancel, *self._whoever], []
        return calls

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
            raise self.error()

    def error(self):
        """Return a new `ServingError` that says why this caller has left."""
        return ServingError(*self.why)

    @contextlib.contextmanager
    def served(self):
        """A context for this caller's work: TensorFlow's functions in it stop once it has left."""
        self.check()
        before, _CURRENT.caller = getattr(_CURRENT, "caller", None), self
        try:
            yield
        except ServingError as error:
            if error.code is StatusCode.CANCELLED:  # as TensorFlow says it
                self.check()
            raise
        finally:
            _CURRENT.caller = before


class Callers:
    """All who wait; thread-safe."""

    def __init__(self):
        self._lock = threading.Lock()
        self._waiting = weakref.WeakSet()
        self._why = None

    def add(self, caller):
        """Return a caller, who leaves once all have to."""
        with self._lock:
            self._waiting.add(caller)
            why = self._why
        if why is not None:
            caller.leave(why)
        return caller

    def leave(self, why):
        """Make all leave, and those that come later."""
        with self._lock:
            self._why, waiting = why, list(self._waiting)
        # All have left before the first call: it may free a thread, on which another would begin.
        for call in [call for caller in waiting for call in caller.mark(why)]:
            call()


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
async def watched(request, caller):
    """Yield the `Caller` and a task that ends, and makes it leave, once the client is gone."""

    async def watch():
        while (await request.receive())["type"] != "http.disconnect":
            pass
        caller.leave()

    gone = asyncio.ensure_future(watch())
    try:
        yield caller, gone
    except asyncio.CancelledError:  # at the server's end
        caller.leave(SHUTTING_DOWN)
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
