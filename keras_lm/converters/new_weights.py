"""Weights that those of a file replace: no memory before, and one copy from the file's to theirs.

TensorFlow fills new variables, and copies twice what is assigned. Here it gets zeros that take no
memory until they are written to, and values are copied from the file into a new tensor.
"""

import contextlib
import contextvars
import ctypes
import inspect
import math
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from keras_lm.converters.checked_files import in_parts
from keras_lm.tensorflow import tf
from keras_lm.utils.processes import as_array
from keras_lm.utils.user_arguments import is_finite

ALIGNMENT = 64  # bytes: TensorFlow's kernels refuse memory at other addresses
_ARE_REPLACED = contextvars.ContextVar("are_replaced", default=False)


@contextlib.contextmanager
def replaced_weights(are_replaced: bool = True) -> Iterator[None]:
    """A context for networks all of whose weights are assigned at once.

    Drawing random numbers for them would take longer than reading the weights.
    """
    token = _ARE_REPLACED.set(are_replaced)
    try:
        yield
    finally:
        _ARE_REPLACED.reset(token)


def are_replaced() -> bool:
    """Whether the weights that are made now will be replaced."""
    return _ARE_REPLACED.get()


def is_read_by_keras() -> bool:
    """Whether Keras makes a model for a `.keras` file, and assigns all of its weights next.

    It says so to nothing that it calls, so this looks for its function among the callers.
    """
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "_load_model_from_fileobj":
            return True
        frame = frame.f_back
    return False


def zeros(shape: Sequence[int], dtype: Any = None) -> Any:
    """Return a tensor of zeros, whose memory the system provides once it is written to."""
    dtype = keras.backend.standardize_dtype(dtype)
    if not _is_plain(dtype):
        return keras.ops.zeros(shape, dtype)
    memory = np.zeros(_bytes_of(shape, dtype) + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    array = memory[start : start + _bytes_of(shape, dtype)].view(dtype).reshape(shape)
    # (TensorFlow copies such memory before it first changes it.)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def assign(variable: keras.Variable, array: np.ndarray) -> bool:
    """Assign an array to a variable of its shape, cast to its type, with one copy if possible.

    Returns whether all numbers were finite; otherwise the variable may stay as it is.
    """
    if not _is_plain(variable.dtype) or not array.ndim or not array.size:
        if is_whole := all(is_finite(part) for _, part in in_parts(array)):
            variable.assign(array.astype(variable.dtype, copy=False))
        return is_whole
    # NumPy takes five times as long as TensorFlow to transpose a matrix.
    is_transposed = array.ndim == 2 and array.flags.f_contiguous and not array.flags.c_contiguous
    stored = array.T if is_transposed else array
    with tf.device("CPU"):
        tensor = tf.raw_ops.Empty(shape=stored.shape, dtype=variable.dtype, init=False)
    copy = _memory_of(tensor)
    for start, part in in_parts(stored):
        if not is_finite(part):
            return False
        np.copyto(copy[start : start + len(part)], part, casting="unsafe")
    variable.assign(tf.transpose(tensor) if is_transposed else tensor)
    return True


def array_of(variable: Any) -> np.ndarray:
    """Return the values of a variable that stays as it is, without a copy if possible.

    Where several processes have a part of it each, all have to call this.
    """
    if _is_plain(keras.backend.standardize_dtype(variable.dtype)):
        tensor = tf.convert_to_tensor(keras.ops.convert_to_tensor(variable))
        if "CPU" in tensor.device:
            return np.asarray(memoryview(tensor))
    return as_array(variable)


def _is_plain(dtype):
    """Whether tensors of a type are memory that NumPy can write to."""
    is_eager = keras.backend.backend() == "tensorflow" and tf.executing_eagerly()
    return is_eager and dtype in ("float16", "float32", "float64")


def _bytes_of(shape, dtype):
    return math.prod(shape) * np.dtype(dtype).itemsize


def _memory_of(tensor):
    """Return the memory of a new tensor, that nothing else reads yet, as an array to write to."""
    seen = np.asarray(memoryview(tensor))
    memory = (ctypes.c_byte * seen.nbytes).from_address(seen.ctypes.data)
    return np.frombuffer(memory, seen.dtype).reshape(seen.shape)
