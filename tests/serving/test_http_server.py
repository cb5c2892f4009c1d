"""What clients cannot do: keep others out, stay for ever, send too much, hold up the end."""

import gzip
import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
import requests
import tensorflow as tf
from tensorflow_serving.apis import classification_pb2, predict_pb2

from keras_lm.serving import Server, work_limits
from keras_lm.serving.errors import ServingError
from keras_lm.serving.http_server import Hosts
from keras_lm.serving.inference import SavedModel
from keras_lm.serving.server import REST_THREADS, STREAM_THREADS

LARGEST = 10_000
PART = b"POST /v1/models/kinds:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"


@pytest.fixture(scope="module")
def strict(saved_models):
    """A server that has little patience."""
    with Server(
        saved_models / "kinds",
        max_connections=4,
        request_timeout=1.5,
        max_request_bytes=LARGEST,
        max_rows=3,
    ) as running:
        yield running


def connect(address, sent=b""):
    host, port = address.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)), timeout=20)
    client.sendall(sent)
    return client


def is_closed(client):
    client.settimeout(10)
    try:
        return client.recv(100) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("sent", [b"", b"POST /v1/mod", PART])
def test_clients_in_waiting_give_way_and_are_not_logged(strict, rest_of, caplog, capfd, sent):
    idle = [connect(strict.rest_url, sent) for _ in range(40)]
    assert rest_of(strict).post(instances=[1]).json() == {"predictions": [2.5]}
    assert is_closed(idle[0])
    for client in idle:
        client.close()
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_requests_of_dropped_clients_do_not_count(strict):
    whole = b"GET /v1/models/kinds HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for _ in range(10):
        clients = [connect(strict.rest_url, PART) for _ in range(12)]
        clients.append(connect(strict.rest_url, whole))
        assert clients[-1].recv(100).startswith(b"HTTP/1.1 200")
        for client in clients:
            client.close()


def test_clients_that_are_answered_stay_and_more_hear_503(strict, rest_of):
    body = json.dumps({"signature_name": "slow", "inputs": 1.0})
    head = PART[:-1].replace(b"1000", str(len(body)).encode())
    busy = [connect(strict.rest_url, head + body.encode()) for _ in range(4)]
    time.sleep(0.3)
    assert rest_of(strict).post(instances=[1]).status_code == 503
    for client in busy:
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        client.close()


def test_clients_have_so_much_time(strict):
    whole = b"GET /v1/models/kinds HTTP/1.1\r\nHost: localhost\r\n\r\n"  # but no other
    start = time.monotonic()
    clients = [connect(strict.rest_url, sent) for sent in (b"", b"POST /v1/mod", PART, whole)]
    for client in clients:
        while not is_closed(client):  # an answer comes first
            assert time.monotonic() - start < 8
        assert time.monotonic() - start > 1


def test_largest_body(strict, rest_of):
    rest = rest_of(strict)
    text = "x" * (LARGEST - 100)
    assert rest.post(signature_name="text", instances=[text]).status_code == 200
    error = rest.fails(413, signature_name="text", instances=[text * 2])
    assert error == "The body has more than 10000 bytes, the most that is read."
    rest.fails(413, data=iter([b"x" * 6000] * 2))  # its length is not told before
    zipped = gzip.compress(json.dumps({"signature_name": "text", "instances": [text * 2]}).encode())
    headers = {"Content-Encoding": "gzip"}
    response = requests.post(rest.url + ":predict", zipped, headers=headers, timeout=10)
    assert (response.status_code, response.json()["error"]) == (413, error)


@pytest.mark.parametrize("path", ["kinds:predict", "kinds:explain"])
def test_answer_before_the_end_of_a_body_is_seen(strict, path):
    body = b"x" * 2**23
    head = PART[:-1].replace(b"1000", b"%d\r\nConnection: close" % len(body))
    with connect(strict.rest_url, head.replace(b"kinds:predict", path.encode())) as client:
        client.sendall(body)
        status = client.recv(12)
    assert status == (b"HTTP/1.1 413" if path == "kinds:predict" else b"HTTP/1.1 400")


def test_a_body_of_two_lengths_is_no_two_requests(strict):
    second = b"GET /v1/models/kinds HTTP/1.1\r\nHost: localhost\r\n\r\n"
    head = PART[:-1].replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    with connect(strict.rest_url, head + b"0\r\n\r\n" + second) as client:
        answer = b""
        while part := client.recv(1000):
            answer += part
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1
    assert b"both Content-Length and Transfer-Encoding" in answer


