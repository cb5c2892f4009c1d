"""TF Serving's REST API over `Models`, as an ASGI application.

    GET  /v1/models/NAME[/versions/N|/labels/L]            state of the versions
    GET  /v1/models/NAME[/versions/N|/labels/L]/metadata   signatures
    POST /v1/models/NAME[/versions/N|/labels/L]:predict    also :classify and :regress
    POST /v1/models/NAME[/versions/N|/labels/L]:stream     text as it is written; not in TF Serving
    GET  /                                                 a page to try the models
    GET  /healthz, /readyz                                 200 if it lives; if all models answer
    GET  /metrics                                          measures for Prometheus
    GET  /openapi.json, /docs                              what can be asked, see `openapi`

and OpenAI's for embeddings and completions, see `openai_api`.

The event loop only reads, writes and answers `/healthz`: models, large JSON, the page and what is
told about models have threads of their own, so that a server that lives can always say so.
"""

import asyncio
import collections
import functools
import json
import logging
import re
import time
import urllib.parse

from google.protobuf import json_format
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from tensorflow_serving.apis import get_model_metadata_pb2

from keras_lm.serving import event_streams, json_answers, json_requests, messages, openai_api, verbs
from keras_lm.serving.bodies import read_body, read_to_the_end
from keras_lm.serving.callers import Caller, unless_gone, watched
from keras_lm.serving.errors import ServingError, StatusCode, invalid
from keras_lm.serving.probes import PROBES, live
from keras_lm.utils.files import LARGEST_VERSION

logger = logging.getLogger("keras_lm.serving")

MODEL = r"/v1/models(?:/(?P<name>[^/:]+))?(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
GET_PATH = re.compile(MODEL + r"(?:/(?P<verb>metadata))?", re.ASCII | re.IGNORECASE)
POST_PATH = re.compile(
    MODEL + r":(?P<verb>classify|regress|predict|stream)", re.ASCII | re.IGNORECASE
)

CORS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Content-Type",
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


