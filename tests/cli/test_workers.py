"""`keras-lm launch`: what its processes get, what it passes on, and how they end."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from keras_lm.models import GPT2Backbone
from keras_lm.tasks import CausalLM, Task
from keras_lm.tokenizers import train_vocabulary

COMMAND = Path(sys.executable).with_name("keras-lm")
SCRIPT = """
import json, os, pathlib, sys, time

config = json.loads(os.environ["TF_CONFIG"])
index = config["task"]["index"]
print(index, len(set(config["cluster"]["worker"])), *sys.argv[1:])
pathlib.Path(f"pid-{index}").write_text(str(os.getpid()))
if "--fail" in sys.argv and index == 1:
    others = [pathlib.Path(f"pid-{i}") for i in (0, 2)]
    while not all(path.exists() and path.read_text() for path in others):  # they may begin late
        time.sleep(0.05)
    sys.exit(3)
if "--wait" in sys.argv or "--fail" in sys.argv:
    time.sleep(300)
while "--talk" in sys.argv:
    print("line")
"""


@pytest.fixture
def start(tmp_path):
    """`start(*options)` starts three processes of the script."""
    (tmp_path / "script.py").write_text(SCRIPT)

    def start(*options):
        return subprocess.Popen(
            [COMMAND, "launch", "--workers", "3", "--", "script.py", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=tmp_path,
            start_new_session=True,
        )

    return start


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pids_in(folder):
    """Return the process numbers of the script, once all three have begun."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        texts = [path.read_text() for path in folder.glob("pid-*")]
        if len(texts) == 3 and all(texts):
            return [int(text) for text in texts]
        time.sleep(0.05)
    raise AssertionError("the processes have not begun")


def test_each_process_knows_the_others(start):
    launched = start("--epochs", "3")
    output, _ = launched.communicate(timeout=60)
    assert launched.returncode == 0
    assert sorted(output.splitlines()) == [f"[{i}] {i} 3 --epochs 3" for i in range(3)]


