"""The server as a whole: its arguments and errors, bad clients, and a task's own export."""

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
import requests

from keras_lm.models import BertBackbone
from keras_lm.serving import Server
from keras_lm.tasks import TextClassifier
from keras_lm.tokenizers import WordPieceTokenizer

# Arguments


def test_addresses_and_names(server, saved_models):
    assert server.rest_url.startswith("http://127.0.0.1:")
    assert server.grpc_address.startswith("127.0.0.1:")
    assert server.model_names == ["kinds", "examples"]


def test_names_of_folders(saved_models, monkeypatch):
    monkeypatch.chdir(saved_models / "kinds")
    assert Server(".").model_names == ["kinds"]
    assert Server({"other": "."}).model_names == ["other"]


def test_folders_that_cannot_be_served(saved_models, tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Server(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="has no versions"):
        Server(tmp_path)
    with pytest.raises(ValueError, match="folders is a object: pass the path"):
        Server(object())
    (tmp_path / "keras_lm.json").touch()
    with pytest.raises(FileNotFoundError, match="it is a preset, whose export is served"):
        Server(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match=r"is a file.*or a \.tflite"):
        Server(tmp_path / "file")
    with pytest.raises(ValueError, match=r"is one version.*pass '.*kinds'"):
        Server(saved_models / "kinds" / "7")
    with pytest.raises(ValueError, match="both be called 'kinds'"):
        Server([saved_models / "kinds", saved_models / "kinds"])
    for name in ("a/b", "a:b", "a\n", ""):
        with pytest.raises(ValueError, match="cannot be a model's name: pass one without /, :"):
            Server({name: saved_models / "kinds"})
    with pytest.raises(ValueError, match="folders is empty"):
        Server([])
    with pytest.raises(ValueError, match="poll_seconds=0"):
        Server(saved_models / "kinds", poll_seconds=0)


def test_model_that_does_not_load(tmp_path):
    (tmp_path / "broken" / "1").mkdir(parents=True)
    server = Server(tmp_path / "broken")
    with pytest.raises(RuntimeError, match=r"broken \(version 1: NOT_FOUND: Could not find Saved"):
        server.start()
    address = server.rest_url.removeprefix("http://").split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=5)


@pytest.mark.parametrize("port", ["rest_port", "grpc_port"])
def test_port_is_taken(saved_models, port):
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with pytest.raises(OSError, match=f"{port}={taken}: cannot listen there"):
            Server(saved_models / "numbers", **{port: taken}).start()
    with pytest.raises(ValueError, match=f"{port}=1000000: pass a number from 1 to 65535"):
        Server(saved_models / "numbers", **{port: 10**6})


def test_two_servers_never_share_a_port(server, saved_models):
    port = int(server.grpc_address.rpartition(":")[2])
    with pytest.raises(OSError, match="grpc_port"):
        Server(saved_models / "numbers", grpc_port=port).start()


def test_start_stop_wait(saved_models):
    server = Server(saved_models / "numbers")
    server.stop()
    assert server.start() is server
    with pytest.raises(RuntimeError, match="is already running"):
        server.start()
    waiting = threading.Thread(target=server.wait)
    waiting.start()
    url = server.rest_url
    assert requests.get(f"{url}/v1/models/numbers").status_code == 200
    server.stop()
    waiting.join(10)
    assert not waiting.is_alive()
    with pytest.raises(requests.ConnectionError):
        requests.get(url, timeout=5)
    with server:  # the same port again
        assert server.rest_url == url
        assert requests.get(f"{url}/v1/models/numbers").status_code == 200


def test_quiet_by_default(server, rest, caplog, capfd):
    with caplog.at_level("INFO"):
        rest.post(instances=[1])
        rest.fails(400, data="{")
    assert not [r for r in caplog.records if r.name.startswith(("keras_lm", "uvicorn"))]
    assert capfd.readouterr() == ("", "")


# Bad clients


@pytest.fixture
def still_well(server, rest):
    """Check after a test that the server answers, and did not grow."""
    process = psutil.Process()
    rest.post(instances=[1])
    before = process.memory_info().rss
    yield
    assert rest.post(instances=[1]).json() == {"predictions": [2.5]}
    assert process.memory_info().rss - before < 500 * 2**20
    workers = [t for t in threading.enumerate() if t.name.startswith("keras-lm-rest")]
    assert len(workers) <= 33


def connect(server):
    host, port = server.rest_url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


HEAD = b"POST /v1/models/kinds:predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"