def test_all_bodies_together(strict, rest_of, grpc_of, monkeypatch):
    monkeypatch.setattr(work_limits.BodyMemory, "free", 1000)
    rest, stubs = rest_of(strict), grpc_of(strict)
    long = {"signature_name": "text", "instances": ["x" * 5000]}
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "kinds", "text"
    request.inputs["text"].CopyFrom(tf.make_tensor_proto(["x" * 5000]))
    head = PART[:-1].replace(b"1000", b"9990")
    half = [connect(strict.rest_url, head + b" " * 9900) for _ in range(2)]
    time.sleep(0.3)
    response = rest.post(**long)
    assert (response.status_code, response.headers["Retry-After"]) == (429, "1")
    assert "together may have 20000 bytes" in response.json()["error"]
    zipped = gzip.compress(json.dumps(long).encode())
    headers = {"Content-Encoding": "gzip"}
    assert requests.post(rest.url + ":predict", zipped, headers=headers).status_code == 429
    with pytest.raises(grpc.RpcError) as caught:
        stubs.prediction.Predict(request, timeout=20)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert rest.post(instances=[1]).status_code == 200  # small
    for client in half:
        client.close()
    time.sleep(0.3)
    assert rest.post(**long).status_code == 200
    assert stubs.prediction.Predict(request, timeout=20).outputs["length"].int_val == [5000]
    stubs.channel.close()


def test_most_rows(strict, rest_of, grpc_of):
    rest, stubs = rest_of(strict), grpc_of(strict)
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "kinds"
    for number in (3, 4):
        request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.zeros(number, np.float32)))
        for body in ({"instances": [0] * number}, {"inputs": {"x": [0] * number}}):
            if number == 3:
                assert rest.post(**body).status_code == 200
            else:
                assert "has 4 rows, but this server takes at most 3 (max_rows=3)" in rest.fails(
                    400, **body
                )
    assert "has 4 rows" in rest.fails(400, ":classify", examples=[{}] * 4)
    with pytest.raises(grpc.RpcError) as caught:
        stubs.prediction.Predict(request, timeout=20)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    request = classification_pb2.ClassificationRequest()
    request.model_spec.name = "kinds"
    request.input.example_list.examples.extend([tf.train.Example()] * 4)
    with pytest.raises(grpc.RpcError, match="has 4 rows"):
        stubs.prediction.Classify(request, timeout=20)
    stubs.channel.close()


def test_most_strings_in_rows(saved_models):
    model = SavedModel(saved_models / "kinds" / "7", max_rows=3)
    model.check_rows(3, strings=48)
    with pytest.raises(ServingError, match="has 49 strings, but this server takes at most 48"):
        model.check_rows(1, strings=49)


