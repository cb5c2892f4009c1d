"""Processes that train together: who each of them is, what all agree on, and their variables.

A worker is a process of a `tf.distribute` strategy, with one or more replicas, each of which
computes a part of every batch. Without a strategy there is one worker with one replica. With
Keras's JAX backend, workers are the processes of `keras.distribution.initialize`, which compute
each batch as one; strategies have no part in it. The first worker is the chief, which writes files.
"""

import dataclasses
import json
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_lm.tensorflow import tf

ALIGNMENT = 64  # bytes: TensorFlow's kernels refuse memory at other addresses
IS_JAX = keras.backend.backend() == "jax"
if IS_JAX:
    import jax
    from jax.experimental import multihost_utils


@dataclasses.dataclass(frozen=True)
class Workers:
    """The number of workers, the index of this one, 0 for the chief, and its replicas."""

    number: int
    index: int
    replicas: int

    @property
    def is_chief(self):
        return self.index == 0


def start_processes(
    address: str | None = None, number: int | None = None, index: int | None = None
) -> Workers:
    """Join the processes that train together with Keras's JAX backend, and return who this is.

    Call it before anything is computed, then set a distribution, and only then make a task. What
    is not given is read from the environment: `KERAS_DISTRIBUTION_JOB_ADDRESSES`,
    `…_NUM_PROCESSES` and `…_PROCESS_ID`, which `keras-lm launch` sets, or
    `JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES` and `JAX_PROCESS_ID`, which Kubeflow Trainer
    sets; or JAX asks Slurm. Where there is nothing of these, this process stays alone. In a TPU
    pod, call `keras.distribution.initialize()` in place of this.

    Args:
        address: str, host and port of the process 0.
        number: int, how many processes there are.
        index: int, which of them this is, from 0.

    Raises:
        RuntimeError: if Keras has another backend than JAX, or JAX has computed something.
        ValueError: if only some of the three are known, or one is out of its range.

    Example:
        keras_lm.training.start_processes()
        keras.distribution.set_distribution(keras.distribution.DataParallel())
        task = keras_lm.tasks.TextClassifier.from_preset(SOURCE, class_names=["bad", "good"])
        task.fit(texts, labels)
    """
    if not IS_JAX:
        raise RuntimeError(
            f"start_processes is for KERAS_BACKEND=jax, and it is {keras.backend.backend()}: on "
            "TensorFlow, make the task in the scope of a MultiWorkerMirroredStrategy."
        )
    given = dict(zip(ARGUMENTS, (address, number, index), strict=True))
    known = {name: _in_environment(name) if v is None else v for name, v in given.items()}
    missing = [name for name, value in known.items() if value is None]
    if len(missing) == len(known):
        if int(os.environ.get("SLURM_NTASKS", 1)) > 1 and "SLURM_PROCID" in os.environ:
            keras.distribution.initialize()
    elif missing:
        raise ValueError(
            f"{missing[0]} of the processes is unknown: pass address, number and index, or set "
            f"all of {', '.join(f'{PREFIXES[0]}{name}' for name in ARGUMENTS.values())}."
        )
    else:
        number, index = (_whole(name, known[name]) for name in ("number", "index"))
        if not 0 <= index < number:
            raise ValueError(f"index={index} of number={number} processes: they count from 0.")
        if number > 1:
            keras.distribution.initialize(known["address"], number, index)
    return workers_of(None)


PREFIXES = "KERAS_DISTRIBUTION_", "JAX_"
ARGUMENTS = {"address": "JOB_ADDRESSES", "number": "NUM_PROCESSES", "index": "PROCESS_ID"}


def _in_environment(name):
    names = [PREFIXES[0] + ARGUMENTS[name], PREFIXES[1] + ARGUMENTS[name]]
    names[1] = names[1].replace("JOB_ADDRESSES", "COORDINATOR_ADDRESS")
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def _whole(name, value):
    try:
        return int(value)
    except ValueError:
        raise ValueError(f"{name}={value!r} of the processes: pass a whole number.") from None


def strategy_of_workers():
    """Return the strategy of the processes that TF_CONFIG names; without any, the default one.

    To be called before TensorFlow has computed anything, and to be entered by its `scope()`.
    """
    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    if sum(len(cluster.get(job, ())) for job in ("chief", "worker")) > 1:
        return tf.distribute.MultiWorkerMirroredStrategy()
    return tf.distribute.get_strategy()


