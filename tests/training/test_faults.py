"""Two workers, of which one is killed or hangs: nothing is lost, and nobody waits forever."""

import os
import random
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
from keras_lm.training.distribution import workers_of

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


def test_killed_at_any_time_the_run_ends_in_the_same_weights(tmp_path):
    finish(start(tmp_path, "whole"))
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
    whole, killed = (np.load(tmp_path / f"{name}.npz") for name in ("whole", "killed"))
    for name in whole:
        np.testing.assert_array_equal(killed[name], whole[name])


def test_one_that_hangs_is_noticed(tmp_path):
    launched = start(tmp_path, "hung")
    wait_for(tmp_path / "hung", launched)
    os.kill(int((tmp_path / "pid-1").read_text()), signal.SIGSTOP)
    output, _ = launched.communicate(timeout=300)
    assert launched.returncode != 0
    assert "[0] ended with" in output
    assert "Collective" in output  # TensorFlow's own message, of the exchange that had no answer
