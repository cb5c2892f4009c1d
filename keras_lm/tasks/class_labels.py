"""Labels that are classes, in every form. Shapes: B batch, S sequence, C classes.

Of one class for each row, or word, labels are numbers, (B,) or (B, S), or they are one-hot or soft,
(B, C) or (B, S, C), which sum to 1. Losses take one of these forms, metrics numbers.
"""

import inspect
import warnings

import keras
import numpy as np
from keras import ops

from keras_lm.objectives import IGNORED
from keras_lm.objectives.losses import MeanLoss
from keras_lm.tensorflow import tf

TOLERANCE = 0.01  # of a sum of probabilities, which may come from a model in half precision
OF_NUMBERS = ("sparse_categorical_crossentropy", "categorical_generalized_cross_entropy")


@keras.saving.register_keras_serializable("keras_lm")
class ClassCrossentropy(keras.losses.Loss):
    """Cross-entropy of logits, with labels in either form.

    Call: `loss(labels, logits, sample_weight=None)`; labels are class numbers, (B,), or one-hot or
    soft, (B, C) as the logits.
    """

    def __init__(self, name="class_crossentropy", **kwargs):
        super().__init__(name=name, **kwargs)

    def call(self, labels, logits):
        is_number = len(labels.shape) < len(logits.shape)
        losses = keras.losses
        function = (
            losses.sparse_categorical_crossentropy if is_number else losses.categorical_crossentropy
        )
        return function(labels, logits, from_logits=True)


def for_loss(loss, labels, outputs):
    """Return labels of one class each in the form that a compiled loss takes."""
    if is_number(labels, outputs) and takes_numbers(loss) is False:
        return ops.one_hot(ops.cast(labels, "int32"), ops.shape(outputs)[-1])
    return labels


def for_metrics(labels, outputs):
    """Return class numbers: of soft labels the likeliest, `IGNORED` where all are 0."""
    if is_number(labels, outputs):
        return labels
    number = ops.cast(ops.argmax(labels, axis=-1), "int32")
    return ops.where(ops.sum(labels, axis=-1) > 0, number, IGNORED)


def is_number(labels, outputs):
    """Return whether labels are numbers: they lack the last axis of the outputs."""
    return len(labels.shape) < len(outputs.shape)


def takes_numbers(loss):
    """Return whether a loss takes class numbers; None if it takes either form, or is unknown."""
    (loss,) = keras.tree.flatten(loss) or [None]
    if isinstance(loss, MeanLoss):
        return True
    name = _name_in_keras(loss)
    return None if name is None else name in OF_NUMBERS


def warn_of_probabilities(loss):
    """Warn if a loss of Keras's compares labels with probabilities, as outputs are logits."""
    (loss,) = keras.tree.flatten(loss) or [None]
    name, options = _name_in_keras(loss), getattr(loss, "_fn_kwargs", {})
    if name is None:
        return
    parameters = inspect.signature(getattr(keras.losses, name)).parameters
    if name in ("kl_divergence", OF_NUMBERS[1]):
        remedy = "keras.losses.CategoricalCrossentropy(from_logits=True), which does"
    elif "from_logits" in parameters and not options.get("from_logits"):
        kind = "".join(map(str.capitalize, name.split("_")))
        remedy = f"keras.losses.{kind}(from_logits=True)"
    else:
        return
    warnings.warn(
        f"The loss {name} takes probabilities, and the task's outputs are logits: compile with "
        f"loss={remedy}.",
        stacklevel=4,
    )


def _name_in_keras(loss):
    """Return the name of the function of `keras.losses` that a loss computes, None of others."""
    if isinstance(loss, str) and loss not in ("auto", "crossentropy", "ce"):
        loss = keras.losses.get(loss)
    function = getattr(loss, "fn", loss)  # also of a subclass of Keras's
    name = getattr(function, "__name__", None)
    return name if name and getattr(keras.losses, name, None) is function else None


def without_last_axis(labels, num_classes=None):
    """Return labels (…, 1), an array or a tensor, as (…); others as they are."""
    rank = np.ndim(labels) if isinstance(labels, np.ndarray) else labels.shape.rank or 0
    is_column = rank > 1 and labels.shape[-1] == 1 and num_classes != 1
    return labels[..., 0] if is_column else labels


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
    return _if(
        is_right, numbers, f"labels hold a number that is not a class: they count from 0{last}"
    )


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
        "which sum to 1",
    )
    if not takes_numbers(loss):
        return labels
    is_certain = tf.reduce_max(labels, axis=-1) > 1 - TOLERANCE
    labels = _if(is_certain | is_gap, labels, f"labels hold a soft one. {_remedy(loss)}")
    return tf.where(is_gap, IGNORED, tf.argmax(labels, axis=-1, output_type=tf.int32))


def _remedy(loss):
    name = getattr(loss, "name", loss)
    return (
        f"The loss {name!r} takes class numbers: compile with "
        "loss=keras.losses.CategoricalCrossentropy(from_logits=True)."
    )


def _if(is_right, value, message):
    """Return a value, which fails in the graph with a message if not all is right."""
    check = tf.debugging.assert_equal(tf.reduce_all(is_right), True, message)
    with tf.control_dependencies([check] if check is not None else []):
        return tf.identity(value)
