"""What users pass to `fit`, `evaluate`, `predict` and `compile`: data → arrays, options checked.

Columns become arrays of equal length by name, or an error says what to pass.
"""

import contextlib
import math
import numbers
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import keras
import numpy as np

from keras_lm.layers.tensorflow import said_by_require
from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.training.progress import no_batches, watched
from keras_lm.utils.batch_iteration import check_verbose, check_whole
from keras_lm.utils.flags import check_flag
from keras_lm.utils.registry import advice
from keras_lm.utils.user_columns import (
    ACCEPTED,
    columns_of,
    plain_column,
    refuse_queries,
    refuse_tables,
)


def columns_from_user(x, names, required=None, lists=()):
    """Return user data as a dict of numpy arrays of equal length, of `bytes` or lists of `bytes`.

    `x` is a list or array of strings, a tuple of two of these (pairs), a list of pairs of strings,
    or a dict keyed by `names`. The `required` names, by default the first, come first and must not
    be missing; rows of the names in `lists` may be lists of strings. A table is read by the names
    of its columns, and may have others. A `ValueError` names the argument, the value and the
    remedy.
    """
    if names_in_table(x) is not None:
        x = columns_of_table(x, names, required)
    if isinstance(x, (str, bytes)) or (
        isinstance(x, tuple) and any(isinstance(part, (str, bytes)) for part in x)
    ):
        raise ValueError(f"x={_short(x)} is a single example: pass a batch, such as [{_short(x)}].")
    if isinstance(x, dict):
        columns = dict(x)
    elif isinstance(x, tuple):
        columns = _pair(x, names)
    else:
        column = as_objects(x, "x")
        if len(column) and all(isinstance(row, dict) for row in column):
            raise ValueError(
                "x is a list of dicts: pass pandas.DataFrame(x), or a dict of lists, "
                f"{{{names[0]!r}: [row[{names[0]!r}] for row in x], …}}."
            )
        is_pair = names[0] not in lists and all(
            isinstance(row, (tuple, list)) and len(row) == 2 for row in column
        )
        if len(column) and is_pair:
            columns = _pair(tuple(zip(*column, strict=True)), names)
        elif len(required or ()) > 1:
            needed = " and ".join(map(repr, required))
            columns = ", ".join(f"{name!r}: […]" for name in required)
            raise ValueError(
                f"x is a {type(x).__name__}, and {needed} are needed: pass {{{columns}}}."
            )
        else:
            columns = {names[0]: column}
    check_names(columns, names, required)
    columns = {
        name: _lists(column, name) if name in lists else _strings(column, name)
        for name, column in columns.items()
    }
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"x has columns of different lengths, {lengths}: they must be equal.")
    return columns


def is_stream(x):
    """Return whether x yields batches: a dataset, a generator or a `keras.utils.PyDataset`."""
    return isinstance(x, (tf.data.Dataset, keras.utils.PyDataset)) or hasattr(x, "__next__")


def names_in_table(x):
    """Return the columns of a DataFrame or of a Hugging Face `Dataset`, None for anything else.

    Raises:
        ValueError: if x holds several datasets, or one that cannot be read by its columns.
    """
    if isinstance(x, dict) and x and all(hasattr(part, "column_names") for part in x.values()):
        splits = [*x]
        raise ValueError(
            f"x is a {type(x).__name__} of {splits}: pass one of them, such as x[{splits[0]!r}]."
        )
    if is_stream(x):
        return None
    refuse_queries(x, "x")
    names = columns_of(x)
    if hasattr(x, "column_names") and not hasattr(x, "__len__"):
        features = getattr(x, "features", None) or {}
        named = [name for name in features if hasattr(features[name], "int2str")]
        label = "batch['label']"
        if named:  # numbers may be those of other classes than the task's
            label = f"x.features[{named[0]!r}].int2str(batch[{named[0]!r}])"
        raise ValueError(
            f"x is a {type(x).__name__}, of unknown length: pass a Dataset, or a generator of "
            f"batches, such as ((batch['text'], {label}) for batch in "
            "x.iter(batch_size=16))."
        )
    return None if names is None else [str(name) for name in names]


def columns_of_table(table, names, required=None):
    """Return the columns of a table that a task needs; others may be labels or ids."""
    column_names, kind = names_in_table(table), type(table).__name__
    for name in names[:1] if required is None else required:
        if name not in column_names:
            other = (column_names or ["…"])[0]
            if hasattr(table, "rename_column"):  # of datasets
                rename = f"x.rename_column({other!r}, {name!r})"
            elif hasattr(table, "rename_columns"):  # of pyarrow
                rename = f"x.rename_columns({{{other!r}: {name!r}}})"
            else:
                columns = "columns=" if hasattr(table, "iloc") else ""
                rename = f"x.rename({columns}{{{other!r}: {name!r}}})"
            raise ValueError(
                f"x is a {kind} with the columns {column_names}, and {name!r} is missing: rename "
                f"one, {rename}, or pass a column, x['…'], or two as a tuple."
            )
    return {name: table[name] for name in names if name in column_names}


