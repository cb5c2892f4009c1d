"""`keras-lm serve`, through its real entry point: it answers, and ends on a signal."""

import contextlib
import json
import os
import re
import resource
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest
import requests
import tensorflow as tf
from click.testing import CliRunner

from keras_lm.cli import main
from keras_lm.cli.serve import curl_line, read_examples, serve_command
from keras_lm.serving.client import Client, ServerError

COMMAND = Path(sys.executable).with_name("keras-lm")
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"  # the tests set it, and the command has its own


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a SavedModel that counts characters, and can take its time."""
    folder = tmp_path_factory.mktemp("models") / "counter"

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def count(text):
        return {"length": tf.strings.length(text, "UTF8_CHAR")}

    @tf.function(input_signature=[tf.TensorSpec([], tf.float64, "seconds")], autograph=False)
    def wait(seconds):
        end = tf.timestamp() + seconds
        return {"rounds": tf.while_loop(lambda i: tf.timestamp() < end, lambda i: (i + 1,), [0])[0]}

    signatures = {"serving_default": count, "wait": wait}
    tf.saved_model.save(tf.Module(), str(folder / "1"), signatures=signatures)
    return folder


@pytest.fixture
def serve(tmp_path, repository):
    """`serve(folder, *options)` starts the command, with fakes on PATH as `programs` says."""
    running = []

    def start(*arguments, programs=(), mode="serve"):
        (tmp_path / "bin").mkdir()
        for name in programs:
            fake = (repository / "tests" / "serving" / "fake_engine.py").read_text()
            (tmp_path / "bin" / name).write_text(f"#!{sys.executable}\n{fake}")
            (tmp_path / "bin" / name).chmod(0o755)
        process = subprocess.Popen(
            [COMMAND, "serve", *map(str, arguments), "--rest-port", "0", "--grpc-port", "0"],
            env={
                **{name: value for name, value in os.environ.items() if name != LOG_LEVEL},
                **{"PATH": str(tmp_path / "bin"), "FAKE": mode, "FAKE_LOG": str(tmp_path / "log")},
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def said_until(process, last):
    """Lines of the output, up to the one that begins with `last`."""
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith(last):
            return lines
    raise AssertionError("\n".join([*lines, process.stderr.read()]))


def value(lines, name):
    return next(line for line in lines if line.startswith(f"{name}:")).split(":", 1)[1].strip()


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def length_by(url):
    """The model's answer to three letters, or None if the server takes no more clients."""
    with Client(url, "counter") as client, contextlib.suppress(ServerError):
        return client.predict({"text": ["abc"]})["length"].item()


@pytest.mark.slow
def test_embedded_server_answers_and_ends_with_ctrl_c(serve, model):
    process = serve(model)
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (256, 256))
    lines = said_until(process, "Ctrl-C")
    assert value(lines, "Engine") == (
        "the embedded server of keras_lm; tensorflow_model_server is not on PATH; docker is not "
        "on PATH."
    )
    url = value(lines, "REST")
    assert requests.get(value(lines, "Page"), timeout=10).text.startswith("<!doctype html>")
    curl = next(line.strip() for line in lines if line.strip().startswith("curl "))
    done = subprocess.run(["bash", "-c", curl], capture_output=True, timeout=60)
    assert json.loads(done.stdout) == {"outputs": [len("never a dull moment")]}

    # More idle clients than it may have files open, at both ports
    ports = [int(value(lines, name).rsplit(":", 1)[1]) for name in ("REST", "gRPC")]
    idle = [socket.create_connection(("127.0.0.1", port), 30) for port in ports for _ in range(300)]
    assert length_by(url) == 3
    end = time.monotonic() + 20  # gRPC gives them some seconds to introduce themselves
    while (length := length_by(f"grpc://{value(lines, 'gRPC')}")) is None:
        assert time.monotonic() < end
        time.sleep(0.5)
    assert length == 3

    # A request that would take longer than the end may
    body = json.dumps({"signature_name": "wait", "inputs": 120}).encode()
    head = f"POST /v1/models/counter:predict HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n"
    waiting = socket.create_connection(("127.0.0.1", ports[0]), 30)
    waiting.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=30)
    assert waiting.recv(100).startswith(b"HTTP/1.1 503")
    for each in [*idle, waiting]:
        each.close()
    assert process.returncode == 0, error
    assert out == "Ended.\n"
    # The work is stopped before the web server would say that it cancels a task.
    assert error == ""
    assert is_free(int(url.rsplit(":", 1)[1]))
    assert is_free(int(value(lines, "gRPC").rsplit(":", 1)[1]))