@pytest.mark.usefixtures("still_well")
def test_clients_that_hang_up(server):
    body = json.dumps({"signature_name": "slow", "inputs": 0.2}).encode()
    for sent in [
        b"",
        b"POST /v1/mod",
        HEAD % 1000 + b'{"instances": [1',  # half of the body
        HEAD % len(body) + body,  # gone before the answer
        b"\x16\x03\x01\x02\x00\x01\x00" * 10,  # speaks TLS
        b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 100_000,
        b"POST /v1/models/kinds:predict HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/models/kinds:predict HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ]:
        for _ in range(5):
            with connect(server) as client:
                client.sendall(sent)


@pytest.mark.usefixtures("still_well")
def test_clients_that_are_slow(server, rest):
    slow = [connect(server) for _ in range(100)]
    for client in slow:
        client.sendall(b"POST /v1/models/kinds:predict HTT")
    half = [connect(server) for _ in range(100)]
    for client in half:
        client.sendall(HEAD % 1000 + b"{")
    assert rest.post(instances=[1]).status_code == 200
    for client in slow + half:
        client.close()


@pytest.mark.usefixtures("still_well")
def test_bodies_that_are_bombs(rest):
    million = 10**6
    assert "Nested too deeply" in rest.fails(400, data="[" * million)
    assert "Nested too deeply" in rest.fails(400, data='{"instances": ' + "[" * million)
    nested = "[" * 300 + "1" + "]" * 300
    rest.fails(400, data='{"instances": [' + nested + "]}")
    for depth in (700, 900, 940, 960, 980):  # near to where Python gives up
        nested = '{"a":' * depth + "1" + "}" * depth
        rest.fails(400, data='{"instances": [' + nested + "]}")
        rest.fails(400, ":classify", data='{"a": ' + nested + "}")
    assert "too big" in rest.fails(400, data='{"instances": [' + "9" * million + "]}")
    rest.fails(400, data='{"instances": [1e' + "9" * million + "]}")
    rest.fails(400, data='{"instances": ["' + "x" * million + '"]}')
    assert len(rest.fails(400, data='{"instances": 1, "more": "' + "x" * million + '"}')) < 1000
    rest.fails(400, data=b"\xff" * million)
    rest.fails(400, data=b"\0" * million)


@pytest.mark.usefixtures("still_well")
def test_long_strings(rest):
    text = "ü" * (5 * 2**20)
    answer = rest.post(signature_name="text", instances=[text]).json()["predictions"][0]
    assert answer["text"] == text
    assert answer["length"] == 10 * 2**20


@pytest.mark.usefixtures("still_well")
def test_many_clients_at_once(rest):
    def ask(number):
        return rest.post(instances=[number]).json()["predictions"]

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(ask, range(200)))
    assert answers == [[number / 2 + 2] for number in range(200)]


def test_small_answers_are_sent_at_once(rest):
    with requests.Session() as session:
        start = time.monotonic()
        for _ in range(100):
            session.post(rest.url + ":predict", '{"instances": [1]}', timeout=60)
        assert time.monotonic() - start < 3  # 40 ms each where TCP waits for more


@pytest.mark.slow
def test_status_is_told_while_models_run(rest, stubs):
    with ThreadPoolExecutor(4) as pool:
        slow = [pool.submit(rest.post, signature_name="slow", inputs=1.5) for _ in range(4)]
        time.sleep(0.2)
        start = time.monotonic()
        assert rest.get().status_code == 200
        assert not any(job.done() for job in slow)
        assert time.monotonic() - start < 1.2
        assert all(job.result().status_code == 200 for job in slow)


# A task


@pytest.mark.slow
@pytest.mark.eager
def test_export_of_a_task(tmp_path, rest_of):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film", "good", "bad", "##ly"]
    backbone = BertBackbone(len(vocabulary), 1, 2, 8, 16, max_sequence_length=16)
    task = TextClassifier(
        backbone,
        tokenizer=WordPieceTokenizer(vocabulary, lowercase=True),
        class_names=["no", "yes"],
    )
    task.export(tmp_path / "critic")
    texts = ["a good film", "badly", ""]
    expected = task.classify(texts)
    with Server(tmp_path / "critic") as server:
        rest = rest_of(server, "critic")
        rows = rest.post(instances=texts).json()["predictions"]
        columns = rest.post(inputs={"text": texts}).json()["outputs"]
        packed = {"token_ids": [[2, 5, 3]], "segment_ids": [[0] * 3], "padding_mask": [[1] * 3]}
        logits = rest.post(signature_name="tokens", inputs=packed).json()["outputs"]
        examples = [{"text": text} for text in texts]
        classes = rest.post(":classify", signature_name="classify", examples=examples).json()
        batchers = server._models._models["critic"].versions[1].served._batchers
        assert {"serving_default", "classify"} <= batchers.keys()
        assert "tokenize" not in batchers  # its width is that of the longest row

        def ask(text):
            return rest.post(instances=[text]).json()["predictions"][0]

        with ThreadPoolExecutor(12) as pool:  # from many clients, in batches
            rows += pool.map(ask, texts * 10)
    scores = np.tile(expected["scores"], [11, 1])
    np.testing.assert_allclose([row["scores"] for row in rows], scores, atol=1e-5)
    assert [row["labels"] for row in rows] == list(expected["labels"]) * 11
    rows = rows[:3]
    assert columns["labels"] == [row["labels"] for row in rows] == list(expected["labels"])
    assert np.shape(logits) == (1, 2)
    for row, label in zip(classes["results"], expected["labels"]):
        assert max(row, key=lambda pair: pair[1])[0] == label
