"""Labels as numbers or as probabilities of classes. Shapes: N labels, C classes."""

import numpy as np

from keras_lm.layers.tensorflow.tracing import required
from keras_lm.objectives import IGNORED
from keras_lm.tasks.classes import takes_numbers
from keras_lm.tensorflow import tf

TOLERANCE = 0.01  # of a sum of probabilities, which may come from a model in half precision


def check_probabilities(labels, loss, place=lambda row: f"[{row}]", gaps=False):
    """Return labels (N, C) as a loss takes them: float32, or numbers (N,) int32.

    Rows of zeros mean no label where `gaps` may be; their number is `IGNORED`.

    Raises:
        ValueError: if a row does not hold probabilities, or none of its classes is certain and the
            loss takes numbers.
    """
    try:
        labels = labels.astype("float32")
    except (TypeError, ValueError) as error:
        raise ValueError(f"labels are neither class numbers nor probabilities: {error}.") from error
    sums = labels.sum(axis=-1)
    is_gap = (labels == 0).all(axis=-1) & gaps
    is_right = (labels >= 0).all(axis=-1) & (np.abs(sums - 1) < TOLERANCE)
    for row in np.flatnonzero(~(is_right | is_gap))[:1]:
        raise ValueError(
            f"labels{place(row)}={labels[row]} is neither one-hot nor soft: pass probabilities of "
            "the classes, which sum to 1."
        )
    if not takes_numbers(loss):
        return labels
    for row in np.flatnonzero(~is_gap & (labels.max(axis=-1) < 1 - TOLERANCE))[:1]:
        raise ValueError(f"labels{place(row)}={labels[row]} is soft. {_remedy(loss)}")
    return np.where(is_gap, IGNORED, labels.argmax(axis=-1)).astype("int32")


def check_number_tensor(labels, num_classes=None, gaps=False):
    """Return numbers as int32, which fails in the graph if one of them is not a class."""
    numbers = tf.cast(labels, tf.int32)
    is_right = (tf.cast(numbers, labels.dtype) == labels) & (numbers >= 0)
    if num_classes is not None:
        is_right &= numbers < num_classes
    last = "" if num_classes is None else f" to {num_classes - 1}"
    if gaps:
        is_right |= numbers == IGNORED
    message = f"labels hold a number that is not a class: they count from 0{last}, and one is"
    return _if(is_right, numbers, message, labels)


def check_share_tensor(labels):
    """Return labels of any number of classes as they are, which fails if one is not 0 to 1."""
    is_right = (labels >= 0) & (labels <= 1)
    message = "labels hold more than 0 and 1 for the classes, and one is"
    return _if(is_right, labels, message, labels)


def check_probability_tensor(labels, loss, gaps=False):
    """As `check_probabilities` for a tensor (…, C); what is wrong fails in the graph."""
    labels = tf.cast(labels, tf.float32)
    is_gap = tf.reduce_all(labels == 0, axis=-1) & gaps
    is_right = tf.abs(tf.reduce_sum(labels, axis=-1) - 1) < TOLERANCE
    is_right &= tf.reduce_all(labels >= 0, axis=-1)
    labels = _if(
        is_right | is_gap,
        labels,
        "labels hold a row that is neither one-hot nor soft: pass probabilities of the classes, "
        "which sum to 1; it is",
        labels,
    )
    if not takes_numbers(loss):
        return labels
    is_certain = tf.reduce_max(labels, axis=-1) > 1 - TOLERANCE
    message = f"labels hold a soft one. {_remedy(loss)} It is"
    labels = _if(is_certain | is_gap, labels, message, labels)
    return tf.where(is_gap, IGNORED, tf.argmax(labels, axis=-1, output_type=tf.int32))


def _remedy(loss):
    name = getattr(loss, "name", loss)
    return (
        f"The loss {name!r} takes class numbers: compile with "
        "loss=keras.losses.CategoricalCrossentropy(from_logits=True)."
    )


def _if(is_right, value, message, given):
    """Return a value, which fails in the graph with a message and the first that is not right."""
    return required(value, is_right, message, tf.boolean_mask(given, ~is_right)[:1])
