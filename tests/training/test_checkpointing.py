"""Which checkpoints of runs are refused by name; test_jax_devices.py goes on from them."""

import os
import subprocess
import sys

import numpy as np
import pytest

from keras_lm.models import BertBackbone
from keras_lm.tasks import TextClassifier
from keras_lm.training import OrbaxTrainingCheckpoint, TrainingCheckpoint
from keras_lm.utils import files


def test_orbax_is_for_jax(tmp_path):
    with pytest.raises(RuntimeError, match=r"'tensorflow': use TrainingCheckpoint\(FILE\)"):
        OrbaxTrainingCheckpoint(tmp_path / "run")
    assert not [*tmp_path.iterdir()]


@pytest.mark.eager
def test_a_file_at_an_address(tmp_path):
    address = f"memory://{tmp_path}/run.safetensors"

    def checkpoint():
        task = TextClassifier(BertBackbone(9, 1, 2, 8, 16), num_classes=2)
        task.compile(optimizer="adam")
        made = TrainingCheckpoint(address)
        made.set_model(task)
        return task, made

    (task, saved), (other, restored) = checkpoint(), checkpoint()
    assert restored.restore(other) == 0
    saved.step = 5
    saved.save()
    assert restored.restore(other) == 5
    for ours, theirs in zip(other.get_weights(), task.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with files.replacing(address) as new:
        new.write_bytes(b"half")
    with pytest.raises(ValueError, match=f"{address} is not a complete checkpoint of a training"):
        restored.restore(other)


DAMAGED = """
import pathlib, sys
import keras, numpy as np
from keras_lm import models, tasks, training
folder = pathlib.Path(sys.argv[1])
task = tasks.TextClassifier(models.BertBackbone(9, 1, 2, 8, 16), num_classes=2)
task.compile(optimizer="adam")
saved = training.OrbaxTrainingCheckpoint(folder)
saved.set_model(task)
saved._variables(task)
saved.save()
before = [np.array(w) for w in task.weights]
assert training.OrbaxTrainingCheckpoint(folder).restore(task) == 0
refused = 0
for file in [f for f in folder.rglob("*") if f.is_file()]:
    whole = file.read_bytes()
    other = bytearray(whole)
    for place in range(len(whole) // 2, min(len(whole) // 2 + 1, len(whole))):
        other[place] ^= 255
    file.write_bytes(other)
    try:
        training.OrbaxTrainingCheckpoint(folder).restore(task)
    except ValueError as error:
        assert "is not a complete checkpoint" in str(error), error
        refused += "the numbers of" in str(error)
    assert all((np.array(w) == old).all() for w, old in zip(task.weights, before)), file
    file.write_bytes(whole)
assert refused, "no weight was damaged"
print("refused")
"""


@pytest.mark.slow
def test_a_damaged_folder_is_refused_and_changes_nothing(tmp_path):
    pytest.importorskip("orbax.checkpoint", reason="needs the extra orbax")
    command = [sys.executable, "-c", DAMAGED, str(tmp_path / "run")]
    environment = os.environ | {"KERAS_BACKEND": "jax"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("refused\n")
