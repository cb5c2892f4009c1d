"""A task's labels: from what users pass to what its loss and its metrics compare.

Shapes: B batch, C classes.
"""

import json
import numbers
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from keras_lm.feeding.preprocessor import Preprocessor
from keras_lm.feeding.user_data import (
    as_objects,
    columns_of_table,
    is_sequence,
    is_stream,
    names_in_table,
)
from keras_lm.objectives.losses import CompiledLosses
from keras_lm.tensorflow import tf
from keras_lm.utils.argument_types import Tensor
from keras_lm.utils.user_columns import ACCEPTED, names_of_feature, plain_column, refuse_queries


class TaskLabels:
    """The labels of a task; a subclass says what they are, and overrides what differs.

    Labels take this way: `of_names` reads those in a dict, `prepare` checks a whole array on the
    host (`prepare_tensor` a batch of a `tf.data.Dataset`, in the graph), `match` compares them with
    their texts; in a step, `for_loss` and `for_metrics` give them the form that each compares.

    Attributes:
        loss: what the task was compiled with.
        task: name of the task's class, for errors.
        class_names: list of str, or None if there are none, or none are known yet.
        multi_label: whether a row has any number of classes.
        are_needed: whether data to learn from and to evaluate on must come with labels.
        remedy: what to do where they are missing, for the error.
        columns: what a table's column of labels may be called.
    """

    loss, task = None, "The task"
    class_names = None
    multi_label = False
    are_needed = True
    remedy = "pass y, the labels of x"
    columns = ("labels", "label")

    # === From users ===

    def names(self, is_packed: bool) -> list[str]:
        """Return the keys that a dict of labels may have; without any, labels are no dict."""
        return [name for name in CompiledLosses(self.loss).by_output if name is not None]

    def of_names(self, labels: dict[str, Any], is_packed: bool) -> Any:
        """Return labels in a dict as `prepare` takes them, or as they are."""
        return labels

    def learn_names(self, names: list[str]) -> None:
        """Take the names that a table has for the numbers of its labels, if there are none yet."""

    def prepare(self, labels: np.ndarray) -> Any:
        """Return labels, an array with a row per example, as `match` and the loss take them."""
        return labels

    def prepare_tensor(self, labels: Tensor) -> Any:
        """The same for a batch of a `tf.data.Dataset`, in the graph."""
        return labels

    def match(self, labels: Any, columns: Mapping[str, Any], is_packed: bool) -> Any:
        """Return prepared labels for texts or packed inputs; raise an error if they do not fit."""
        return labels

    # === In a step ===

    def for_loss(self, labels: Any, outputs: Any, sample_weight: Tensor) -> Any:
        """Return labels and their weights as the compiled loss compares them with outputs."""
        return labels, sample_weight

    def for_metrics(self, labels: Any, outputs: Any) -> Any:
        """Return labels of a batch as metrics compare them with outputs."""
        return labels

    def measured(self, labels: Any) -> Any:
        """Return those of a batch's labels that metrics compare; None if there are none."""
        return labels

    # === What `compile` and `fit` were given for them ===

    def compiled(self, loss: Any, task: str) -> None:
        """Take the loss of `compile`, and the name of the task's class."""
        self.loss, self.task = loss, task

    def check_loss(self, loss: Any) -> None:
        """Raise an error, or warn, if a loss does not fit the task's outputs."""

    def metric(self, metric: Any) -> Any:
        """Return a metric, or its name, as it fits labels and outputs."""
        return metric

    def class_weights(self, class_weight: Any, labels: Any = None) -> list[float]:
        """Return the weight of each class, in their order, for `class_weight` of `fit`.

        `labels` are all of them, prepared, or None where they are not in memory.
        """
        raise ValueError(
            f"class_weight weighs classes, and {self.task} has none: pass sample_weight, a number "
            "for each text."
        )


class Feed(NamedTuple):
    """What turns a user's data into batches: `task.feed`.

    `strategy` is the `tf.distribute.Strategy` whose replicas take them.
    """

    preprocessor: Preprocessor
    labels: TaskLabels
    strategy: Any


