"""TF Serving's REST API over `Models`, as an ASGI application.

    GET  /v1/models/NAME[/versions/N|/labels/L]            state of the versions
    GET  /v1/models/NAME[/versions/N|/labels/L]/metadata   signatures
    POST /v1/models/NAME[/versions/N|/labels/L]:predict    also :classify and :regress
    POST /v1/models/NAME[/versions/N|/labels/L]:stream     text as it is written; not in TF Serving
    GET  /, /page.json                                     a page to try the models, and its data
    GET  /healthz, /readyz                                 200 if it lives; if all models answer
    GET  /metrics                                          measures for Prometheus
    GET  /openapi.json, /docs                              what can be asked, see `openapi`

and OpenAI's for embeddings and completions, see `openai_api`, `/rerank` and `/v1/search`, see
`search_api`, and the Open Inference Protocol below /v2, see `open_inference`. Who may ask is for
`access` to say.

The event loop only reads, writes and answers `/healthz`: models, large JSON, the page and answers
about models have threads of their own, so that a server that lives can always say so.
"""

import asyncio
import collections
import contextlib
import dataclasses
import functools
import json
import logging
import re
import time
import urllib.parse
import zlib
from collections.abc import Callable
from concurrent.futures import Executor

from google.protobuf import json_format
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from tensorflow_serving.apis import get_model_metadata_pb2

from keras_lm.serving import (
    logs,
    messages,
    monitoring,
    open_inference,
    openai_api,
    openapi,
    page,
    rest_json,
    search_api,
)
from keras_lm.serving.access import OPEN_PATHS, Access
from keras_lm.serving.callers import Caller, Callers, unless_gone, watched
from keras_lm.serving.errors import ServingError, StatusCode, invalid
from keras_lm.serving.http_server import Hosts
from keras_lm.serving.models import Models
from keras_lm.serving.monitoring import Monitor
from keras_lm.serving.work_limits import BodyMemory
from keras_lm.utils.files import LARGEST_VERSION

logger = logging.getLogger("keras_lm.serving")

MODEL = r"/v1/models(?:/(?P<name>[^/:]+))?(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
GET_PATH = re.compile(MODEL + r"(?:/(?P<verb>metadata))?", re.ASCII | re.IGNORECASE)
POST_PATH = re.compile(
    MODEL + r":(?P<verb>classify|regress|predict|stream)", re.ASCII | re.IGNORECASE
)
V2_PATH = re.compile(
    r"/v2/models/(?P<name>[^/]+)(?:/versions/(?P<version>\d+))?(?:/(?P<verb>infer|ready))?",
    re.ASCII,
)
ANSWERS = openai_api.ANSWERS | search_api.ANSWERS

CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": f"Authorization, Content-Type, {open_inference.HEADER}",
    "Access-Control-Expose-Headers": f"Retry-After, {open_inference.HEADER}",
}
HTTP_STATUS = {
    StatusCode.CANCELLED: 499,
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.DEADLINE_EXCEEDED: 504,
    StatusCode.NOT_FOUND: 404,
    StatusCode.ALREADY_EXISTS: 409,
    StatusCode.PERMISSION_DENIED: 403,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.FAILED_PRECONDITION: 400,
    StatusCode.ABORTED: 409,
    StatusCode.OUT_OF_RANGE: 400,
    StatusCode.UNIMPLEMENTED: 501,
    StatusCode.UNAVAILABLE: 503,
    StatusCode.UNAUTHENTICATED: 401,
}  # every other code is 500