def workers_of(strategy):
    """Return the `Workers` of a strategy; on JAX, those of all processes, whatever the strategy."""
    if IS_JAX:
        return Workers(number_of_processes(), index_of_process(), 1)
    number = 1
    if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        number = strategy.num_replicas_in_sync // len(strategy.extended.worker_devices)
    replicas = strategy.num_replicas_in_sync // number
    if number == 1:
        return Workers(1, 0, replicas)
    resolver = strategy.cluster_resolver
    jobs = resolver.cluster_spec().as_dict()
    first = len(jobs.get("chief", ())) if resolver.task_type == "worker" else 0
    return Workers(number, first + resolver.task_id, replicas)


def gather(strategy, number):
    """Return an int of each worker, an array of int64; all workers have to call it."""
    workers = workers_of(strategy)
    if workers.number == 1:
        return np.array([number], "int64")
    if IS_JAX:  # which has no int64 by default
        halves = multihost_utils.process_allgather(np.array([number], "int64").view("uint32"))
        return np.ascontiguousarray(halves).view("int64")[:, 0]
    own = np.zeros(workers.number, "int64")
    own[workers.index] = number

    @tf.function(autograph=False)
    def added():
        context = tf.distribute.get_replica_context()
        return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(own))

    sums = strategy.experimental_local_results(strategy.run(added))[0].numpy()
    return sums // workers.replicas


def check_agreement(strategy, number, message):
    """Raise a ValueError with a message on every worker, unless all have the same int."""
    numbers = gather(strategy, number)
    if (numbers != numbers[0]).any():
        raise ValueError(message)


def chief_first(strategy, function):
    """Call a function on the chief, then on all other workers; all have to call this."""
    is_chief = workers_of(strategy).is_chief
    if is_chief:
        result = function()
    gather(strategy, 0)
    return result if is_chief else function()


def common_seed(strategy):
    """Return a random int that is the same on all workers.

    With one worker it is None, no seed; on JAX it is one then, too, that of any number of workers.
    """
    if workers_of(strategy).number == 1 and not IS_JAX:
        return None
    return int(gather(strategy, np.random.randint(2**31)).min())


# === Processes with Keras's JAX backend ===


def number_of_processes() -> int:
    """Return how many processes there are."""
    return jax.process_count() if IS_JAX else 1


def index_of_process() -> int:
    """Return the index of this process, 0 for the chief, which writes all files."""
    return jax.process_index() if IS_JAX else 0


def write_by_chief(write: Callable[[], Any]) -> None:
    """Call a function on the chief; all processes go on once it has returned."""
    if index_of_process() == 0:
        write()
    if number_of_processes() > 1:
        multihost_utils.sync_global_devices("keras_lm: the chief has written")


# === Values of variables ===


def is_divided(variable: Any) -> bool:
    """Return whether each process has a part of a variable or tensor only."""
    value = keras.ops.convert_to_tensor(variable) if IS_JAX else None
    return IS_JAX and not (value.is_fully_addressable or value.is_fully_replicated)


def as_array(variable: Any) -> np.ndarray:
    """Return all values of a variable or tensor; every process has to call it for the same ones."""
    if is_divided(variable):
        value = keras.ops.convert_to_tensor(variable)
        return np.asarray(multihost_utils.process_allgather(value, tiled=True))
    return np.asarray(variable.numpy()) if hasattr(variable, "numpy") else np.asarray(variable)


def array_of(variable: Any) -> np.ndarray:
    """Return the values of a variable that stays as it is, without a copy if possible.

    Where several processes have a part of it each, all have to call this.
    """
    if is_plain(keras.backend.standardize_dtype(variable.dtype)):
        tensor = tf.convert_to_tensor(keras.ops.convert_to_tensor(variable))
        if "CPU" in tensor.device:
            return np.asarray(memoryview(tensor))
    return as_array(variable)


def zeros(shape: Sequence[int], dtype: Any = None) -> Any:
    """Return a tensor of zeros, whose memory the system provides once it is written to."""
    dtype = keras.backend.standardize_dtype(dtype)
    if not is_plain(dtype):
        return keras.ops.zeros(shape, dtype)
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    array = memory[start : start + size].view(dtype).reshape(shape)
    # (TensorFlow copies such memory before it first changes it.)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def is_plain(dtype):
    """Whether tensors of a type are memory that NumPy can write to."""
    is_eager = keras.backend.backend() == "tensorflow" and tf.executing_eagerly()
    return is_eager and dtype in ("float16", "float32", "float64")