# === Users' labels → arrays with a row per example, or an error that says what to pass ===

# Labels of a row, as opposed to a column of a library.
PLAIN = (
    *(str, bytes, int, float, list, tuple, dict, set, frozenset),
    *(np.ndarray, np.generic, type(None)),
)

ROWLESS = (str, bytes, bytearray, memoryview, Mapping, type)


def label_column(labels, x):
    """Return the name of a table's column of labels; None if there is none, or x is not a table."""
    column_names = names_in_table(x) or ()
    return next((name for name in labels.columns if name in column_names), None)


def labelled(feed, x, y):
    """Return texts and labels: of a table without `y`, its columns, and that of the labels.

    Raises:
        ValueError: if the task needs labels, and a table has none; if they are a dict with other
            names than the task's.
    """
    column_names = names_in_table(x)
    labels, is_packed = feed.labels, feed.preprocessor.is_packed(x)
    check_label_names(labels, y, is_packed)
    if isinstance(y, Mapping):
        y = labels.of_names(dict(y), is_packed)
    else:
        y = _in_order_of_classes(labels, _one_column(y))
    if column_names is None:
        return x, by_names_of(labels, y)
    if y is None and labels.are_needed:
        column = label_column(labels, x)
        if column is None:
            raise ValueError(
                f"labels are missing: x is a {type(x).__name__} with the columns "
                f"{column_names}. Rename that of the labels to {labels.columns[0]!r}, or pass "
                "it as y."
            )
        y = by_names_of(labels, x[column], _feature(x, column))
    else:
        y = by_names_of(labels, y)
    rows = feed.preprocessor.rows
    return columns_of_table(x, rows.names, rows.required), y


def check_label_names(labels, y, is_packed, name="y"):
    """Raise ValueError if `y` is a dict, and not by names of the task's labels."""
    if not isinstance(y, Mapping):
        return
    known = sorted(labels.names(is_packed))
    if not y or not {*y} <= {*known}:
        needed = f"a dict with the keys {known}" if known else "a list with a label for each row"
        raise ValueError(
            f"{name} is a {type(y).__name__} with the keys {[*y][:10]}: {labels.task} "
            f"takes {needed}."
        )


def _one_column(y):
    """Return the column of a table of labels with one; others are as they are."""
    column = getattr(y, "column_name", None)
    if type(y).__name__ == "IterableColumn" and (
        names := names_of_feature(_feature(y.source, column))
    ):
        raise ValueError(
            f"y is an IterableColumn, of unknown length, whose numbers are the classes {names}: "
            f"pass names, [y.source.features[{column!r}].int2str(each) for each in y]."
        )
    refuse_queries(y, "y")
    names = None if is_stream(y) or isinstance(y, dict) else getattr(y, "column_names", None)
    if names is not None and len(names) != 1:
        raise ValueError(
            f"y is a {type(y).__name__} with the columns {[*names]}: pass one, y[{names[0]!r}]."
        )
    return y if names is None else y[names[0]]


def _in_order_of_classes(labels, y):
    """Return a DataFrame with a column for each class in the order of the task's classes."""
    classes = labels.class_names
    columns = None if is_stream(y) else getattr(y, "columns", None)
    if classes is None or columns is None or len(columns) < 2:
        return y
    by_name = {str(column): column for column in columns}
    if {*by_name} == {*classes}:
        return y[[by_name[name] for name in classes]]
    if any(isinstance(column, str) for column in columns):
        raise ValueError(
            f"y is a {type(y).__name__} with the columns {[*by_name]}, and class_names are "
            f"{classes}: pass one column, one for each class by its name, or y.to_numpy() with "
            "columns in the order of class_names."
        )
    return y


