"""The labels of words, by text or by token. Shapes: B batch, W words, S sequence, C classes.

Numbers are ragged (B, W), one-hot and soft labels (B, W, C); with packed inputs, or at the first
pieces of words, they are (B, S) and (B, S, C).
"""

import numpy as np
from keras import ops

from keras_lm.layers.tensorflow.tracing import require
from keras_lm.objectives import IGNORED
from keras_lm.objectives.losses import label_weights
from keras_lm.tasks import classes, label_forms
from keras_lm.tasks.classes import class_numbers, indices_of
from keras_lm.tensorflow import tf


def prepared(task, labels):
    """Return the labels of rows as a tagger's loss takes them; see `TokenClassifier`."""
    labels = classes.without_last_axis(labels, task.num_classes) if labels.ndim > 2 else labels
    if labels.ndim == 2 and labels.dtype.kind in "iu":
        _check_numbers(task, labels.reshape(-1), lambda i: divmod(i, labels.shape[1]))
        return labels.astype("int32")
    if any(map(_has_vectors, labels)):
        return _prepared_vectors(task, labels)
    rows = [_row(label, number) for number, label in enumerate(labels)]
    flat = [label for row in rows for label in row]
    splits, place = _places(rows)
    if any(isinstance(label, (str, bytes)) for label in flat):
        flat = class_numbers(task, flat, lambda i: "[{}][{}]".format(*place(i)))
    flat = np.array(flat, "int32")
    _check_numbers(task, flat, place)
    return tf.RaggedTensor.from_row_splits(flat, splits)


def _row(labels, number):
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


def _prepared_vectors(task, labels):
    """The same of one-hot or soft labels."""
    rows = []
    for number, row in enumerate(labels):
        try:
            row = np.asarray(row, "float32") if len(row) else np.zeros((0, task.num_classes))
        except (TypeError, ValueError):
            row = np.zeros(())  # of no shape at all
        if row.ndim != 2 or row.shape[1] != task.num_classes:
            raise ValueError(
                f"labels[{number}] has shape {row.shape or 'none'}, but num_classes="
                f"{task.num_classes}: pass for each word a name or a number, or for each one-hot "
                f"or soft labels, (words, {task.num_classes})."
            )
        rows.append(row)
    splits, place = _places(rows)
    flat = label_forms.check_probabilities(
        np.concatenate(rows), _loss(task), lambda i: "[{}][{}]".format(*place(i)), gaps=True
    )
    if labels.ndim == 3:
        return flat.reshape(*labels.shape[:2], *flat.shape[1:])
    return tf.RaggedTensor.from_row_splits(flat, splits)


def prepared_tensor(task, labels):
    """The same of a batch of a `tf.data.Dataset`, in the graph."""
    if labels.dtype == tf.string:
        if task.class_names is None:
            raise ValueError(
                "x is a tf.data.Dataset with string labels: make the task with class_names."
            )
        labels = ragged(labels)
        return labels.with_values(indices_of(labels.values, task.class_names))
    if labels.shape.rank != 3:
        return tf.ragged.map_flat_values(
            lambda flat: label_forms.check_number_tensor(flat, task.num_classes, gaps=True), labels
        )
    if isinstance(labels, tf.RaggedTensor) and labels.ragged_rank == 2:
        labels = labels.with_values(labels.values.to_tensor())
    if labels.shape[2] not in (None, task.num_classes):
        raise ValueError(
            f"labels has shape {labels.shape}, but num_classes={task.num_classes}: let the dataset "
            f"yield numbers, or one-hot or soft labels with a last axis of {task.num_classes}."
        )
    return tf.ragged.map_flat_values(
        lambda flat: label_forms.check_probability_tensor(flat, _loss(task), gaps=True), labels
    )


def without_ignored(labels, outputs, sample_weight):
    """Return labels that a loss of Keras's takes, and weights with which it is the mean of words.

    Ignored words, which the loss would count, have a weight of 0.
    """
    if classes.is_number(labels, outputs):
        known = ops.not_equal(labels, IGNORED)
        labels = ops.where(known, labels, 0)
    else:
        known = ops.sum(labels, axis=-1) > 0
    number = ops.sum(ops.cast(known, "float32"))
    size = ops.cast(ops.size(known), "float32")
    weights = label_weights(ops.where(known, 0, IGNORED), sample_weight)
    return labels, weights * ops.divide_no_nan(size, number)


def placed(labels, words, places, shape, rest=0.0):
    """Return what each word has at its first piece: (B, S) or (B, S, C).

    Elsewhere it is `IGNORED` or, of floats, `rest`. Of words that share a piece, the first counts.
    """
    labels = ragged(labels)
    splits = [tf.cast(each.row_splits, tf.int64) for each in (labels, words)]
    same = require(splits[0] == splits[1], "labels: there must be one for each word", *splits)
    values = labels.values
    values = values if values.dtype.is_floating else tf.cast(values, tf.int32)
    rest = tf.constant(rest if values.dtype.is_floating else IGNORED, values.dtype)
    inner = tf.shape(values)[1:]
    with tf.control_dependencies([same]):
        seen = tf.where((places >= 0) & ~is_of_word_before(places))
        filled = tf.tensor_scatter_nd_update(
            tf.fill(tf.concat([[tf.reduce_prod(shape)], inner], 0), rest),
            tf.gather_nd(places, seen)[:, tf.newaxis],
            tf.gather_nd(values, seen),
        )
    return tf.reshape(filled, tf.concat([shape, inner], 0))


def is_of_word_before(places):
    """Return whether the place of each word is that of the word before it, (N,) bool."""
    before = tf.concat([[-1], places[:-1]], axis=0)
    return (places == before) & (places >= 0)


def ragged(x):
    """Return a tensor of rows as a ragged one, which it may be already."""
    return x if isinstance(x, tf.RaggedTensor) else tf.RaggedTensor.from_tensor(x)


def _loss(task):
    """Return the loss, or of a CRF without another one a loss that takes numbers as it does."""
    return task.loss or "sparse_categorical_crossentropy"


def _has_vectors(row):
    if isinstance(row, np.ndarray):
        return row.ndim == 2
    return isinstance(row, (list, tuple)) and any(
        isinstance(label, (list, tuple, np.ndarray)) for label in row
    )


def _places(rows):
    """Return the splits (B + 1,) of rows, and a function from a place in all to row and column."""
    splits = np.cumsum([0, *(len(row) for row in rows)])

    def place(index):
        row = int(np.searchsorted(splits, index, "right")) - 1
        return row, index - splits[row]

    return splits, place


def _check_numbers(task, flat, place):
    is_wrong = (flat != IGNORED) & ((flat < 0) | (flat >= task.num_classes))
    for i in np.flatnonzero(is_wrong)[:1]:
        row, column = place(i)
        raise ValueError(
            f"labels[{row}][{column}]={flat[i]}, but num_classes={task.num_classes}: classes "
            f"count from 0 to {task.num_classes - 1}, and {IGNORED} leaves a word out."
        )