@dataclasses.dataclass(kw_only=True, eq=False)
class Application:
    """The ASGI application.

    Attributes:
        models: `Models`.
        workers: executor whose threads run the models.
        share: int. The most threads that one model may use, so that slow requests to it, such as
            generating long texts, leave some for other models.
        writers: executor for streams, each of which occupies a thread for long.
        tellers: executor for answers about models.
        callers: `Callers`, whom all that wait join.
        page_data: function that returns the data of the page, see `page.data`.
        access: `Access`, who may ask.
        max_waiting: int, how many requests may wait for a model; None for any number.
        hosts: `Hosts` that requests may name.
        max_request_bytes: int, the largest body, both as sent and unzipped.
        body_memory: `BodyMemory` for all bodies.
        monitor: `Monitor`.
        cors: bool. Whether pages of other origins may ask.
    """

    models: Models
    workers: Executor
    share: int
    writers: Executor
    tellers: Executor
    callers: Callers
    page_data: Callable[[], dict]
    access: Access
    hosts: Hosts
    max_request_bytes: int
    body_memory: BodyMemory
    monitor: Monitor
    cors: bool = False
    max_waiting: int | None = None

    def __post_init__(self):
        self._waiting = collections.Counter()
        self._shares = collections.defaultdict(lambda: asyncio.Semaphore(self.share))

    async def __call__(self, scope, receive, send):
        """Answer a request, and count it."""
        request, begin = Request(scope, receive), time.perf_counter()
        request.state.asked = {"method": "other", "model": ""}
        request_id = logs.request_id(request.headers.get("x-request-id"))
        try:
            with self.monitor.running.track_inprogress():
                response = await self._answer(request)
            if response.status_code >= 400 and "expect" not in request.headers:
                await read_to_the_end(request)
            if await _has_left(request, response):
                raise ClientDisconnect
        except ClientDisconnect:  # there is nobody to answer
            self.monitor.gone(**request.state.asked)
            return
        except asyncio.CancelledError:  # uvicorn's shutdown, after its grace period
            response = _error(scope["path"], "The server is shutting down.", 503)
        logger.debug("%s %s %d", request.method, scope["path"], response.status_code)
        asked, seconds = request.state.asked, time.perf_counter() - begin
        # A log may leave out the probes of an orchestrator, which come all the time.
        route = scope["path"] if scope["path"] in (*OPEN_PATHS, *PROBES) else asked["method"]
        self.monitor.answered(
            "rest",
            **asked,
            code=response.status_code,
            seconds=seconds,
            id=request_id,
            route=route,
            headers=request.headers,
        )
        response.headers.update({"X-Request-Id": request_id} | (CORS if self.cors else {}))
        await response(scope, receive, send)

    async def _answer(self, request):
        """Return the response to a request."""
        path = request.scope["raw_path"].decode("latin-1")
        if (refused := _refused(request, path, self.hosts)) is not None:
            return refused
        if self.cors and request.method == "OPTIONS":
            return Response()
        try:
            if (about := await self._answer_about_itself(request, path)) is not None:
                return about
            if request.method == "POST" and path in ANSWERS:
                answered = await self._answer_by_model_field(request, path)
            elif path.lower().startswith("/v1/"):
                answered = await self._answer_api(request, path)
            else:
                answered = await self._answer_inference(request, path)
            return answered if isinstance(answered, Response) else _json_response(answered)
        except HTTPException as error:
            message, status = error.detail, error.status_code
        except ServingError as error:
            status, seconds = HTTP_STATUS.get(error.code, 500), error.retry_after
            headers = seconds and {"Retry-After": str(seconds)}
            return _error(path, error.message, status, headers)
        return _error(path, message, status)

    async def _answer_about_itself(self, request, path):
        """Return the answer about this server; None for a path that is not of this kind.

        It raises a `ServingError` for a request without a key, of any path but the open ones.
        """
        is_get = request.method in ("GET", "HEAD")
        if not (is_get and path in OPEN_PATHS):
            address = request.client.host if request.client else ""
            self.access.check(request.headers.getlist("authorization"), address)
        if not is_get:
            return None
        if path == "/healthz":
            return live()
        if path == "/":
            data = None if self.access.needs_key else self.page_data()
            return HTMLResponse(await _in_a_thread(self.tellers, page.render, data))
        if path == "/page.json":
            return _json_response(json.dumps(self.page_data()))
        if path in PROBES:
            return await _in_a_thread(self.tellers, PROBES[path], self.models, self.monitor)
        return None

    async def _answer_api(self, request, path):
        """Return the response, or its JSON, to a request below `/v1/`."""
        if request.method == "GET":
            about = await _in_a_thread(self.tellers, _about_models, self.models, path)
            if about is not None:
                return about
        if request.method == "POST" and (match := POST_PATH.fullmatch(path)):
            spec, verb = _read_spec(match), match["verb"]
            if spec["name"] and verb in (*rest_json.VERBS, "stream"):
                return await self._answer_verb(request, spec, verb)
        raise invalid(f"Malformed request: {request.method} {path}")

    async def _answer_verb(self, request, spec, verb):
        """Return the answer of a model to TF Serving's `:predict` and the like."""
        request.state.asked |= {"method": verb, "model": spec["name"]}
        with self.body_memory.share() as take:
            body = await read_body(request, self.workers, self.max_request_bytes, take)
            parse = functools.partial(rest_json.parse, body)
            if verb == "stream":
                return await self._stream(request, spec, parse, write_event)
            return await self._run(request, rest_json.VERBS[verb], spec, parse)

    async def _answer_inference(self, request, path):
        """Return the answer to a request of the Open Inference Protocol."""
        match = V2_PATH.fullmatch(path)
        spec, verb = (_read_spec(match), match["verb"]) if match else (None, None)
        if request.method in ("GET", "HEAD") and path.startswith("/v2"):
            about = functools.partial(open_inference.about, self.models, path, spec, verb)
            if (answered := await _in_a_thread(self.tellers, about)) is not None:
                status, document = answered
                return _json_response(rest_json.dump(document), status)
        if request.method != "POST" or verb != "infer":
            raise HTTPException(404, f"Not found: {path}")
        request.state.asked |= {"method": verb, "model": spec["name"]}
        with self.body_memory.share() as take:
            body = await read_body(request, self.workers, self.max_request_bytes, take)
            json_length = request.headers.get(open_inference.HEADER)
            parse = functools.partial(open_inference.parse, body, json_length)
            infer = functools.partial(open_inference.infer, spec["name"])
            return await self._run(request, infer, spec, parse)

    async def _answer_by_model_field(self, request, path):
        """Return the answer of the model that the body of a request names, to one of `ANSWERS`."""
        with self.body_memory.share() as take:
            body = await read_body(request, self.workers, self.max_request_bytes, take)
            document = await _in_a_thread(self.workers, rest_json.parse, body)
            spec = {"name": openai_api.model_name(document, self.models.names)}
            request.state.asked |= {"method": path.rpartition("/")[2], "model": spec["name"]}
            if "completions" in path and document.get("stream"):
                asked = openai_api.stream_request(document)
                events = openai_api.event_writer(document)
                return await self._stream(request, spec, lambda: asked, events)
            return await self._run(request, ANSWERS[path], spec, lambda: document)

    async def _run(self, request, run, spec, parse):
        """Return the answer of a model, once it has a thread of the model's share."""
        # Nothing is kept for other names, since clients can invent any number of them.
        is_known = spec["name"] in self.models.names
        share = self._shares[spec["name"]] if is_known else asyncio.Semaphore()
        async with watched(request, self.callers.add(Caller())) as (caller, gone):
            with self._place(spec["name"], share):
                await unless_gone(share.acquire(), gone)
            try:
                return await _in_a_thread(
                    self.workers, rest_json.answer, run, self.models, spec, parse, caller
                )
            finally:
                share.release()
                caller.leave()  # it has its answer

    @contextlib.contextmanager
    def _place(self, name, share):
        """Hold a place among the requests that wait for a model; raise if all are taken."""
        if (
            share.locked()
            and self.max_waiting is not None
            and (self._waiting[name] >= self.max_waiting)
        ):
            raise ServingError(
                StatusCode.RESOURCE_EXHAUSTED,
                f"The queue for this model is full ({self.max_waiting} waiting): try again later.",
            )
        self._waiting[name] += 1
        try:
            yield
        finally:
            self._waiting[name] -= 1
            if not self._waiting[name]:
                del self._waiting[name]

    async def _stream(self, request, spec, parse, write_event):
        gone = functools.partial(self.monitor.gone, **request.state.asked)
        caller = self.callers.add(Caller())
        return await stream(
            request, self.writers, self.models, spec, parse, write_event, gone, caller
        )


