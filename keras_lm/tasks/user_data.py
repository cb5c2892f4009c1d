"""What users pass → equally long arrays by name, or an error that says what to pass."""

import numpy as np
import tensorflow as tf


def columns_from_user(x, names, required=None, lists=()):
    """Return user data as a dict of equally long numpy arrays of `bytes`, or of lists of these.

    `x` is a list or array of strings, a tuple of two such (a pair), a list of pairs of strings, or
    a dict keyed by `names`. Of these, the `required` ones, by default the first, come first and may
    not be missing; rows of those in `lists` may be lists of strings. A DataFrame is read by the
    names of its columns, and may have others. An error (`ValueError`) names the argument, the value
    and the remedy.
    """
    if hasattr(x, "columns"):
        x = _columns_of_frame(x, names, required)
    if isinstance(x, (str, bytes)) or (
        isinstance(x, tuple) and any(isinstance(part, (str, bytes)) for part in x)
    ):
        raise ValueError(f"x={_short(x)} is a single example: pass a batch, such as [{_short(x)}].")
    if isinstance(x, dict):
        columns = dict(x)
    elif isinstance(x, tuple):
        columns = _pair(x, names)
    else:
        column = _as_objects(x, "x")
        is_pair = names[0] not in lists and all(
            isinstance(row, (tuple, list)) and len(row) == 2 for row in column
        )
        if len(column) and is_pair:
            columns = _pair(tuple(zip(*column, strict=True)), names)
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


def _columns_of_frame(frame, names, required=None):
    """Return the columns of a DataFrame that a task takes; others may be labels or ids."""
    found = [str(name) for name in frame.columns]
    for name in names[:1] if required is None else required:
        if name not in found:
            raise ValueError(
                f"x is a DataFrame with the columns {found}, and {name!r} is none of them: rename "
                f"one, df.rename(columns={{{(found or ['…'])[0]!r}: {name!r}}}), or pass a column, "
                "df['…'], or two as a tuple."
            )
    return {name: frame[name] for name in names if name in found}


def check_names(x, names, required=None):
    """Raise ValueError if a key of `x` is not among `names`, or a required one is missing."""
    required = names[:1] if required is None else required
    if not set(required) <= set(x) <= set(names):
        needed = " and ".join(map(repr, required)) + (" is" if len(required) == 1 else " are")
        raise ValueError(
            f"x has the keys {sorted(x)}: {needed} needed, and allowed are {list(names)}."
        )


def tensors(columns):
    """Return columns of bytes as string tensors (B,), those of lists as ragged ones (B, None)."""

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
    return dict(zip(names, x, strict=True))


def _as_objects(column, name):
    if hasattr(column, "to_numpy"):  # pandas
        column = column.to_numpy()
    elif hasattr(column, "numpy"):  # TensorFlow
        column = column.numpy()
    if not isinstance(column, (list, tuple, np.ndarray)):
        raise ValueError(
            f"{name} is a {type(column).__name__}: pass a list, an array, a dict of these, or a "
            "tf.data.Dataset of raw strings."
        )
    array = np.empty(len(column), dtype=object)
    array[:] = list(column)
    return array


def _strings(column, name):
    column = _as_objects(column, name)
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
    column = _as_objects(column, name)
    if all(isinstance(value, (str, bytes)) for value in column):
        return _strings(column, name)
    for row, value in enumerate(column):
        if not isinstance(value, (list, tuple, np.ndarray)):
            raise ValueError(
                f"{name}[{row}] is {_short(value)}, a {type(value).__name__}, and not a list of "
                "strings."
            )
        column[row] = list(_strings(value, f"{name}[{row}]"))
    return column


def labels_from_user(labels, length):
    """Return labels as an array with a row per example; ValueError if their number differs."""
    if hasattr(labels, "to_numpy"):
        labels = labels.to_numpy()
    elif isinstance(labels, tf.RaggedTensor):
        labels = labels.to_list()
    try:
        labels = np.asarray(labels)
    except ValueError:  # lists of different lengths: the classes of a multi-label row
        labels = _as_objects(labels, "labels")
    if labels.ndim == 0 or len(labels) != length:
        raise ValueError(
            f"labels has {len(labels) if labels.ndim else 1} rows for {length} examples: pass one "
            "a row."
        )
    return labels


def row_of_labels(labels, number):
    """Return the labels of one text's words, names or integers, as a list."""
    if isinstance(labels, (list, tuple, np.ndarray)):
        labels = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
        for column, label in enumerate(labels):
            if not isinstance(label, (str, bytes, int, np.integer)):
                raise ValueError(
                    f"labels[{number}][{column}]={label!r} is neither a class name nor an integer."
                )
        return labels
    raise ValueError(
        f"labels[{number}]={labels!r}: pass a list with a label for each word of the text."
    )


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
