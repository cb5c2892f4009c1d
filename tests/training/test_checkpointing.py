"""Which checkpoints of runs are refused by name; test_jax_devices.py goes on from them."""

import pytest

from keras_lm.training import OrbaxTrainingCheckpoint


def test_orbax_is_for_jax(tmp_path):
    with pytest.raises(RuntimeError, match=r"'tensorflow': use TrainingCheckpoint\(FILE\)"):
        OrbaxTrainingCheckpoint(tmp_path / "run")
    assert not [*tmp_path.iterdir()]