def test_one_that_fails_ends_all(start, tmp_path):
    launched = start("--fail")
    output, _ = launched.communicate(timeout=60)
    assert launched.returncode == 3
    assert "[1] ended with exit code 3: all others are ended." in output
    assert not any(map(is_alive, pids_in(tmp_path)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all(start, tmp_path, number):
    launched = start("--wait")
    pids = pids_in(tmp_path)
    launched.send_signal(number)
    launched.communicate(timeout=60)
    assert launched.returncode != 0
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize("code", [0, 4])
def test_what_a_process_writes_last_is_shown(tmp_path, code):
    text = f"import sys; sys.stdout.write('line\\n' * 150_000 + 'the reason\\n'); sys.exit({code})"
    (tmp_path / "script.py").write_text(text)
    launch = [COMMAND, "launch", "--processes", "2", "--", tmp_path / "script.py"]
    done = subprocess.run(launch, capture_output=True, text=True)
    assert done.returncode == code
    assert len(re.findall(r"^\[[01]\] the reason$", done.stdout, re.M)) >= (1 if code else 2)


def test_all_end_where_nobody_reads(start, tmp_path):
    launched = start("--talk")
    pids = pids_in(tmp_path)
    launched.stdout.close()
    assert launched.wait(60) != 0
    assert not any(map(is_alive, pids))


def test_a_killed_process_is_told(start, tmp_path):
    launched = start("--wait")
    os.kill(pids_in(tmp_path)[0], signal.SIGKILL)
    output, _ = launched.communicate(timeout=60)
    assert launched.returncode == 128 + signal.SIGKILL
    assert "ended with signal 9" in output


ON_JAX = """
import os

names = "JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID"
print(*(os.environ[f"KERAS_DISTRIBUTION_{name}"] for name in names), os.environ["XLA_FLAGS"])
"""


def test_jax_knows_the_others_and_its_devices(tmp_path):
    (tmp_path / "script.py").write_text(ON_JAX)
    done = subprocess.run(
        [COMMAND, *("launch", "--processes", "2", "--devices-per-process", "3", "--", "script.py")],
        env=os.environ | {"KERAS_BACKEND": "jax", "XLA_FLAGS": "--xla_dump_to=there"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    address, *_ = re.findall(r"127\.0\.0\.1:\d+", done.stdout)
    flags = "--xla_dump_to=there --xla_force_host_platform_device_count=3"
    expected = [f"[{i}] {address} 2 {i} {flags}" for i in range(2)]
    assert sorted(done.stdout.splitlines()) == expected


def test_virtual_devices_are_for_jax(fail):
    options = "--processes", "2", "--devices-per-process", "2", "--", "train.py"
    assert "KERAS_BACKEND=jax" in fail("launch", *options)


@pytest.fixture(scope="module")
def guide(repository):
    """The indented blocks of the guide to many machines."""
    text = (repository / "docs" / "many_machines.md").read_text(encoding="utf-8")
    return [textwrap.dedent(block) for block in re.findall(r"((?:^    .*\n|^\n)+)", text, re.M)]


def test_manifests_of_the_guide(guide):
    (block,) = [block for block in guide if "apiVersion" in block]
    manifests = [*yaml.safe_load_all(block)]
    assert [manifest["kind"] for manifest in manifests] == ["Service", "Job"]
    for manifest in manifests:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    (block,) = [block for block in guide if "workerPoolSpecs" in block]
    chief, others = yaml.safe_load(block)["workerPoolSpecs"]
    assert (chief.pop("replicaCount"), others.pop("replicaCount")) == (1, 7)
    assert chief == others


def test_configurations_of_the_guide(guide, tmp_path):
    """What its Job and its Slurm script set is JSON, and names two workers."""
    blocks = [block for block in guide if "TF_CONFIG" in block]
    assert len(blocks) == 3
    for name, program in (
        ("keras-lm", 'echo "$TF_CONFIG"'),
        ("srun", 'shift; exec "$@"'),
        ("scontrol", "printf 'node-1\\nnode-2\\n'"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{program}\n")
        (tmp_path / name).chmod(0o755)
    for number, block in enumerate(blocks):
        if "kind: Job" in block:
            (block,) = re.findall(r"- \|\n((?: {14}.*\n)+)", block)
        done = subprocess.run(
            ["bash", "-c", textwrap.dedent(block)],
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}"}
            | {"JOB_COMPLETION_INDEX": "1", "SLURM_PROCID": "1", "SLURM_JOB_NODELIST": "n"},
            capture_output=True,
            text=True,
            check=True,
        )
        config = json.loads(done.stdout)
        assert len(set(config["cluster"]["worker"])) == 2
        assert config["task"] == {"type": "worker", "index": 1 if number else 0}


def test_slurm_script_for_jax(guide, tmp_path):
    (block,) = [block for block in guide if "#SBATCH" in block and "jax" in block]
    (tmp_path / "srun").write_text('#!/bin/sh\necho "$KERAS_BACKEND" "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", block], env=path, capture_output=True, text=True)
    assert done.stdout == "jax --kill-on-bad-exit=1 python train.py\n"
    tasks, devices = re.findall(r"--(?:ntasks|gpus)-per-node=(\d+)", block)
    assert tasks == devices  # JAX gives a task one device


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["text-classifier", pytest.param("causal-lm", marks=pytest.mark.thorough)]
)
def test_two_processes_train_one_preset(name, tiny, tmp_path):
    source = tiny
    if name == "causal-lm":
        tokenizer = train_vocabulary("byte_pair", 300, texts=["a good film", "a bad song"])
        backbone = GPT2Backbone(tokenizer.vocabulary_size, 1, 2, 8, 8, max_sequence_length=16)
        source = tmp_path / "gpt2"
        CausalLM(backbone, tokenizer=tokenizer).save_to_preset(source)
    (tmp_path / "train.csv").write_text("text,label\n" + "a good film,good\nbad song !,bad\n" * 9)
    options = ["--task", name, "--output", "trained", "--epochs", "1", "--batch-size", "4"]
    options += ["--sequence-length", "8"]
    done = subprocess.run(
        [COMMAND, *("launch", "--workers", "2", "--"), "finetune", source, "train.csv", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    losses = {
        worker: re.findall(rf"^\[{worker}\] .*- loss: ([\d.]+)", done.stdout, re.M)
        for worker in "01"
    }
    assert losses["0"] and losses["0"] == losses["1"]
    assert (tmp_path / "trained" / "run.toml").is_file()
    assert not (tmp_path / "trained.unfinished").exists()
    Task.from_preset(tmp_path / "trained")


def test_other_commands_are_refused(fail):
    assert "finetune or pretrain" in fail("launch", "--workers", "2", "--", "serve", "folder")


def test_without_workers_there_is_no_strategy(monkeypatch):
    import tensorflow as tf

    from keras_lm.utils.processes import strategy_of_workers

    for config in ("", json.dumps({"cluster": {"worker": ["127.0.0.1:1"]}})):
        monkeypatch.setenv("TF_CONFIG", config)
        assert strategy_of_workers() is tf.distribute.get_strategy()
