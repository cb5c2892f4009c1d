"""Two workers: one is killed, hangs, or is cut off. Nothing is lost, and nobody waits forever."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import GPT2Backbone
from keras_lm.tasks import CausalLM
from keras_lm.training import AdamW, fit_windows
from keras_lm.utils.processes import workers_of

KILLS = int(os.environ.get("KILLS", 3))
STEPS = 20 + 10 * KILLS  # some ten go by before a kill


class Slowly(keras.callbacks.Callback):
    """Time to be killed in."""

    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.1)


def main(folder, checkpoint):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    worker = workers_of(strategy)
    (Path(folder) / f"pid-{worker.index}").write_text(str(os.getpid()))
    keras.utils.set_random_seed(0)
    with strategy.scope():
        task = CausalLM(GPT2Backbone(30, 1, 2, 8, 8, max_sequence_length=8, dropout=0.1))
        task.compile(optimizer=AdamW(0.01))
    tokens = np.random.default_rng(0).integers(0, 30, (40, 9)).astype("int32")
    windows = tf.data.Dataset.from_tensor_slices(tokens)
    fit_windows(
        task,
        windows,
        batch_size=4,
        steps=STEPS,
        checkpoint=Path(folder) / checkpoint,
        minutes=0,
        callbacks=[Slowly()],
        verbose=0,
    )
    if worker.is_chief:
        values = [keras.ops.convert_to_numpy(weight) for weight in task.weights]
        np.savez(Path(folder) / f"{checkpoint}.npz", *values)


if __name__ == "__main__":
    main(*sys.argv[1:])


# === Tests ===

pytestmark = pytest.mark.thorough


def start(folder, checkpoint):
    for path in folder.glob("pid-*"):
        path.unlink()
    return subprocess.Popen(
        [
            Path(sys.executable).with_name("keras-lm"),
            *("launch", "--workers", "2", "--", __file__, folder, checkpoint),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for(path, launched, newer_than=0.0):
    while not path.exists() or path.stat().st_mtime <= newer_than:
        assert launched.poll() is None, launched.communicate()[0][-3000:]
        time.sleep(0.1)


def finish(launched):
    output, _ = launched.communicate(timeout=600)
    assert launched.returncode == 0, output[-3000:]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The weights after a run that nothing disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    finish(start(folder, "whole"))
    return dict(np.load(folder / "whole.npz"))


def check_weights(path, whole):
    actual = np.load(path)
    for name in whole:
        np.testing.assert_array_equal(actual[name], whole[name])


def test_killed_at_any_time_the_run_ends_in_the_same_weights(whole, tmp_path):
    for number in range(KILLS):
        before = time.time()
        launched = start(tmp_path, "killed")
        wait_for(tmp_path / "killed", launched, before if number else 0.0)
        time.sleep(random.uniform(0.0, 1.0))
        victim = tmp_path / f"pid-{number % 2}"
        os.kill(int(victim.read_text()), signal.SIGKILL)
        launched.communicate(timeout=120)
        assert launched.returncode != 0
        assert not (tmp_path / "killed.npz").exists()
    finish(start(tmp_path, "killed"))
    check_weights(tmp_path / "killed.npz", whole)


def test_one_that_hangs_is_noticed(tmp_path):
    launched = start(tmp_path, "hung")
    wait_for(tmp_path / "hung", launched)
    os.kill(int((tmp_path / "pid-1").read_text()), signal.SIGSTOP)
    output, _ = launched.communicate(timeout=300)
    assert launched.returncode != 0
    assert "[0] ended with" in output
    assert "Collective" in output  # TensorFlow's own message, of the exchange that had no answer


# === Two machines: namespaces with networks of their own, and a cable between them ===


@pytest.fixture
def machines():
    """The names of two network namespaces, 10.77.0.1 and 10.77.0.2."""
    names = [f"keras-lm-{os.getpid()}-{number}" for number in (1, 2)]
    if shutil.which("ip") is None:
        pytest.skip("needs ip, of iproute2")
    try:
        for name in names:
            if ip("netns", "add", name).returncode:
                pytest.skip("network namespaces are not allowed here")
        cable = [f"link add cable netns {names[0]} type veth peer name cable netns {names[1]}"]
        for number, name in enumerate(names, 1):
            cable += [f"-n {name} addr add 10.77.0.{number}/24 dev cable"]
            cable += [f"-n {name} link set {device} up" for device in ("lo", "cable")]
        for command in cable:
            result = ip(*command.split())
            assert result.returncode == 0, (command, result.stderr)
        yield names
    finally:
        for name in names:
            ip("netns", "delete", name)


def ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)


def start_on(machines, folder, checkpoint):
    workers = []
    for index, name in enumerate(machines):
        config = {
            "cluster": {"worker": ["10.77.0.1:2222", "10.77.0.2:2222"]},
            "task": {"type": "worker", "index": index},
        }
        workers.append(
            subprocess.Popen(
                ["ip", "netns", "exec", name, sys.executable, __file__, folder, checkpoint],
                env=os.environ | {"TF_CONFIG": json.dumps(config)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    return workers


def test_a_cable_that_breaks(machines, whole, tmp_path):
    workers = start_on(machines, tmp_path, "apart")
    try:
        wait_for(tmp_path / "apart", workers[0])
        assert ip("-n", machines[1], "link", "set", "cable", "down").returncode == 0
        for worker in workers:
            output, _ = worker.communicate(timeout=300)
            assert worker.returncode != 0
            assert "UNAVAILABLE" in output or "Collective" in output, output[-3000:]
    finally:
        for worker in workers:
            worker.kill()
    assert not (tmp_path / "apart.npz").exists()
    assert ip("-n", machines[1], "link", "set", "cable", "up").returncode == 0
    for worker in start_on(machines, tmp_path, "apart"):
        finish(worker)
    check_weights(tmp_path / "apart.npz", whole)