def by_names_of(labels, y, feature=None):
    """Return labels whose numbers a Hugging Face `Dataset` names as numbers of the task's classes.

    Of several labels a row, those of `multi_label`, it returns names. A task without `class_names`
    learns those of the `Dataset`. Labels without names, and those of a task without classes, are
    returned as they are.

    Args:
        labels: the task's `TaskLabels`.
        y: column of labels, of a `Dataset` or not.
        feature: the `ClassLabel` of the column, or a sequence of it; None for that of `y`.

    Raises:
        ValueError: if a name is not in `class_names`, or the task has another number of classes.
    """
    names = names_of_feature(getattr(y, "features", None) if feature is None else feature)
    if names is None:
        return y
    labels.learn_names(names)
    classes, is_multi_label = labels.class_names, labels.multi_label
    if classes is None or (names == classes and not is_multi_label):
        return y

    def renamed(label):
        if isinstance(label, (list, tuple, np.ndarray)) and np.ndim(label):
            return [renamed(item) for item in label]
        if not isinstance(label, numbers.Integral) or not 0 <= label < len(names):
            return label  # -100, or nothing that the feature names
        if names[label] not in classes:
            raise ValueError(
                f"the table calls a label {names[label]!r}, and class_names are {classes}: make "
                f"the task with class_names={names}, or pass the table's numbers as a list, y."
            )
        return names[label] if is_multi_label else classes.index(names[label])

    return [renamed(label) for label in plain_column(y, "y")]


def named_column(labels, name):
    """Return the names for a column of numbers that is of a table which names them.

    Others, and lists, are returned as they are.
    """
    names = names_of_feature(getattr(labels, "features", None))
    if names is None:
        return labels

    def named(label):
        if isinstance(label, (list, tuple, np.ndarray)):
            return [named(item) for item in label]
        is_known = isinstance(label, numbers.Integral) and 0 <= label < len(names)
        return names[label] if is_known else label

    return [named(label) for label in plain_column(labels, name)]


def _feature(table, column):
    """Return the feature of a column that a table of `datasets`, or one from it, states."""
    features = getattr(table, "features", None)
    metadata = getattr(getattr(table, "schema", None), "metadata", None)
    if isinstance(metadata, Mapping) and b"huggingface" in metadata:  # of pyarrow
        features = json.loads(metadata[b"huggingface"]).get("info", {}).get("features")
    return features.get(column) if isinstance(features, Mapping) else None


def labels_from_user(labels, length, name="labels"):
    """Return labels as an array with a row per example; ValueError if their number differs."""
    labels = plain_column(labels, name)
    if isinstance(labels, tf.RaggedTensor):
        labels = labels.to_list()
    has_rows = hasattr(labels, "__len__") or hasattr(labels, "ndim")
    if isinstance(labels, ROWLESS) or not (has_rows or isinstance(labels, numbers.Number)):
        raise ValueError(
            f"{name} is a {type(labels).__name__}: pass {ACCEPTED}, with a row for each of the "
            f"{length} examples."
        )
    is_column = is_sequence(labels) and not hasattr(labels, "__array__")
    is_object = isinstance(labels, np.ndarray) and labels.dtype.kind == "O" and labels.ndim
    if is_column or (is_object and all(map(_is_row, labels))):  # of a Series of lists
        labels = [
            row if isinstance(row, PLAIN) else plain_column(row, f"{name}[{i}]")
            for i, row in enumerate(labels)
        ]
    try:
        labels = np.asarray(labels)
    except ValueError:  # lists of different lengths: the classes of a multi-label row
        labels = as_objects(labels, name)
    if labels.ndim == 0 or len(labels) != length:
        raise ValueError(
            f"{name} has {len(labels) if labels.ndim else 1} rows for {length} examples: pass one "
            "a row."
        )
    return labels


def weights_from_user(weights, length):
    """Return `sample_weight` as an array of numbers with a row per example."""
    weights = labels_from_user(weights, length, "sample_weight")
    is_number = weights.dtype.kind in "biuf"
    for row, weight in enumerate(weights):
        if not (is_number or isinstance(weight, (int, float))) or np.isnan(weight).any():
            raise ValueError(f"sample_weight[{row}]={weight!r} is not a number.")
    return weights if is_number else weights.astype("float32")


def _is_row(value):
    return isinstance(value, (list, tuple, np.ndarray))