async def _has_left(request, response):
    """Return whether nobody waits for a response; one that refuses the request is sent anyway."""
    if response.status_code == HTTP_STATUS[StatusCode.CANCELLED]:
        return True
    return response.status_code < 400 and await request.is_disconnected()


def _about_models(models, path):
    """Return what a GET request asks about models; None if it asks something else."""
    if path == "/v1/models":
        return openai_api.write_models(models.names)
    match = GET_PATH.fullmatch(path)
    if match is None or match["verb"] not in (None, "metadata"):
        return None
    spec = _read_spec(match)
    if not spec["name"]:
        raise invalid("Missing model name in request.")
    return (_write_status if match["verb"] is None else write_metadata)(models, spec)


def _error(path, message, status, headers=None):
    """Return the response of an error, in OpenAI's form for paths like OpenAI's."""
    if path == "/v1/models" or path in ANSWERS:
        return _json_response(openai_api.write_error(message, status), status, headers)
    return _json_response(rest_json.write_error(message), status, headers)


def _refused(request, path, hosts):
    """Return the response to a request that no path answers, None for one that is fine."""
    if "transfer-encoding" in request.headers and "content-length" in request.headers:
        # Request smuggling: a proxy that goes by the other header sees other requests.
        message = "The request has both Content-Length and Transfer-Encoding: send one of them."
        return _error(path, message, 400, {"Connection": "close"})
    host = request.headers.get("host", "")
    if host not in hosts:
        message = f"Host {host!r} is not a name of this server, nor in its allowed hosts."
        return _error(path, message, 400)
    return None


def _in_a_thread(threads, function, *arguments):
    return asyncio.get_running_loop().run_in_executor(threads, function, *arguments)


def _json_response(body, status=200, headers=None):
    if status in (429, 503) and headers is None:
        headers = {"Retry-After": "1"}
    if status == 401:
        headers = {"WWW-Authenticate": "Bearer"}
    return Response(body, status, headers, "application/json")


