"""Texts over REST as they are written, piece by piece: server-sent events."""

import asyncio
import contextlib
import json

from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse

from keras_lm.serving import json_answers, verbs
from keras_lm.serving.callers import unless_gone, watched
from keras_lm.serving.errors import ServingError


def write_event(event):
    """Return an event of `:stream`, or an error, as what is sent: JSON objects."""
    if isinstance(event, ServingError):
        return f"data: {json_answers.write_error(event.message).decode()}\n\n"
    return f"data: {json.dumps(event)}\n\n"


async def stream(request, writers, models, spec, parse, write_event, gone, caller):
    """Return a response with the pieces of a text as server-sent events, once the first exists.

    The events are `{"text": piece}`, at the end `{"done": True, …}` with the numbers of tokens, or
    a `ServingError`; `write_event` returns what is sent for one. `gone` is called if the client
    does not wait for the end. Once the `caller` has left, as all do at the server's end, the last
    event says why.
    """
    loop, queue = asyncio.get_running_loop(), asyncio.Queue()

    def put(event):
        with contextlib.suppress(RuntimeError):  # the server and its event loop have ended
            loop.call_soon_threadsafe(queue.put_nowait, event)

    def write(served, document):
        for event in served.stream(document):
            caller.check()
            put(event)

    def work():
        try:
            verbs.answer(write, models, spec, parse, caller)
        except ServingError as error:
            put(error)

    async def events(event):
        is_whole = False
        try:
            while isinstance(event, dict) and "done" not in event:
                yield write_event(event)
                event = await queue.get()
            yield write_event(event)
            is_whole = True
        finally:  # also if the client has gone
            caller.leave()
            if not is_whole:
                gone()

    caller.when_left(lambda: put(caller.why))
    loop.run_in_executor(writers, work)
    try:
        async with watched(request, caller) as (_, gone_now):
            first = await unless_gone(queue.get(), gone_now)
    except (asyncio.CancelledError, ClientDisconnect):
        caller.leave()
        raise
    if isinstance(first, ServingError):
        raise first
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # proxies must not buffer
    return StreamingResponse(events(first), media_type="text/event-stream", headers=headers)
