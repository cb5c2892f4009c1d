"""The processes of `keras.distribution.initialize`, with Keras's JAX backend: who writes, and what.

Without that there is one process, which is the chief.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

IS_JAX = keras.backend.backend() == "jax"
if IS_JAX:
    import jax
    from jax.experimental import multihost_utils


def number_of_processes() -> int:
    """Return how many processes there are."""
    return jax.process_count() if IS_JAX else 1


def index_of_process() -> int:
    """Return the index of this process, 0 for the chief, which writes all files."""
    return jax.process_index() if IS_JAX else 0


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


def write_by_chief(write: Callable[[], Any]) -> None:
    """Call a function on the chief; all processes go on once it has returned."""
    if index_of_process() == 0:
        write()
    if number_of_processes() > 1:
        multihost_utils.sync_global_devices("keras_lm: the chief has written")
