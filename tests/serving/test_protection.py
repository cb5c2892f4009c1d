"""Certificates, how often and how many at a time clients may ask, and logs as JSON."""

import concurrent.futures
import io
import json
import logging
import socket
import subprocess
import sys
import time

import grpc
import pytest
import requests
import urllib3

from keras_lm.serving import Server, logs, monitoring
from keras_lm.serving.access import MOST_CLIENTS, Rate, network_of
from keras_lm.serving.client import Client, ServerError
from keras_lm.serving.errors import ServingError


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The files of a certificate for 127.0.0.1, signed by itself, and of its key."""
    folder = tmp_path_factory.mktemp("certificate")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    return certificate, key


# === Certificates ===


def test_both_protocols_are_encrypted(saved_models, pair):
    certificate, key = pair
    models = {"numbers": saved_models / "numbers"}
    with Server(models, certificate=certificate, private_key=key) as server:
        assert server.rest_url.startswith("https://127.0.0.1:")
        for url in (server.rest_url, f"grpcs://{server.grpc_address}"):
            with Client(url, "numbers", certificate=certificate) as client:
                assert client.predict({"x": [1, 2]})["y"].tolist() == [4, 4]
            with Client(url, "numbers", timeout=5) as client, pytest.raises(ServerError):
                client.predict({"x": [1]})  # nobody vouches for it
        plain = server.rest_url.replace("https", "http")
        with pytest.raises((requests.ConnectionError, urllib3.exceptions.HTTPError)):
            requests.get(f"{plain}/healthz", timeout=5)
        page = requests.get(server.rest_url, verify=str(certificate), timeout=10).text
        assert '"grpc_scheme": "grpcs"' in page


def test_a_client_without_a_handshake_is_closed(saved_models, pair, monkeypatch):
    monkeypatch.setattr("keras_lm.serving.http_server.HANDSHAKE", 0.3)
    certificate, key = pair
    models = {"numbers": saved_models / "numbers"}
    with Server(models, certificate=certificate, private_key=key) as server:
        host, port = server.rest_url.removeprefix("https://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as idle:
            assert idle.recv(1) == b""


def test_files_that_are_no_pair(saved_models, pair, tmp_path):
    certificate, key = pair

    def fails(kind, words, **files):
        with pytest.raises(kind, match=words):
            Server(saved_models / "numbers", **files)

    fails(ValueError, "private_key=None: .* go together", certificate=certificate)
    fails(ValueError, "certificate=None: .* go together", private_key=key)
    missing = tmp_path / "missing.pem"
    fails(FileNotFoundError, "certificate=.*missing", certificate=missing, private_key=key)
    fails(ValueError, "are not a certificate and its key", certificate=key, private_key=certificate)
    command = ["openssl", "ec", "-aes128", "-passout", "pass:secret", "-in", str(key)]
    subprocess.run([*command, "-out", str(missing)], check=True, capture_output=True)
    words = "private_key=.* is encrypted"
    fails(ValueError, words, certificate=certificate, private_key=missing)
    with pytest.raises(FileNotFoundError):
        Client("https://localhost:1", "numbers", certificate=tmp_path / "nowhere")


# === How often ===


def test_a_client_may_ask_so_often_a_minute(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("keras_lm.serving.access.time.monotonic", lambda: now[0])
    rate = Rate(3)
    for _ in range(3):
        rate.count("a")
    with pytest.raises(ServingError, match=r"3 for each client, .* in 20 s\.") as caught:
        rate.count("a")
    assert caught.value.retry_after == 20
    rate.count("b")  # has its own
    now[0] = 19
    with pytest.raises(ServingError, match=r"in 1 s\."):
        rate.count("a")
    now[0] = 20
    rate.count("a")
    with pytest.raises(ServingError):
        rate.count("a")
    now[0] = 1000  # not more than a minute's number
    for _ in range(3):
        rate.count("a")
    with pytest.raises(ServingError):
        rate.count("a")


def test_few_clients_are_remembered():
    rate = Rate(1)
    for number in range(MOST_CLIENTS + 50):
        rate.count(str(number))
    assert len(rate._clients) == MOST_CLIENTS
    rate.count("0")
    with pytest.raises(ServingError):
        rate.count(str(MOST_CLIENTS + 49))


def test_who_a_client_is():
    assert network_of("10.1.2.3") == "10.1.2.3"
    assert network_of("2001:db8:1:2:3:4:5:6") == network_of("%5B2001:db8:1:2::1%5D")
    assert network_of("2001:db8:1:2::") != network_of("2001:db8:1:3::")
    assert network_of("unix") == "unix"


def test_too_many_requests_are_refused(saved_models):
    models = {"numbers": saved_models / "numbers"}
    with Server(models, requests_per_minute=2, api_keys=["one", "two"]) as server:

        def ask(key):
            headers = {"Authorization": f"Bearer {key}"}
            return requests.get(f"{server.rest_url}/v1/models", headers=headers, timeout=10)

        assert [ask(key).status_code for key in ("one", "one", "two", "one")] == [
            200,
            200,
            200,
            429,
        ]
        answer = ask("one")
        assert int(answer.headers["retry-after"]) in range(28, 31)
        assert "2 for each client" in answer.json()["error"]["message"]
        assert ask("other").status_code == 401
        assert requests.get(f"{server.rest_url}/readyz", timeout=10).status_code == 200
        # Over gRPC, it is the same number.
        with Client(f"grpc://{server.grpc_address}", "numbers", api_key="two") as client:
            client.status()
            with pytest.raises(ServerError, match="2 for each client") as caught:
                client.status()
            assert caught.value.code == "RESOURCE_EXHAUSTED"
    with Server(models, requests_per_minute=1) as server:
        assert requests.get(f"{server.rest_url}/metrics", timeout=10).status_code == 200
        assert requests.get(f"{server.rest_url}/metrics", timeout=10).status_code == 429
        words = "1 for each client"
        with (
            Client(f"grpc://{server.grpc_address}", "numbers") as client,
            pytest.raises(ServerError, match=words),
        ):
            client.status()


def test_the_health_check_speaks_http_and_https(saved_models, pair, repository, monkeypatch):
    def check(server):
        port = server.rest_url.rsplit(":", 1)[1]
        command = [sys.executable, repository / "deploy" / "ready", port]
        return subprocess.run(command, capture_output=True, text=True)

    models = {"numbers": saved_models / "numbers"}
    certificate, key = pair
    with Server(models, certificate=certificate, private_key=key) as server:
        assert check(server).returncode == 0
    with Server(models, api_keys=["one"]) as server:
        assert check(server).returncode == 0
        monkeypatch.setattr(monitoring, "not_ready", lambda models: ["numbers"])
        refused = check(server)
        assert refused.returncode == 1 and refused.stderr.startswith("503: No version answers")
    assert check(server).returncode != 0


def test_few_requests_wait(saved_models, rest_of, monkeypatch):
    monkeypatch.setattr("keras_lm.serving.server.MODEL_THREADS", 1)
    with Server(saved_models / "kinds", max_waiting=1) as server:
        kinds = rest_of(server)

        def ask(seconds):
            return kinds.post(signature_name="slow", inputs=seconds)

        with concurrent.futures.ThreadPoolExecutor(3) as threads:
            first = threads.submit(ask, 1.5)
            time.sleep(0.4)
            second = threads.submit(ask, 0.1)
            time.sleep(0.4)
            third = ask(0.1)
            assert third.status_code == 429
            assert third.headers["retry-after"] == "1"
            assert third.json()["error"].startswith("The queue for this model is full (1 waiting)")
            assert first.result().status_code == second.result().status_code == 200
        assert ask(0.1).status_code == 200  # places are free again


def test_requests_have_few_tokens_together(saved_models, rest_of, grpc_of):
    with Server(saved_models / "kinds", max_concurrent_tokens=1) as server:
        kinds = rest_of(server)

        def ask(seconds):
            return kinds.post(signature_name="slow", inputs=seconds)

        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            first = threads.submit(ask, 1.5)
            time.sleep(0.4)
            second = ask(0.1)
            assert second.status_code == 429 and second.headers["retry-after"] == "1"
            assert "1 tokens together (max_concurrent_tokens)" in second.json()["error"]
            with (
                Client(f"grpc://{server.grpc_address}", "kinds") as client,
                pytest.raises(ServerError, match="max_concurrent_tokens") as caught,
            ):
                client.predict({"seconds": 0.1}, signature="slow")
            assert caught.value.code == "RESOURCE_EXHAUSTED"
            assert first.result().status_code == 200
        assert ask(0.1).status_code == 200
    with pytest.raises(ValueError, match="max_concurrent_tokens=0"):
        Server(saved_models / "kinds", max_concurrent_tokens=0)


# === Logs ===


@pytest.fixture
def lines():
    """`lines()` returns what has been logged as JSON since the test began."""
    stream, logger = io.StringIO(), logging.getLogger("keras_lm")
    before = logger.handlers, logger.level, logger.propagate
    logs.write_json(stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logger.handlers, logger.propagate = before[0], before[2]
    logger.setLevel(before[1])
    logs.requests_logger.disabled = True


def test_requests_are_logged_without_their_texts(saved_models, rest_of, grpc_of, lines):
    with Server({"kinds": saved_models / "kinds"}, api_keys=["secret-key"]) as server:
        assert "is available" in lines()[-1]["message"]
        url = f"{server.rest_url}/v1/models/kinds:predict?secret-text=1"
        headers = {"Authorization": "Bearer secret-key", "X-Request-Id": "a-7"}
        body = {"signature_name": "text", "inputs": ["secret-text"]}
        answer = requests.post(url, json=body, headers=headers, timeout=10)
        assert answer.headers["x-request-id"] == "a-7"
        wrong = {**headers, "X-Request-Id": "secret text"}
        url = f"{server.rest_url}/v1/models/secret-text:predict"
        answer = requests.post(url, json={"inputs": ["secret-text"]}, headers=wrong, timeout=10)
        assert len(answer.headers["x-request-id"]) == 32
        with grpc.insecure_channel(server.grpc_address) as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ServerMetadata")
            metadata = [("authorization", "Bearer secret-key"), ("x-request-id", "b-8")]
            call(b"", metadata=metadata, timeout=10)
            with pytest.raises(grpc.RpcError):
                call(b"", metadata=[("authorization", "Bearer secret-text")], timeout=10)
        requested = [line for line in lines() if line["message"] == "request"]
    first, second, third, fourth = requested
    assert first["time"].endswith("Z")
    assert first["milliseconds"] > 0
    known = {
        key: first[key] for key in ("level", "request_id", "protocol", "route", "model", "code")
    }
    assert list(known.values()) == ["info", "a-7", "rest", "predict", "kinds", "200"]
    assert (second["route"], second["model"], second["code"]) == ("predict", "", "404")
    assert second["request_id"] == answer.headers["x-request-id"]
    assert (third["protocol"], third["route"], third["code"]) == ("grpc", "ServerMetadata", "OK")
    assert third["request_id"] == "b-8"
    assert fourth["code"] == "UNAUTHENTICATED"
    assert "secret" not in json.dumps(lines())


def test_errors_are_logged_without_their_message(lines):
    try:
        raise ValueError("secret-text")
    except ValueError:
        logging.getLogger("keras_lm.serving").exception("A request failed.")
    (line,) = lines()
    assert line["exception"] == "ValueError"
    assert "test_protection.py" in line["places"][0]
    assert line["level"] == "error"
    assert "secret" not in json.dumps(line)