@pytest.mark.parametrize(("rows", "more"), [(1, 0), (1, 1), (64, 0), (64, 1)])
def test_texts_that_outlast_deadlines_are_refused(saved_models, rows, more):
    model = SavedModel(saved_models / "kinds" / "7")
    texts = np.array([b"x" * (2**24 // rows)] * rows, object)
    texts[-1] += b"x" * more
    if more:
        message = f"Input text has strings of {2**24 + 1} bytes, .* reads at most {2**24} in a"
        with pytest.raises(ServingError, match=message):
            model.run("text", {"text": texts})
    else:
        assert model.run("text", {"text": texts})["length"].sum() == 2**24


def test_one_long_text_does_not_widen_many_rows(saved_models):
    model = SavedModel(saved_models / "kinds" / "7")
    for rows in (127, 129):
        texts = np.array([b"x" * 2**21, *[b""] * (rows - 1)], object)
        if rows < 128:
            assert model.run("text", {"text": texts})["length"].sum() == 2**21
        else:
            with pytest.raises(ServingError, match="129 rows, and one string of 2097152 bytes"):
                model.run("text", {"text": texts})


def test_streams_leave_others_their_threads(saved_models, rest_of, monkeypatch):
    goes_on, running = threading.Event(), threading.Semaphore(0)

    def stream(self, document):
        running.release()
        goes_on.wait(20)
        yield {"done": True}

    monkeypatch.setattr(SavedModel, "stream", stream)
    with Server(saved_models / "kinds") as server, ThreadPoolExecutor(40) as pool:
        rest = rest_of(server)
        streams = [pool.submit(rest.post, ":stream", prompt="a") for _ in range(40)]
        for _ in range(STREAM_THREADS):
            assert running.acquire(timeout=10)
        assert rest.post(instances=[1]).json() == {"predictions": [2.5]}
        assert not running.acquire(blocking=False) and not any(each.done() for each in streams)
        goes_on.set()
        assert {each.result().text for each in streams} == {'data: {"done": true}\n\n'}


@pytest.mark.slow
def test_slow_requests_leave_threads_to_other_models(saved_models, rest_of):
    folders = {"kinds": saved_models / "kinds", "other": saved_models / "kinds"}
    with Server(folders) as server, ThreadPoolExecutor(REST_THREADS) as pool:
        slow, other = rest_of(server), rest_of(server, "other")
        asked = [
            pool.submit(slow.post, signature_name="slow", inputs=1.5) for _ in range(REST_THREADS)
        ]
        time.sleep(0.4)
        assert other.post(instances=[1]).json() == {"predictions": [2.5]}
        assert not any(each.done() for each in asked)
        assert {each.result().status_code for each in asked} == {200}


def test_largest_message(strict, grpc_of):
    stubs = grpc_of(strict)
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "kinds"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.zeros(LARGEST, np.float32)))
    with pytest.raises(grpc.RpcError) as caught:
        stubs.prediction.Predict(request, timeout=20)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    stubs.channel.close()


@pytest.mark.parametrize(
    "limit", ["max_request_bytes", "max_connections", "request_timeout", "max_rows"]
)
def test_wrong_limits(saved_models, limit):
    with pytest.raises(ValueError, match=re.escape(f"{limit}=0: pass a number above 0")):
        Server(saved_models / "kinds", **{limit: 0})
    with pytest.raises(ValueError, match=r"allowed_hosts='a': pass a list of names, \['a'\]"):
        Server(saved_models / "kinds", allowed_hosts="a")


@pytest.mark.slow
@pytest.mark.parametrize("is_stopped", [True, False])
def test_requests_that_outlast_the_drain(saved_models, rest_of, grpc_of, monkeypatch, is_stopped):
    monkeypatch.setattr("keras_lm.serving.server.GRACE", 0.5)
    if not is_stopped:  # as in an operation that does not end
        monkeypatch.setattr("keras_lm.serving.callers.Caller.mark", lambda *_: [])
    answers = {}
    server = Server(saved_models / "kinds").start()

    def over_rest():
        answers["rest"] = rest_of(server).post(signature_name="slow", inputs=8.0)

    def over_grpc():
        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = "kinds", "slow"
        request.inputs["seconds"].CopyFrom(tf.make_tensor_proto(8.0, tf.float64))
        stubs = grpc_of(server)
        try:
            stubs.prediction.Predict(request, timeout=60)
        except grpc.RpcError as error:
            answers["grpc"] = error.code()
        stubs.channel.close()

    threads = [threading.Thread(target=ask) for ask in (over_rest, over_grpc)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    start = time.monotonic()
    assert server.stop() is is_stopped
    assert time.monotonic() - start < 3
    for thread in threads:
        thread.join()
    assert answers["rest"].status_code == 503
    assert answers["rest"].json() == {"error": "The server is shutting down."}
    if is_stopped:
        assert answers["grpc"] is grpc.StatusCode.UNAVAILABLE
    else:
        assert answers["grpc"] in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)


# === Which `Host` headers a server answers to ===

NAMED = ["localhost", "LOCALHOST:8501", "127.0.0.1:80", "[::1]:8501", "my.host:1", "a.example.com"]
ADDRESSES = ["10.0.0.1:8501", "[fe80::1]:8501", f"{socket.gethostname()}:8501"]
OTHERS = [
    "",
    "evil.com",
    "evil.com:8501",
    "localhost.evil.com",
    "[::1",
    "127.0.0.1.evil.com",
    "x@y",
]


@pytest.mark.parametrize("host", ["my.host", "0.0.0.0"])
def test_names_of_a_server(host):
    hosts = Hosts(host, ["my.host", "*.example.com"])
    assert [name for name in NAMED if name not in hosts] == []
    assert [name for name in OTHERS if name in hosts] == []
    # At all addresses, only the names are checked: who asks for an address reaches no other.
    assert [name for name in ADDRESSES if name in hosts] == (ADDRESSES * (host == "0.0.0.0"))


def test_requests_for_another_host_are_refused(server, rest):
    for url in (server.rest_url, rest.url):
        response = requests.get(url, headers={"Host": "evil.com"}, timeout=10)
        assert response.status_code == 400
        assert "Host 'evil.com' is not a name of this server" in response.json()["error"]
        own = {"Host": server.rest_url.replace("http://127.0.0.1", "localhost")}
        assert requests.get(url, headers=own, timeout=10).status_code == 200