def check_names(x, names, required=None):
    """Raise ValueError if a key of `x` is not among `names`, or a required one is missing."""
    required = names[:1] if required is None else required
    if not set(required) <= set(x) <= set(names):
        needed = " and ".join(map(repr, required)) + (" is" if len(required) == 1 else " are")
        raise ValueError(
            f"x has the keys {sorted(x)}: {needed} needed, and allowed are {list(names)}."
        )


def tensors(columns):
    """Return columns of bytes as string tensors (B,), those of lists as ragged ones (B, None).

    Without TensorFlow, they stay arrays and lists.
    """
    if not IS_INSTALLED:
        return columns

    def tensor(column):
        if all(isinstance(value, bytes) for value in column):
            return tf.constant(list(column), tf.string)
        values = [value for row in column for value in row]
        return tf.RaggedTensor.from_row_lengths(
            tf.constant(values, tf.string), [len(row) for row in column]
        )

    return {name: tensor(column) for name, column in columns.items()}


def _pair(x, names):
    if len(x) != 2 or len(names) < 2:
        raise ValueError(
            f"x is a tuple of {len(x)}: a tuple is a pair of texts, and this task takes "
            f"{list(names)}. Pass a list for a batch."
        )
    return dict(zip(names[:2], x, strict=True))


def as_objects(column, name):
    """Return a column as an array of objects; ValueError if it has no rows."""
    kind = type(column).__name__
    refuse_tables(column, name)
    column = plain_column(column, name)
    if hasattr(column, "numpy"):  # a ragged tensor
        column = column.numpy()
    if not is_sequence(column):
        raise ValueError(
            f"{name} is a {kind}: pass {ACCEPTED}, a dict of these, or a tf.data.Dataset of raw "
            "strings."
        )
    array = np.empty(len(column), dtype=object)
    array[:] = list(column)
    return array


def is_sequence(value):
    """Whether rows can be read in their order, as from a list; so from a column of a `Dataset`."""
    if isinstance(value, (str, bytes, dict)):
        return False
    is_list = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    return is_list and getattr(value, "ndim", 1) != 0


def _strings(column, name):
    column = as_objects(column, name)
    for row, value in enumerate(column):
        if isinstance(value, str):
            # A lone surrogate becomes invalid UTF-8, which the tokenizers replace.
            column[row] = value.encode("utf-8", "surrogatepass")
        elif not isinstance(value, bytes):
            raise ValueError(
                f"{name}[{row}] is {_short(value)}, a {type(value).__name__}, and not a string: "
                "replace or drop it."
            )
    return column


def _lists(column, name):
    """The same for a column whose rows are strings, or lists of strings."""
    column = as_objects(column, name)
    if all(isinstance(value, (str, bytes)) for value in column):
        return _strings(column, name)
    for row, value in enumerate(column):
        value = value if isinstance(value, (str, bytes)) else plain_column(value, f"{name}[{row}]")
        if not isinstance(value, (list, tuple, np.ndarray)):
            raise ValueError(
                f"{name}[{row}] is {_short(value)}, a {type(value).__name__}, and not a list of "
                "strings."
            )
        column[row] = list(_strings(value, f"{name}[{row}]"))
    return column


def refuse_empty_words(columns):
    """Raise ValueError if there is an empty string in a column of lists of words."""
    for name, words in columns.items():
        if not isinstance(words, tf.RaggedTensor):
            continue
        for i in np.flatnonzero(words.values.numpy() == b"")[:1]:
            row = int(np.searchsorted(words.row_splits.numpy(), i, "right")) - 1
            raise ValueError(
                f"{name}[{row}] has an empty string among its words: leave it out, and its label, "
                "if words have labels."
            )


def _short(value):
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


NO_CLASS = re.compile(r"label value of (-?\d+) which is outside the valid range of \[0, (\d+)\)")

# What Keras says if there were no batches.
WITHOUT_BATCHES = ("since the metric has not yet been built", "'batch_outputs'")

InvalidArgument = ()

if IS_INSTALLED:
    InvalidArgument = tf.errors.InvalidArgumentError

    class WrongDataError(InvalidArgument, ValueError):
        """Data that a graph refused; the message says what is wrong with them."""

        def __init__(self, message):
            super().__init__(None, None, message)

        def __str__(self):
            return self.message


