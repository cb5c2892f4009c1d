"""Keys: where they are from, what is open without one, and that none gets out."""

import http.client
import json
import logging
import os
import threading
import time

import grpc
import pytest
import requests
from click.testing import CliRunner

from keras_lm.cli import main
from keras_lm.serving import Server
from keras_lm.serving.client import Client, ServerError
from keras_lm.serving.keys import LARGEST_FILE, Keys, key_of_environment, parse_keys
from keras_lm.serving.launch import LaunchError, Plan, launch

KEY, OTHER, WRONG = "first-key.0123456789", "second~key+/==", "third-key-0123456789"


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def guarded(saved_models, tmp_path_factory):
    """A server that asks for a key, and the file of its keys."""
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text(f"{KEY}\n\n{OTHER}\r\n")
    models = {"numbers": saved_models / "numbers"}
    with Server(models, api_keys=path, cors=True, poll_seconds=0.05) as server:
        server.key_file = path
        yield server


# === Where keys are from ===


def test_a_key_on_each_line():
    assert parse_keys(f"{KEY}\r\n\n{OTHER}", "it") == [KEY, OTHER]
    keys = Keys([KEY, OTHER])
    assert keys.identify(f"Bearer {KEY}") == keys.identify(f"bearer  {KEY} ")
    assert keys.identify(f"Bearer {KEY}") != keys.identify(f"Bearer {OTHER}") is not None
    wrong = (None, "", KEY, f"Basic {KEY}", "Bearer", "Bearer ", f"Bearer {KEY}x", "Bearer \ud800")
    for header in wrong:
        assert keys.identify(header) is None
    assert KEY not in repr(vars(keys))


@pytest.mark.parametrize(
    "data, words",
    [
        (b"", "has no key: put one on each line"),
        (b"\n\r\n", "has no key"),
        (b"abc\nx y\n", "line 2, is not a key"),
        (b"abc \n", "line 1, is not a key"),
        (b"a\x00b", "line 1, is not a key"),
        ("schlüssel".encode(), "line 1, is not a key"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"a" * (LARGEST_FILE + 1), "it is not a file of keys"),
    ],
)
def test_files_without_keys_are_refused_by_name(tmp_path, data, words):
    path = tmp_path / "keys"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=words) as caught:
        Keys(path)
    assert str(path) in str(caught.value)
    assert "x y" not in str(caught.value)
    assert "schl" not in str(caught.value)


def test_keys_of_a_server_are_a_list_or_a_path():
    for wrong in ("secret-word", b"secret-word", 3):
        with pytest.raises(ValueError, match="pass a list of keys, or a pathlib") as caught:
            Keys(wrong)
        assert "secret-word" not in str(caught.value)
    with pytest.raises(ValueError, match="not a string"):
        Keys([b"secret-word"])
    with pytest.raises(ValueError, match="has no key"):
        Keys([])


def test_a_pipe_is_read_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writing = threading.Thread(target=(tmp_path / "pipe").write_text, args=[KEY])
    writing.start()
    keys = Keys(tmp_path / "pipe")
    writing.join()
    keys.poll()  # would wait for another writer
    assert keys.identify(f"Bearer {KEY}")


def test_the_command_reads_keys_before_a_model(tmp_path, monkeypatch):
    path = tmp_path / "keys"
    path.write_text("a b\n")

    def fails(*arguments, **environment):
        result = CliRunner(env=environment).invoke(main, ["serve", "nowhere", *arguments])
        assert result.exit_code == 2
        return " ".join(result.output.split())

    assert "line 1, is not a key" in fails("--api-key", f"@{path}")
    assert "No such file" in fails("--api-key", f"@{path}s")
    message = fails("--api-key", "secret-word")
    assert "every user of this machine can read a key on the command line" in message
    assert "secret-word" not in message
    assert "KERAS_LM_API_KEY has no key" in fails(KERAS_LM_API_KEY="")
    path.write_text(KEY)
    option, variable = ["--api-key", f"@{path}"], {"KERAS_LM_API_KEY": KEY}
    for arguments, environment in ((option, {}), ([], variable)):
        result = CliRunner(env=environment).invoke(main, ["serve", "nowhere", *arguments])
        assert "There is no folder nowhere" in result.output  # what comes next

    monkeypatch.setenv("KERAS_LM_API_KEY", f"{KEY}\n{OTHER}")
    assert key_of_environment() == KEY


def test_tf_serving_is_not_started_without_the_keys(saved_models):
    plan = Plan({"numbers": saved_models / "numbers"}, limits={"api_keys": Keys([KEY])})
    with pytest.raises(LaunchError, match="TensorFlow Serving does not check keys"):
        launch(plan, "binary", lambda _: None)
    assert KEY not in repr(plan)


# === What a server answers ===


def test_rest_needs_a_key(guarded):
    url = f"{guarded.rest_url}/v1/models/numbers"
    for headers in ({}, bearer(WRONG), {"Authorization": f"Basic {KEY}"}):
        for response in (
            requests.get(url, headers=headers, timeout=10),
            requests.post(f"{url}:predict", json={"instances": [1]}, headers=headers, timeout=10),
            requests.get(f"{guarded.rest_url}/nowhere", headers=headers, timeout=10),
            *(
                requests.get(f"{guarded.rest_url}/{path}", headers=headers, timeout=10)
                for path in ("page.json", "metrics", "openapi.json", "docs", "Healthz", "healthz/")
            ),
            requests.post(f"{guarded.rest_url}/healthz", headers=headers, timeout=10),
        ):
            assert response.status_code == 401, response.url
            assert response.headers["www-authenticate"] == "Bearer"
            assert response.json().keys() == {"error"}
    for key in (KEY, OTHER):
        body = {"instances": [1]}
        answer = requests.post(f"{url}:predict", json=body, headers=bearer(key), timeout=10)
        assert answer.json() == {"predictions": [4.0]}
    missing = requests.get(f"{guarded.rest_url}/nowhere", headers=bearer(KEY), timeout=10)
    assert missing.status_code == 404