@pytest.mark.slow
@pytest.mark.parametrize("program", ["tensorflow_model_server", "docker"])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_tf_serving_ends_with_the_command(serve, model, program, sent, tmp_path):
    process = serve(model, "--name", "critic", programs=[program])
    lines = said_until(process, "Ctrl-C")
    assert program.replace("docker", "in docker") in value(lines, "Engine")
    assert not [line for line in lines if line.startswith("Page")]
    assert requests.get(f"{value(lines, 'REST')}/v1/models/critic", timeout=10).ok
    process.send_signal(sent)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 0, error
    with pytest.raises(ProcessLookupError):
        os.kill(json.loads((tmp_path / "log").read_text())["pid"], 0)


def test_a_failure_of_tf_serving_is_the_commands_own(serve, model):
    process = serve(model, programs=["tensorflow_model_server"], mode="broken")
    _, error = process.communicate(timeout=30)
    assert process.returncode == 3
    assert re.search(r"Error: .*exit code 3.*\n.*\n +cannot open the model\n$", error)
    assert "Traceback" not in error


def test_the_command_to_try_has_the_example_of_ones_own():
    signature = {"inputs": {name: {"dtype": "DT_STRING"} for name in ("text", "text_pair")}}
    signatures = {"serving_default": signature}
    for example, texts in {
        "it's \u00fc": ["it's \u00fc", "it's \u00fc"],
        '{"text_pair": "b"}': ["never a dull moment", "b"],
        "[1, 2]": ["[1, 2]", "[1, 2]"],
        "{": ["{", "{"],
    }.items():
        own = read_examples([example], ["m"])["m"]
        *_, body, _ = shlex.split(curl_line("http://localhost:1", "m", signatures, own))
        assert json.loads(body)["inputs"] == {"text": [texts[0]], "text_pair": [texts[1]]}
    line = curl_line("http://localhost:1", "m", signatures, needs_key=True)
    assert line.startswith('echo "Authorization: Bearer $KERAS_LM_API_KEY" | curl -H @- -d ')


def test_the_guide_has_every_option(repository):
    guide = (repository / "docs" / "serving.md").read_text(encoding="utf-8")
    table = guide.split("### All options")[1].split("\n\n")[1]
    rows = [line.split("|")[1] for line in table.splitlines()]
    listed = re.findall(r"(--[a-z-]+)", "".join(rows[2:]))
    options = [param for param in serve_command.params if isinstance(param, click.Option)]
    assert sorted(listed) == sorted(option.opts[0] for option in options)


def test_mistakes_end_early_and_in_one_line(model, tmp_path):
    for arguments, words in {
        (): "Missing argument 'PATH...'",
        (tmp_path / "nowhere",): "There is no folder",
        (tmp_path,): "has no version of a model",
        (model / "1",): "is one version of a model",
        (model, "--name", "a:b"): "'a:b' cannot be a model's name",
        (model, "--max-connections", 0): "0 is not in the range",
        (model, "--request-timeout", 0): "0.0 is not in the range",
        (model, "--example", "a", "--example", "b"): "--example is given 2 times for 1 models",
        (model, "--example", '{"text": 3}', "--rest-port", 0, "--engine", "embedded"): (
            "examples['counter'] has 3: pass a text"
        ),
        (model, "--rest-port", 70000): "70000 is not in the range",
        (model, "--tls-certificate", __file__): "--tls-key is missing",
        (model, "--engine", "binary", "--rest-port", 0): "tensorflow_model_server is not on PATH",
    }.items():
        result = CliRunner(env={"PATH": str(tmp_path)}).invoke(
            main, ["serve", "--grpc-port", "0", *map(str, arguments)]
        )
        assert result.exit_code in (1, 2), arguments
        assert words in result.output
