"""Which process this is of several on JAX: what the environment says, and what is refused."""

import keras
import pytest

from keras_lm.training import start_processes
from keras_lm.utils import processes

KERAS = dict(
    zip(processes.ARGUMENTS, ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID"), strict=True)
)
VARIABLES = [f"KERAS_DISTRIBUTION_{name}" for name in KERAS.values()]
KUBEFLOW = ["JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"]


@pytest.fixture
def started(monkeypatch):
    """What Keras was asked to start."""
    calls = []
    for name in (*VARIABLES, *KUBEFLOW, "SLURM_NTASKS", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(processes, "IS_JAX", True)
    monkeypatch.setattr(processes, "number_of_processes", lambda: 1)
    monkeypatch.setattr(processes, "index_of_process", lambda: 0)
    monkeypatch.setattr(keras.distribution, "initialize", lambda *values: calls.append(values))
    return calls


@pytest.mark.parametrize("names", [VARIABLES, KUBEFLOW], ids=["keras", "kubeflow"])
def test_the_environment_says_which_process_this_is(names, started, monkeypatch):
    for name, value in zip(names, ("10.0.0.1:1234", "4", "3"), strict=True):
        monkeypatch.setenv(name, value)
    start_processes()
    assert started == [("10.0.0.1:1234", 4, 3)]
    start_processes(index=1)
    assert started[1] == ("10.0.0.1:1234", 4, 1)


def test_slurm_is_asked_by_jax(started, monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "2")
    start_processes()
    assert not started  # in sbatch itself, outside of srun
    monkeypatch.setenv("SLURM_PROCID", "1")
    start_processes()
    assert started == [()]


def test_one_process_stays_alone(started):
    assert start_processes() == processes.Workers(1, 0, 1)
    assert start_processes("10.0.0.1:1234", 1, 0).is_chief
    assert not started


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"number": 2}, "address of the processes is unknown"),
        ({"address": "a:1", "number": 2, "index": 2}, "index=2 of number=2"),
        ({"address": "a:1", "number": "two", "index": 0}, "number='two'"),
    ],
)
def test_what_is_incomplete_or_out_of_range_is_refused(given, message, started):
    with pytest.raises(ValueError, match=message):
        start_processes(**given)
    assert not started


def test_tensorflow_has_strategies():
    with pytest.raises(RuntimeError, match="MultiWorkerMirroredStrategy"):
        start_processes()