def make_application(
    models,
    workers,
    share,
    writers,
    tellers,
    callers,
    render_page,
    hosts,
    max_request_bytes,
    body_memory,
    monitor,
    cors=False,
):
    """Return the ASGI application.

    Args:
        models: `Models`.
        workers: executor whose threads run the models.
        share: int. The most threads that one model may use, so that slow requests to it, such as
            generating long texts, leave some for other models.
        writers: executor for streams, each of which occupies a thread for long.
        tellers: executor for what is told about models.
        callers: `Callers`, whom all that wait join.
        render_page: function from the models' names to the HTML of the page.
        hosts: `Hosts` that requests may name.
        max_request_bytes: int, the largest body, both as sent and unzipped.
        body_memory: `BodyMemory` for all bodies.
        monitor: `Monitor`.
        cors: bool. Whether pages of other origins may ask.
    """

    shares = collections.defaultdict(lambda: asyncio.Semaphore(share))

    async def answer(request):
        path = request.scope["raw_path"].decode("latin-1")
        if (refused := _refused(request, path, hosts)) is not None:
            return refused
        if cors and request.method == "OPTIONS":
            return Response()
        if request.method in ("GET", "HEAD"):
            if path == "/healthz":
                return live()
            if path == "/":
                return HTMLResponse(await _in_a_thread(tellers, render_page, models.names))
            if path in PROBES:
                return await _in_a_thread(tellers, PROBES[path], models, monitor)
        if not path.lower().startswith("/v1/"):
            return _error(path, f"Not found: {path}", 404)
        try:
            answered = await answer_api(request, path)
            return answered if isinstance(answered, Response) else _json_response(answered)
        except HTTPException as error:
            message, status = error.detail, error.status_code
        except ServingError as error:
            message, status = error.message, HTTP_STATUS.get(error.code, 500)
        return _error(path, message, status)

    async def answer_api(request, path):
        if request.method == "GET":
            about = await _in_a_thread(tellers, _about_models, models, path)
            if about is not None:
                return about
        if request.method == "POST" and (match := POST_PATH.fullmatch(path)):
            spec, verb = _read_spec(match), match["verb"]
            if spec["name"] and verb in (*verbs.VERBS, "stream"):
                request.state.asked |= {"method": verb, "model": spec["name"]}
                with body_memory.share() as take:
                    body = await read_body(request, workers, max_request_bytes, take)
                    parse = functools.partial(json_requests.parse, body)
                    if verb == "stream":
                        return await stream(request, spec, parse, event_streams.write_event)
                    return await run_model(request, verbs.VERBS[verb], spec, parse)
        if request.method == "POST" and path in openai_api.ANSWERS:
            with body_memory.share() as take:
                body = await read_body(request, workers, max_request_bytes, take)
                document = await _in_a_thread(workers, json_requests.parse, body)
                spec = {"name": openai_api.model_name(document, models.names)}
                request.state.asked |= {"method": path.rpartition("/")[2], "model": spec["name"]}
                if document.get("stream"):
                    asked = openai_api.stream_request(document)
                    events = openai_api.event_writer(document)
                    return await stream(request, spec, lambda: asked, events)
                return await run_model(request, openai_api.ANSWERS[path], spec, lambda: document)
        raise invalid(f"Malformed request: {request.method} {path}")

    async def stream(request, spec, parse, write_event):
        gone = functools.partial(monitor.gone, **request.state.asked)
        caller = callers.add(Caller())
        return await event_streams.stream(
            request, writers, models, spec, parse, write_event, gone, caller
        )

    async def run_model(request, run, spec, parse):
        # Nothing is kept for other names, since clients can invent any number of them.
        share = shares[spec["name"]] if spec["name"] in models.names else asyncio.Semaphore()
        async with watched(request, callers.add(Caller())) as (caller, gone):
            await unless_gone(share.acquire(), gone)
            try:
                return await _in_a_thread(workers, verbs.answer, run, models, spec, parse, caller)
            finally:
                share.release()
                caller.leave()  # it has its answer

    return _served(answer, monitor, cors)


def _served(answer, monitor, cors):
    """Return the ASGI application that sends what `answer` returns for a request, and counts it."""

    async def application(scope, receive, send):
        request, begin = Request(scope, receive), time.perf_counter()
        request.state.asked = {"method": "other", "model": ""}
        try:
            with monitor.running.track_inprogress():
                response = await answer(request)
            if response.status_code >= 400 and "expect" not in request.headers:
                await read_to_the_end(request)
            if await _has_left(request, response):
                raise ClientDisconnect
        except ClientDisconnect:  # there is nobody to answer
            monitor.gone(**request.state.asked)
            return
        except asyncio.CancelledError:  # uvicorn's shutdown, after its grace period
            response = _error(scope["path"], "The server is shutting down.", 503)
        logger.debug("%s %s %d", request.method, scope["path"], response.status_code)
        asked, seconds = request.state.asked, time.perf_counter() - begin
        monitor.answered("rest", asked["method"], asked["model"], response.status_code, seconds)
        response.headers.update(CORS if cors else {})
        await response(scope, receive, send)

    return application


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
    return (_write_status if match["verb"] is None else _write_metadata)(models, spec)


def _error(path, message, status, headers=None):
    """Return the response of an error, in OpenAI's form for OpenAI's paths."""
    if path in openai_api.ANSWERS:
        return _json_response(openai_api.write_error(message, status), status, headers)
    return _json_response(json_answers.write_error(message), status, headers)


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
    if status in (429, 503):
        headers = {"Retry-After": "1"}
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
    name, label = (match[key] and urllib.parse.unquote(match[key]) for key in ("name", "label"))
    return {"name": name, "version": version, "label": label}


def _write_status(models, spec):
    # TF Serving ignores a label here.
    status = messages.model_status(models, spec["name"], spec["version"])
    return json.dumps(_message_to_dict(status), indent=1).encode()


def _write_metadata(models, spec):
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