def _read_spec(match):
    """Return the arguments of `Models.lease` in a path."""
    version = match["version"]
    if version is not None:
        digits = version.lstrip("0") or "0"
        # The length is checked first, because `int` raises for more than 4,300 digits.
        if len(digits) > len(str(LARGEST_VERSION)) or int(digits) > LARGEST_VERSION:
            raise invalid(f"Failed to convert version: {version} to numeric.")
        version = int(digits)
    named = match.groupdict()
    name, label = (named.get(key) and urllib.parse.unquote(named[key]) for key in ("name", "label"))
    return {"name": name, "version": version, "label": label}


def _write_status(models, spec):
    # TF Serving ignores a label here.
    status = messages.model_status(models, spec["name"], spec["version"])
    return json.dumps(_message_to_dict(status), indent=1).encode()


def write_metadata(models, spec):
    """Return the body of the answer with the signatures of a model."""
    with models.lease(**spec) as served:
        signatures = get_model_metadata_pb2.SignatureDefMap(signature_def=served.signature_defs)
        version = str(served.number)
    model_spec = {"name": spec["name"], "signature_name": "", "version": version}
    document = {
        "model_spec": model_spec,
        "metadata": {"signature_def": _message_to_dict(signatures)},
    }
    return json.dumps(document, indent=1).encode()


def _message_to_dict(message):
    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )


# === Bodies of requests ===

PART = 2**16  # bytes to unzip at once
GZIP = ("gzip", "x-gzip")


async def read_body(request, workers, most, take):
    """Return the body of a request, unzipped.

    Args:
        request: Starlette's `Request`.
        workers: executor whose threads unzip.
        most: int. The most bytes, both as sent and unzipped; of more, the answer is 413.
        take: function that reserves a number of bytes, see `BodyMemory.share`.
    """
    if int(request.headers.get("content-length", 0)) > most:
        raise _too_large(most)
    body = bytearray()
    async for chunk in request.stream():
        take(len(chunk))
        body += chunk
        if len(body) > most:
            raise _too_large(most)
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", *GZIP):
        raise HTTPException(
            415,
            f"Content-Encoding {encoding[:80]!r} is not supported: send the body plain, or gzip.",
        )
    if encoding in GZIP:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(workers, _unzip, bytes(body), most, take)
    return bytes(body)


def _too_large(most):
    return HTTPException(413, f"The body has more than {most} bytes, the most that is read.")


async def read_to_the_end(request):
    """Read the rest of a body: if the connection closed now, the client would see no answer."""
    with contextlib.suppress(RuntimeError):  # the whole body has been read
        async for _ in request.stream():
            pass


def _unzip(body, most, take):
    # In parts, since a few kilobytes of gzip can unzip to more than fits into memory.
    unzip, unzipped = zlib.decompressobj(wbits=31), bytearray()
    try:
        for start in range(0, len(body), PART):
            rest = body[start : start + PART]
            while rest and not unzip.eof and len(unzipped) <= most:
                part = unzip.decompress(rest, PART)
                take(len(part))
                unzipped += part
                rest = unzip.unconsumed_tail
            if unzip.eof and (unzip.unused_data or start + PART < len(body)):
                raise invalid("The gzipped body goes on after its end: send one gzip stream.")
    except zlib.error as error:
        raise invalid("Failed to uncompress the gzipped body.") from error
    if len(unzipped) > most:
        raise _too_large(most)
    if not unzip.eof:
        raise invalid("The gzipped body is incomplete.")
    return bytes(unzipped)


# === Texts as they are written: server-sent events ===


def write_event(event):
    """Return an event of `:stream`, or an error, as what is sent: JSON objects."""
    if isinstance(event, ServingError):
        return f"data: {rest_json.write_error(event.message).decode()}\n\n"
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
            rest_json.answer(write, models, spec, parse, caller)
        except ServingError as error:  # without its traceback, whose frames hold the queue
            put(ServingError(error.code, error.message))

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

    caller.when_left(lambda: put(caller.error()))
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


# === Answers about the server ===


def live():
    """Return the answer of a server that lives."""
    return Response("The server answers.\n", media_type="text/plain")


def _ready(models, monitor):
    missing = monitoring.not_ready(models)
    if missing:
        return Response(f"No version answers of {missing}.\n", 503, media_type="text/plain")
    return Response("All models answer.\n", media_type="text/plain")


def _metrics(models, monitor):
    body, content_type = monitor.write()
    return Response(body, headers={"Content-Type": content_type})


def _openapi(models, monitor):
    text = json.dumps(openapi.document(models), indent=1)
    return Response(text, media_type="application/json")


def _page(models, monitor):
    return HTMLResponse(openapi.page(openapi.document(models)))


# Each takes `Models` and the `Monitor`, and may wait for them.
PROBES = {"/readyz": _ready, "/metrics": _metrics}
PROBES |= {"/openapi.json": _openapi, "/docs": _page}
