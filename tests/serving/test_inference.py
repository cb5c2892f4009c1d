"""A `.tflite` behind a server answers as the SavedModel of the same task."""

import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import requests

from keras_lm.serving import Client, Server
from keras_lm.serving.inference import LiteRTModel
from keras_lm.serving.launch import ENGINES, LaunchError, Plan, find_models, launch

pytest.importorskip("ai_edge_litert", reason="needs the extra litert")

TEXTS = ["a film", "", "film a a film", b"\xff\x00 a", "a"]


@pytest.fixture(scope="module")
def both(critic):
    """A server of the SavedModel and of the `.tflite`."""
    with Server([critic.folder, critic.tflite], num_interpreters=2) as running:
        yield running


def test_every_protocol_answers_as_of_the_saved_model(both, rest_of):
    assert both.model_names == ["exported", "critic"]
    saved, lite = (rest_of(both, name) for name in both.model_names)
    of_saved, of_lite = (
        r.get("/metadata").json()["metadata"]["signature_def"]["signature_def"]
        for r in (saved, lite)
    )
    assert of_lite.keys() == {"serving_default"}
    for side in ("inputs", "outputs"):
        kinds = [
            {
                name: (info["dtype"], [int(dim["size"]) for dim in info["tensor_shape"]["dim"]])
                for name, info in signatures["serving_default"][side].items()
            }
            for signatures in (of_saved, of_lite)
        ]
        assert kinds[0] == kinds[1]
    for texts in (TEXTS[:1], ["a"] * 3):
        rows = [r.post(instances=texts).json()["predictions"] for r in (saved, lite)]
        assert [row["labels"] for row in rows[1]] == [row["labels"] for row in rows[0]]
        assert [row["class_names"] for row in rows[1]] == [["bad", "good"]] * len(texts)
    text = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["a film"]}
    places = [f"{both.rest_url}/v2/models/{name}" for name in both.model_names]
    platforms = [requests.get(place, timeout=60).json()["platform"] for place in places]
    assert platforms == ["tensorflow_savedmodel", "litert"]
    labels = [{"name": "labels"}]
    rows = [
        requests.post(f"{place}/infer", json={"inputs": [text], "outputs": labels}, timeout=60)
        for place in places
    ]
    assert rows[0].json()["outputs"] == rows[1].json()["outputs"]
    for url in (both.rest_url, f"grpc://{both.grpc_address}"):
        with Client(url, "exported") as one, Client(url, "critic") as other:
            for number in (5, 1, 0, 4):  # batches of any size, after one another
                columns = {"text": np.array(TEXTS[:number], object)}
                expected, actual = one.predict(columns), other.predict(columns)
                np.testing.assert_array_equal(actual["labels"], expected["labels"])
                np.testing.assert_allclose(actual["scores"], expected["scores"], atol=1e-5)


def test_clients_at_once_get_their_own_answers(both, critic):
    texts = ["a film", "film", "a a a a a", ""] * 8
    expected = critic.task.classify(texts)["scores"]
    with ThreadPoolExecutor(8) as threads, Client(both.rest_url, "critic") as client:
        client.predict({"text": ["a"]})
        actual = list(
            threads.map(lambda text: client.predict({"text": [text]})["scores"][0], texts)
        )
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_what_it_cannot_answer_is_named(both, rest_of, critic):
    lite = rest_of(both, "critic")
    assert "not found in signature def" in lite.fails(400, signature_name="tokens", inputs=["a"])
    assert "is not of expected type: string" in lite.fails(400, inputs=[1])
    assert "to have shape" in lite.fails(400, inputs=[["a", "b"]])
    assert "1025 rows" in lite.fails(400, inputs=["a"] * 1025)
    refused = lite.fails(501, ":stream", prompt="a")
    assert "is a .tflite" in refused and "CausalLM as a SavedModel" in refused
    assert "inputs" in lite.fails(400, ":classify", examples=[{"text": "a"}])


def test_large_requests_run_in_parts(critic, monkeypatch):
    model = LiteRTModel(1, critic.tflite)
    sizes, run = [], model._pool.run
    monkeypatch.setattr(
        model._pool,
        "run",
        lambda name, inputs: sizes.append(len(inputs["text"])) or run(name, inputs),
    )
    answer = model.run("serving_default", {"text": np.array([b"a", b"film"] * 150, object)})
    assert sizes == [16] * 18 + [12]
    assert answer["scores"].shape == (300, 2)
    assert np.ptp(answer["scores"][::2], axis=0).max() < 1e-6


def test_a_replaced_file_is_taken_up_and_a_broken_one_is_not(critic, tmp_path):
    path = tmp_path / "critic.tflite"
    shutil.copy(critic.tflite, path)
    os.utime(path, (100, 100))
    with Server({"m": path}, poll_seconds=0.02) as server, Client(server.rest_url, "m") as client:
        assert client.status() == [{"version": 100, "state": "AVAILABLE", "error": ""}]

        def replace(content, seconds):
            new = tmp_path / "new"
            new.write_bytes(content)
            os.utime(new, (seconds, seconds))
            os.replace(new, path)

        def wait_for(version, state):
            end = time.monotonic() + 10
            while time.monotonic() < end:
                results = {each["version"]: each for each in client.status()}
                if results.get(version, {}).get("state") == state:
                    return results[version]
                time.sleep(0.02)
            raise AssertionError(client.status())

        replace(b"TFL3 nothing", 300)
        assert "cannot be loaded" in wait_for(300, "END")["error"]
        assert str(tmp_path) not in wait_for(300, "END")["error"]
        assert len(client.predict({"text": ["a film"]})["scores"]) == 1  # the one before
        replace(critic.tflite.read_bytes(), 200)
        wait_for(200, "AVAILABLE")
        wait_for(100, "END")
        with server._models.lease("m") as before:
            pass
        new = tmp_path / "new"
        new.write_bytes(critic.tflite.read_bytes())
        os.utime(new, ns=(200_500_000_000, 200_500_000_000))  # within the same second
        os.replace(new, path)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with server._models.lease("m") as now:
                if now is not before:
                    break
            time.sleep(0.02)
        assert now is not before
        path.unlink()
        time.sleep(0.1)
        assert len(client.predict({"text": ["a film"]})["scores"]) == 1
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Server(path)
    with pytest.raises(ValueError, match="num_interpreters=0: pass a number above 0"):
        Server(critic.tflite, num_interpreters=0)


def test_the_command_takes_the_embedded_server(critic, tmp_path, monkeypatch):
    models = find_models([critic.tflite])
    assert models == {"critic": critic.tflite.resolve()}
    for engine in ("binary", "docker"):
        monkeypatch.setattr(ENGINES[engine], "missing", staticmethod(lambda: None))
    said = []
    server = launch(Plan(models, limits={"num_threads": 1}), say=said.append)
    try:
        assert "TensorFlow Serving does not have the operations of critic.tflite" in said[-1]
        assert Client(server.rest_url, "critic").predict({"text": ["a"]})["labels"].shape == (1,)
    finally:
        server.stop()
    with pytest.raises(LaunchError, match=r"does not have the operations of critic\.tflite"):
        launch(Plan(models), "docker", said.append)


def test_an_interpreter_that_is_not_installed(critic, monkeypatch):

    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(
        RuntimeError, match=r"needs ai_edge_litert: pip install 'keras-lm\[litert\]'"
    ):
        Server(critic.tflite).start()
