"""Streams and queued requests are dropped if nobody waits, and end with a last word."""

import contextlib
import gc
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import requests
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from keras_lm.serving import Server, server
from keras_lm.serving.callers import Caller
from keras_lm.serving.inference import SavedModel


class Gate:
    """A model whose answers wait until `goes_on`; `ran` are the requests that it began with."""

    def __init__(self):
        self.ran = []
        self.begun = threading.Semaphore(0)
        self.goes_on = threading.Event()

    def enter(self, request):
        self.ran.append(request)
        self.begun.release()
        assert self.goes_on.wait(30)


@pytest.fixture
def gate(monkeypatch):
    """What gates a server with one thread of each kind."""
    for name in ("REST_THREADS", "MODEL_THREADS", "STREAM_THREADS", "GRPC_THREADS"):
        monkeypatch.setattr(server, name, 1)
    gate, call = Gate(), SavedModel._call

    def gated_call(self, name, inputs):
        gate.enter(inputs["x"].tolist())
        return call(self, name, inputs)

    def gated_stream(self, document):
        gate.enter(document["prompt"])
        while True:
            yield {"text": "a"}
            gate.ran.append("piece")

    monkeypatch.setattr(SavedModel, "_call", gated_call)
    monkeypatch.setattr(SavedModel, "stream", gated_stream)
    yield gate
    gate.goes_on.set()


@pytest.fixture
def gated(gate, saved_models):
    with Server(saved_models / "kinds") as running:
        yield running


def is_idle(server, seconds=20):
    end = time.monotonic() + seconds
    while server._models.is_busy and time.monotonic() < end:
        time.sleep(0.01)
    return not server._models.is_busy


def gone(running):
    """Return how many clients went away before their answer."""
    lines = requests.get(f"{running.rest_url}/metrics", timeout=60).text.splitlines()
    return sum(float(x.split()[-1]) for x in lines if x.startswith("keras_lm_clients_gone_total"))


def wait_for_gone(running, number):
    end = time.monotonic() + 20
    while gone(running) < number:
        assert time.monotonic() < end
        time.sleep(0.02)


def leave(url, **json):
    """Ask, and go away before there is an answer."""
    with pytest.raises(requests.Timeout):
        requests.post(url, json=json, timeout=0.3)


# Who has left


@pytest.mark.parametrize(
    ("verb", "first", "second"),
    [
        (":stream", {"prompt": "first"}, {"prompt": "second"}),
        (":predict", {"instances": [1]}, {"instances": [2]}),
    ],
)
def test_what_waits_for_nobody_does_not_begin(gated, gate, rest_of, verb, first, second):
    url = rest_of(gated).url + verb
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(requests.post, url, json=first, timeout=60, stream=True)
        assert gate.begun.acquire(timeout=20)
        leave(url, **second)
        wait_for_gone(gated, 1)
        gate.goes_on.set()
        asked.result().close()
    assert is_idle(gated)
    assert [one for one in gate.ran if one != "piece"] == [
        [1.0] if "instances" in first else "first"
    ]


def test_a_stream_left_in_the_middle_writes_no_more(gated, gate, rest_of):
    gate.goes_on.set()
    with requests.post(rest_of(gated).url + ":stream", json={"prompt": "a"}, stream=True) as answer:
        assert next(answer.iter_lines()) == b'data: {"text": "a"}'
    wait_for_gone(gated, 1)
    assert is_idle(gated)
    number = len(gate.ran)
    time.sleep(0.05)
    assert len(gate.ran) == number


def test_who_has_left_is_forgotten(gated, gate, rest_of):
    for _ in range(3):
        leave(rest_of(gated).url + ":stream", prompt="a")
        gate.goes_on.set()
        assert is_idle(gated)
        gate.goes_on.clear()
    wait_for_gone(gated, 3)
    gc.collect()
    assert [one for one in gc.get_objects() if isinstance(one, Caller)] == []


def ask_over_grpc(stubs, value, seconds):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "kinds"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto([value], tf.float32))
    return stubs.prediction.Predict.future(request, timeout=seconds)


@pytest.mark.parametrize("leaves", ["deadline", "cancel"])
def test_a_call_of_grpc_that_nobody_waits_for_does_not_begin(gated, gate, grpc_of, leaves):
    stubs = grpc_of(gated)
    first = ask_over_grpc(stubs, 1.0, 60)
    assert gate.begun.acquire(timeout=20)
    second = ask_over_grpc(stubs, 2.0, 0.3 if leaves == "deadline" else 60)
    if leaves == "cancel":
        second.cancel()
    with pytest.raises((grpc.RpcError, grpc.FutureCancelledError)):
        second.result()
    gate.goes_on.set()
    assert first.result().outputs["y"].float_val == [2.5]
    assert ask_over_grpc(stubs, 3.0, 60).result().outputs["y"].float_val == [3.5]
    assert gate.ran == [[1.0], [3.0]]
    stubs.channel.close()


# The server's end


@pytest.mark.parametrize("path", ["models/kinds:stream", "completions"])
def test_streams_end_with_an_event_when_the_server_does(gate, saved_models, monkeypatch, path):
    monkeypatch.setattr(server, "GRACE", 0.3)
    goes_on = threading.Event()

    def stream(self, document):
        gate.begun.release()
        yield {"text": "a"}
        goes_on.wait(20)
        yield {"text": "never sent"}

    monkeypatch.setattr(SavedModel, "stream", stream)
    running = Server(saved_models / "kinds").start()
    url = f"{running.rest_url}/v1/{path}"
    body = {"prompt": "a"} | ({"stream": True} if path == "completions" else {})
    with ThreadPoolExecutor(2) as pool:
        answer = requests.post(url, json=body, timeout=60, stream=True)
        waiting = pool.submit(requests.post, url, json=body, timeout=60)
        stopped = pool.submit(running.stop)
        events = answer.text.strip().split("\n\n")
        goes_on.set()
        assert waiting.result().status_code == 503
        assert "shutting down" in waiting.result().text
        assert stopped.result()
    first, last = (json.loads(event.removeprefix("data: ")) for event in events)
    assert "a" in (first.get("text"), first.get("choices", [{}])[0].get("text"))
    error = last["error"]
    assert (error if isinstance(error, str) else error["message"]) == "The server is shutting down."


# Health


def test_health_is_told_whatever_else_is_busy(gated, gate, rest_of, monkeypatch):
    told = threading.Semaphore(0)

    def write(self):
        told.release()
        assert gate.goes_on.wait(30)
        return b"", "text/plain"

    monkeypatch.setattr("keras_lm.serving.monitoring.Monitor.write", write)
    with ThreadPoolExecutor(4) as pool, contextlib.ExitStack() as undo:
        undo.callback(gate.goes_on.set)
        url = rest_of(gated).url
        asked = [
            pool.submit(requests.post, url + ":predict", json={"instances": [1]}, timeout=60),
            *(
                pool.submit(requests.get, f"{gated.rest_url}/metrics", timeout=60)
                for _ in range(server.TELLING_THREADS)
            ),
        ]
        assert gate.begun.acquire(timeout=20)
        for _ in range(server.TELLING_THREADS):
            assert told.acquire(timeout=20)
        with gated._models._lock:  # as if a version were being replaced
            assert requests.get(f"{gated.rest_url}/healthz", timeout=20).status_code == 200
        assert not any(one.done() for one in asked)