def test_two_headers_are_refused(guarded):
    def status(*values):
        host = guarded.rest_url.removeprefix("http://")
        connection = http.client.HTTPConnection(host, timeout=10)
        connection.putrequest("GET", "/v1/models/numbers")
        for value in values:
            connection.putheader("authorization", value)
        connection.endheaders()
        answered = connection.getresponse().status
        connection.close()
        return answered

    assert status(f"bearer {KEY}") == 200
    assert status(f"Bearer {WRONG}", f"Bearer {KEY}") == status(*[f"Bearer {KEY}"] * 2) == 401


def test_errors_on_openais_routes_have_its_form(guarded):
    for path in ("embeddings", "completions", "models"):
        method = "GET" if path == "models" else "POST"
        response = requests.request(method, f"{guarded.rest_url}/v1/{path}", timeout=10)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        error = response.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert error["code"] == "invalid_api_key"
    listed = requests.get(f"{guarded.rest_url}/v1/models", headers=bearer(KEY), timeout=10)
    assert listed.json()["data"][0]["id"] == "numbers"


def test_what_is_open(guarded):
    for path in ("/healthz", "/readyz"):
        assert requests.get(guarded.rest_url + path, timeout=10).status_code == 200
    # A browser asks whether it may send the header.
    url = f"{guarded.rest_url}/v1/models/numbers:predict"
    answer = requests.options(url, timeout=10)
    assert answer.status_code == 200
    assert "Authorization" in answer.headers["access-control-allow-headers"]


def test_the_page_asks_for_the_key(guarded):
    html = requests.get(guarded.rest_url, timeout=10).text
    data = json.loads(html.split('id="config">')[1].split("</script>")[0])
    assert data.keys() == {"attention_page", "needs_key"}
    assert data["needs_key"] is True
    answer = requests.get(f"{guarded.rest_url}/page.json", headers=bearer(KEY), timeout=10)
    assert answer.json()["models"] == ["numbers"]
    assert answer.json()["grpc_address"] == guarded.grpc_address


def test_clients_have_a_key_over_both_protocols(guarded, tmp_path, monkeypatch):
    host = guarded.rest_url.split("/")[2].split(":")[0]
    (tmp_path / "netrc").write_text(f"machine {host} login a password b\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for url in (guarded.rest_url, f"grpc://{guarded.grpc_address}"):
        with Client(url, "numbers", api_key=OTHER) as client:
            assert client.predict({"x": [1, 2]})["y"].tolist() == [4, 4]
            assert client.status()[0]["state"] == "AVAILABLE"
        for key in (None, WRONG):
            with Client(url, "numbers", api_key=key) as client:
                with pytest.raises(ServerError, match="Pass api_key=") as caught:
                    client.predict({"x": [1]})
                assert caught.value.code == "UNAUTHENTICATED"
                assert WRONG not in str(caught.value)
    with pytest.raises(ValueError, match="api_key has other characters"):
        Client(guarded.rest_url, "numbers", api_key="a b")


def test_keys_are_in_no_log_measure_or_error(guarded, caplog):
    caplog.set_level(logging.DEBUG)
    url = f"{guarded.rest_url}/v1/models/numbers:predict"
    for key in (KEY, WRONG):
        answer = requests.post(url, json={"x": 1}, headers=bearer(key), timeout=10)
        assert key not in answer.text + str(answer.headers)
        stub = grpc.insecure_channel(guarded.grpc_address)
        call = stub.unary_unary("/tensorflow.serving.PredictionService/Predict")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"", metadata=[("authorization", f"Bearer {key}")], timeout=10)
        assert key not in str(caught.value)
        stub.close()
    ours = [record for record in caplog.records if record.name.startswith("keras_lm")]
    assert ours
    assert not [r for r in ours if KEY in r.getMessage() or WRONG in r.getMessage()]
    measures = requests.get(f"{guarded.rest_url}/metrics", headers=bearer(KEY), timeout=10).text
    assert KEY not in measures
    assert WRONG not in measures
    assert 'keras_lm_requests_total{code="401",method="other",model="",protocol="rest"}' in measures
    assert 'code="UNAUTHENTICATED",method="other",model="",protocol="grpc"' in measures


def test_a_refused_call_of_grpc_sends_no_message(guarded):
    with grpc.insecure_channel(guarded.grpc_address) as channel:
        call = channel.stream_unary("/tensorflow.serving.PredictionService/Predict")

        def never():
            time.sleep(30)
            yield b""

        begin = time.monotonic()
        with pytest.raises(grpc.RpcError) as caught:
            call(never(), timeout=20)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert time.monotonic() - begin < 10


def test_keys_are_replaced_while_it_runs(guarded):
    """The last test: a wrong file changes nothing, a right one takes over."""
    url = f"{guarded.rest_url}/v1/models/numbers"

    def status(key):
        return requests.get(url, headers=bearer(key), timeout=10).status_code

    guarded.key_file.write_text("not a key\n")
    time.sleep(0.3)
    assert status(KEY) == 200
    guarded.key_file.write_text(f"{WRONG}\n")
    end = time.monotonic() + 10
    while status(WRONG) != 200:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert status(KEY) == 401
