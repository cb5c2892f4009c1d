"""Options of generation, with a value for each of the B rows of a batch."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_lm.layers.tensorflow.tracing import required
from keras_lm.tensorflow import tf


@dataclasses.dataclass(frozen=True)
class Option:
    """An option; `allowed` tests arrays or tensors, and `words` describes the test in errors."""

    dtype: str
    default: float
    allowed: Callable
    words: str

    def message(self, name, value=""):
        """Return the error message for a value; in the graph, the value is unknown."""
        return f"{name}={value} is out of range: it must be {self.words}."


FRESH_SEED = -1
OPTIONS = {
    "max_new_tokens": Option("int32", 50, lambda x: x >= 0, "0 or more"),
    "temperature": Option(
        "float32", 0.0, lambda x: (x >= 0) & (x < np.inf), "0 (greedy), or a number above 0"
    ),
    "top_k": Option("int32", 0, lambda x: x >= 0, "0 (keeps all tokens), or more"),
    "top_p": Option("float32", 1.0, lambda x: (x > 0) & (x <= 1), "above 0 and at most 1"),
    "repetition_penalty": Option(
        "float32", 1.0, lambda x: (x > 0) & (x < np.inf), "1 (no penalty), or a number above 0"
    ),
    "no_repeat_ngram_size": Option("int32", 0, lambda x: x >= 0, "0 (off), or more"),
    "seed": Option(
        "int64", FRESH_SEED, lambda x: x >= FRESH_SEED, f"0 or more, or {FRESH_SEED} for a new one"
    ),
}


class Options(NamedTuple):
    """The options of a batch, tensors (B,) in the order of `OPTIONS`.

    `forbidden` (B, F, L) are sequences of tokens that must not occur, padded with -1 on the left,
    or None.
    """

    max_new_tokens: tf.Tensor
    temperature: tf.Tensor
    top_k: tf.Tensor
    top_p: tf.Tensor
    repetition_penalty: tf.Tensor
    no_repeat_ngram_size: tf.Tensor
    seed: tf.Tensor
    forbidden: tf.Tensor | None


def check_options(**values):
    """Check options outside of the graph; names are those in `OPTIONS`, values numbers or lists."""
    for name, value in values.items():
        option, array = OPTIONS[name], np.asarray(value)
        kinds = "iu" if "int" in option.dtype else "iuf"
        if array.dtype.kind not in kinds or array.ndim > 1:
            what = "a whole number" if kinds == "iu" else "a number"
            raise ValueError(f"{name}={value!r} is not {what}: it must be {option.words}.")
        is_held = kinds == "iuf" or np.all(array <= np.iinfo(option.dtype).max)
        if not (is_held and np.all(option.allowed(array))):
            raise ValueError(option.message(name, value))


def batch_options(rows, forbidden=None, **values):
    """Return `Options` in the graph, with defaults for those that are missing.

    `forbidden` (F, L) holds for all rows. `values` are scalars, (1,) or (B,). A value out of range
    is an error when the graph runs.
    """
    batch = {}
    for name, option in OPTIONS.items():
        value = tf.cast(values.pop(name, option.default), option.dtype)
        value = required(value, option.allowed(value), option.message(name, "…"))
        batch[name] = tf.broadcast_to(value, [rows])
    if values:
        raise ValueError(f"{sorted(values)} are not options: use {sorted(OPTIONS)}.")
    if forbidden is not None:
        forbidden = tf.tile(forbidden[tf.newaxis], [rows, 1, 1])
    return Options(**batch, forbidden=forbidden)


def repeat_rows(structure, times):
    """Repeat each row of every tensor in a structure: rows 0, 0, 1, 1, … for 2."""
    return keras.tree.map_structure(
        lambda x: None if x is None else ops.repeat(x, times, axis=0), structure
    )