@contextlib.contextmanager
def watching(options: dict[str, Any], model: keras.Model) -> Any:
    """A context to call Keras's `fit`, `evaluate` or `predict` in.

    A `WatchedSteps` joins their callbacks. Data without batches raise a ValueError, and so do those
    that a graph refuses: a `WrongDataError`.

    Args:
        options: arguments of the call.
        model: the model.
    """
    options["callbacks"] = watched(options.get("callbacks"), model)
    try:
        yield
    except (UnboundLocalError, ValueError) as error:
        if any(words in str(error) for words in WITHOUT_BATCHES):
            raise no_batches() from None
        raise
    except InvalidArgument as error:
        message = _plain(error.message)
        if message is None:
            raise
        raise WrongDataError(message) from None


def _plain(message):
    """Return what an error of a graph says, or None if that is not about data."""
    if said := said_by_require(message):
        return said
    if match := NO_CLASS.search(message):
        last = int(match[2]) - 1
        return f"labels hold {match[1]}, which is not a class: they count from 0 to {last}."
    return None


# === Options ===

# What counts something → the least of it.
COUNTS = {
    "batch_size": 1,
    "epochs": 0,
    "initial_epoch": 0,
    "steps": 1,
    "steps_per_epoch": 1,
    "steps_per_execution": 1,
    "validation_batch_size": 1,
    "validation_freq": 1,
    "validation_steps": 1,
}
FLAGS = ("auto_scale_loss", "group_by_length", "return_dict", "run_eagerly", "shuffle")
REQUIRED = ("epochs", "initial_epoch", "steps_per_execution", "validation_freq")
# Names of further arguments, also those that need no check.
MORE = {
    "fit": (
        *("class_weight", "group_by_length", "sample_weight", "shuffle", "validation_data"),
        *("validation_freq", "validation_steps"),
    ),
    "evaluate": ("callbacks", "return_dict", "sample_weight", "steps"),
    "predict": ("callbacks", "steps"),
    "compile": ("auto_scale_loss", "run_eagerly", "steps_per_execution"),
}


def check_arguments(call: str, more: Mapping[str, Any], **given: Any) -> None:
    """Raise an error that names an argument of a call if its value, or its name, is none.

    Args:
        call: name of the method.
        more: the arguments that it passes on to Keras.
        **given: its own.

    Raises:
        TypeError: if one of `more` is no argument.
        ValueError: if a value is out of its range.
    """
    known = [*given, *MORE[call]]
    for name in more:
        if name not in known and not name.startswith("_"):  # Keras's own
            raise TypeError(f"{call}() has no argument {name!r}.{advice(name, known)}")
    for name, value in {**given, **more}.items():
        if name == "validation_freq" and isinstance(value, (list, tuple, set)):
            for epoch in value:
                check_whole(name, epoch, 1)
        elif name in COUNTS and (value is not None or name in REQUIRED):
            check_whole(name, value, COUNTS[name])
        elif name in CHECKS:
            CHECKS[name](value)


def _check_split(share):
    is_number = isinstance(share, numbers.Real) and not isinstance(share, bool)
    if share is not None and not (is_number and 0 <= share < 1):
        raise ValueError(
            f"validation_split={share!r}: pass a share of the rows, 0 or more and less than 1."
        )


def _check_callbacks(callbacks):
    if isinstance(callbacks, keras.callbacks.CallbackList):
        return
    is_list = isinstance(callbacks, Iterable) and not isinstance(callbacks, (str, Mapping))
    for callback in callbacks if is_list else [callbacks]:
        is_none = callback is None and not is_list
        if not (is_none or isinstance(callback, keras.callbacks.Callback)):
            raise ValueError(
                f"callbacks has {callback!r}: pass objects of keras.callbacks.Callback, in a list."
            )


def _check_optimizer(optimizer):
    is_config = isinstance(optimizer, dict) and "class_name" in optimizer
    if not (optimizer is None or is_config or isinstance(optimizer, (str, keras.Optimizer))):
        raise ValueError(
            f"optimizer={optimizer!r}: pass a keras.Optimizer, such as "
            "keras_lm.training.AdamW(5e-5), its name, or 'auto'."
        )


def _check_loss(loss):
    for value in keras.tree.flatten(loss):
        is_loss = isinstance(value, (str, keras.Loss, Callable))
        if value is not None and not is_loss:
            raise ValueError(
                f"loss={value!r}: pass a keras.Loss, a function of labels and outputs, the name of "
                "one, or 'auto'."
            )


def _check_loss_weights(weights):
    for weight in keras.tree.flatten(weights):
        is_number = isinstance(weight, numbers.Real) and not isinstance(weight, bool)
        if weight is not None and not (is_number and 0 <= weight < math.inf):
            raise ValueError(f"loss_weights has {weight!r}: pass finite numbers, 0 or more.")


CHECKS = {
    **{name: partial(check_flag, name) for name in FLAGS},
    "verbose": check_verbose,
    "callbacks": _check_callbacks,
    "loss": _check_loss,
    "loss_weights": _check_loss_weights,
    "optimizer": _check_optimizer,
    "validation_split": _check_split,
}
