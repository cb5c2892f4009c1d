"""Which engine is taken and what becomes of it. TensorFlow Serving and docker are fakes."""

import json
import os
import re
import socket
import sys
from pathlib import Path

import pytest
import requests
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from keras_lm.converters import CheckpointError
from keras_lm.converters.checkpoint import open_checkpoint
from keras_lm.serving import Server
from keras_lm.serving.client import Client
from keras_lm.serving.launch import IMAGE, DockerServer, LaunchError, Plan, find_models, launch

FAKE = Path(__file__).with_name("fake_engine.py")


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    """`fakes("docker", mode="no image")` puts that program alone on PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))

    def put(*names, mode="serve"):
        monkeypatch.setenv("FAKE", mode)
        for name in names:
            program = tmp_path / "bin" / name
            program.write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
            program.chmod(0o755)

    put.calls = lambda: [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    return put


@pytest.fixture
def model(tmp_path):
    """The folder of a model, enough for those who do not load it."""
    folder = tmp_path / "models" / 'my "model", é'
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "saved_model.pb").touch()
    return folder


@pytest.fixture
def start():
    """`start(plan, engine)` launches and returns (server, what was said); it is stopped later."""
    running = []

    def started(plan, engine="auto"):
        said = []
        running.append(launch(plan, engine, said.append))
        return running[-1], said

    yield started
    for server in running:
        server.stop()


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def models_of(config):
    parsed = text_format.Parse(config, model_server_config_pb2.ModelServerConfig())
    return {c.name: (c.base_path, c.model_platform) for c in parsed.model_config_list.config}


# === TF Serving ===


def test_the_binary_is_taken_first_and_gets_its_models_and_batching(fakes, model, start):
    fakes("tensorflow_model_server", "docker")
    server, said = start(Plan({"one": model, "two-é": model}))
    assert said[-1].startswith("Engine: tensorflow_model_server, ")
    assert "all addresses" in said[-1]  # it has no flag for the host
    (call,) = fakes.calls()
    assert models_of(call["config"]) == {
        "one": (str(model), "tensorflow"),
        "two-é": (str(model), "tensorflow"),
    }
    rest_port, grpc_port = server.rest_url.split(":")[-1], server.grpc_address.split(":")[-1]
    assert rest_port != grpc_port != "0"
    config = next(w for w in call["words"] if w.startswith("--model_config_file="))
    assert call["words"] == [
        f"--port={grpc_port}",
        f"--rest_api_port={rest_port}",
        config,
        "--enable_batching=true",
        "--enable_per_model_batching_parameters=true",
    ]
    assert Client(server.rest_url, "one").status()[0]["state"] == "AVAILABLE"

    server.stop()
    assert not is_alive(call["pid"])
    assert not Path(config.split("=")[1]).parent.exists()


@pytest.mark.parametrize("name", ["tensorflow_model_server", "docker"])
@pytest.mark.parametrize("cors", [True, False])
def test_pages_of_other_origins_are_passed_on(fakes, model, start, name, cors):
    fakes(name)
    start(Plan({"critic": model}, limits={"cors": True} if cors else {}))
    (call,) = fakes.calls()
    assert ("--rest_api_enable_cors_support=true" in call["words"]) == cors


def test_docker_is_next_with_folders_read_only(fakes, model, start):
    fakes("docker")
    server, said = start(Plan({"critic": model}, host="localhost"))
    assert said[-1] == (f"Engine: {IMAGE} in docker; tensorflow_model_server is not on PATH.")
    (call,) = fakes.calls()
    words = call["words"]
    assert words[:2] == ["run", "--rm"]
    assert "--init" in words
    assert "--env=TF_ENABLE_ONEDNN_OPTS" in words
    rest_port, grpc_port = server.rest_url.split(":")[-1], server.grpc_address.split(":")[-1]
    assert f"--publish=127.0.0.1:{rest_port}:8501" in words
    assert f"--publish=127.0.0.1:{grpc_port}:8500" in words
    quoted = str(model).replace('"', '""')
    assert f'type=bind,"source={quoted}","target=/models/critic",readonly' in words
    assert models_of(call["config"]) == {"critic": ("/models/critic", "tensorflow")}
    assert words[words.index(IMAGE) + 1 :] == [
        "--port=8500",
        "--rest_api_port=8501",
        "--model_config_file=/config/models.config",
        "--enable_batching=true",
        "--enable_per_model_batching_parameters=true",
    ]
    server.stop()
    assert not is_alive(call["pid"])


def test_docker_publishes_addresses_of_ipv6(tmp_path, model, monkeypatch):
    monkeypatch.setattr("keras_lm.serving.launch.free_ports", lambda host: (81, 82))
    command = DockerServer(Plan({"critic": model}, host="::1")).command(tmp_path)
    assert {"--publish=[::1]:81:8501", "--publish=[::1]:82:8500"} <= set(command)


def test_a_server_that_fails_shows_its_last_lines_and_exit_code(fakes, model, start, capfd):
    fakes("tensorflow_model_server", mode="broken")
    with pytest.raises(LaunchError, match=r"(?s)exit code 3.*cannot open the model") as caught:
        start(Plan({"critic": model}))
    assert caught.value.exit_code == 3
    assert "Starting." in capfd.readouterr().err  # its log is passed on

    fakes("tensorflow_model_server")
    server, _ = start(Plan({"critic": model}))
    with pytest.raises(requests.ConnectionError):
        requests.get(server.rest_url + "/die", timeout=10)
    with pytest.raises(LaunchError, match="exit code 4"):
        server.wait()


def test_a_stubborn_server_is_ended_by_force(fakes, model, start, monkeypatch):
    monkeypatch.setattr("keras_lm.serving.launch.PATIENCE", 0.3)
    fakes("tensorflow_model_server", mode="stubborn")
    server, _ = start(Plan({"critic": model}))
    server.stop()
    assert not is_alive(fakes.calls()[0]["pid"])


# === The embedded server, when nothing else works ===


@pytest.mark.parametrize(
    "mode, programs, reasons",
    [
        ("none", [], ["tensorflow_model_server is not on PATH", "docker is not on PATH"]),
        ("no engine", ["docker"], ["docker's engine does not answer"]),
        ("no image", ["docker"], [r"docker cannot start .*2\.20\.0 \(.*no route\)"]),
    ],
)
def test_without_tf_serving_the_embedded_server_answers(
    fakes, saved_models, start, mode, programs, reasons
):
    fakes(*programs, mode=mode)
    server, said = start(Plan({"numbers": saved_models / "numbers"}))
    assert said[-1].startswith("Engine: the embedded server of keras_lm; ")
    assert "\n" not in said[-1]
    for reason in reasons:
        assert re.search(reason, said[-1])
    with Client(server.rest_url, "numbers") as client:
        assert client.predict({"x": [1, 2]})["y"].tolist() == [4, 4]


@pytest.mark.parametrize(
    "engine, words",
    [
        ("binary", "tensorflow_model_server is not on PATH"),
        ("docker", r"docker cannot start tensorflow/serving:2\.20\.0"),
    ],
)
def test_an_engine_asked_for_by_name_is_not_replaced(fakes, model, start, engine, words):
    fakes("docker", mode="no image")
    with pytest.raises(LaunchError, match=words):
        start(Plan({"critic": model}), engine)


def test_missing_packages_come_with_their_command(fakes, model, start, monkeypatch):
    monkeypatch.setattr(
        "keras_lm.serving.launch.find_spec", lambda name: None if name == "uvicorn" else name
    )
    with pytest.raises(LaunchError, match=r"needs uvicorn: pip install 'keras-lm\[serving\]'"):
        start(Plan({"critic": model}))


# === Before anything starts ===


def test_a_port_that_is_taken(fakes, model, start):
    fakes("tensorflow_model_server")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(LaunchError, match=f"--rest-port {port} of 127.0.0.1 cannot be used"):
            start(Plan({"critic": model}, rest_port=port))
        with pytest.raises(LaunchError, match=f"--grpc-port {port} .*0 for a free one"):
            start(Plan({"critic": model}, grpc_port=port))
    with pytest.raises(LaunchError, match="are both 5: choose two different ports"):
        start(Plan({"critic": model}, rest_port=5, grpc_port=5))
    with pytest.raises(LaunchError, match=r"--rest-port 0 of no-such-host.invalid"):
        start(Plan({"critic": model}, host="no-such-host.invalid"))


def test_folders_and_names(model, tmp_path):
    assert find_models([model], ["critic"]) == {"critic": model}
    plain = model.rename(tmp_path / "critic")
    assert find_models([plain]) == {"critic": plain}
    with pytest.raises(LaunchError, match=r"There is no folder .*nowhere"):
        find_models([tmp_path / "nowhere"])
    with pytest.raises(LaunchError, match=f"is one version of a model: pass .*, {plain}"):
        find_models([plain / "1"])
    with pytest.raises(LaunchError, match="has no version of a model: a version is"):
        find_models([tmp_path / "models"])
    (tmp_path / "m.onnx").write_bytes(b"")
    with pytest.raises(LaunchError, match=r"m\.onnx is a file.*or a \.tflite: task\.export"):
        find_models([tmp_path / "m.onnx"])
    (tmp_path / "keras_lm.json").write_text("{}")
    with pytest.raises(LaunchError, match=r"it is a preset: keras-lm export .* exported writes"):
        find_models([tmp_path])
    for name in ("a/b", "a:b", "a\n", ""):
        with pytest.raises(LaunchError, match=r"cannot be a model's name.*--name"):
            find_models([plain], [name])
    assert find_models([plain], ["what Server takes, too"]) == {"what Server takes, too": plain}
    with pytest.raises(LaunchError, match=r"Two models are called 'critic'.*--name"):
        find_models([plain, plain])
    with pytest.raises(LaunchError, match="1 times for 2 models"):
        find_models([plain, plain], ["a"])


def test_a_folder_of_several_models_stands_for_all(model, tmp_path):
    models = model.parent
    assert find_models([models]) == {model.name: model}
    (models / "phone.tflite").write_bytes(b"")
    (models / ".critic-1.writing" / "1").mkdir(parents=True)  # still written
    (models / ".critic-1.writing" / "1" / "saved_model.pb").touch()
    both = {model.name: model, "phone": models / "phone.tflite"}
    assert find_models([models]) == both
    assert list(find_models([models], ["a", "b"])) == ["a", "b"]
    assert Server(models).model_names == list(both)
    with pytest.raises(LaunchError, match=r"1 times for 2 models, .*é, .*tflite: give it once"):
        find_models([models], ["a"])
    with pytest.raises(CheckpointError, match=r"several models: give one of .*é, .*phone\.tflite"):
        open_checkpoint(models)
