"""Classes as users give them: their number, their names, and labels in every form.

Of one class for each row, or word, labels are names or numbers, (B,) or (B, S), or they are one-hot
or soft, (B, C) or (B, S, C), which sum to 1. Losses take one of these forms, metrics numbers.

Shapes: B batch, S sequence, C classes, N labels.
"""

import inspect
import numbers
import warnings
from collections.abc import Mapping

import keras
import numpy as np
from keras import ops

from keras_lm.feeding.feed import TaskLabels
from keras_lm.layers.tensorflow import required
from keras_lm.metrics.label_metrics import ONE_HOT, OneHotMetric
from keras_lm.objectives import IGNORED
from keras_lm.objectives.objective import MeanLoss
from keras_lm.tensorflow import tf
from keras_lm.utils.registry import advice
from keras_lm.utils.user_arguments import iterable


def check_classes(num_classes, class_names):
    """Return `(num_classes, class_names)`; ValueError if both are missing, or they disagree."""
    if num_classes is None and class_names is None:
        raise ValueError(
            "num_classes and class_names are both missing, and the checkpoint states neither: "
            "pass one."
        )
    class_names = None if class_names is None else _names(class_names)
    num_classes = len(class_names) if num_classes is None else num_classes
    if not isinstance(num_classes, numbers.Integral):
        raise ValueError(f"num_classes={num_classes!r}: pass an int.")
    if num_classes < 1:
        raise ValueError(f"num_classes={num_classes}: a classifier needs at least one class.")
    if class_names is not None and len(class_names) != num_classes:
        raise ValueError(f"num_classes={num_classes}, but class_names={class_names}.")
    if class_names is not None and len(set(class_names)) < num_classes:
        raise ValueError(f"class_names={class_names} names a class twice.")
    return num_classes, class_names


def _names(class_names):
    """Return names of classes as strings; ValueError if they have no order, or one is no name."""
    if isinstance(class_names, (str, bytes, bytearray, memoryview, set, frozenset, Mapping)):
        raise ValueError(
            f"class_names={class_names!r}: pass a list, whose order is that of the scores."
        )
    class_names = list(iterable(class_names, "class_names"))
    for name in class_names:
        is_name = isinstance(name, (str, bytes, int, float, np.generic))
        if not is_name or isinstance(name, np.void) or name != name:
            raise ValueError(
                f"class_names={class_names}: {name!r} is not a name. Leave it out if it stands "
                "for a missing label, and pass names as strings."
            )
    return [text_of(name) for name in class_names]


def names_of_classes(class_names, num_classes):
    """Return the names to serve: those given, or else `"0"`, `"1"`, …."""
    return class_names or [str(i) for i in range(num_classes)]


def indices_of(names, class_names):
    """Return the positions of a tensor of names among `class_names`, in the graph, int32."""
    keys = tf.constant(class_names)
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(keys, tf.range(len(class_names))), -1
    )
    index = table.lookup(names)
    message = f"labels hold a name that is not one of {class_names}:"
    return required(index, index >= 0, message, tf.boolean_mask(names, index < 0)[:1])


def check_range(labels, num_classes):
    """Raise ValueError if one of (B,) numbers is not a class."""
    for row in np.flatnonzero((labels < 0) | (labels >= num_classes))[:1]:
        raise ValueError(
            f"labels[{row}]={labels[row]}, but num_classes={num_classes}: classes count from 0 to "
            f"{num_classes - 1}."
        )


def text_of(label):
    """Return a label as a string."""
    return label.decode() if isinstance(label, bytes) else str(label)


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


def metric_of_classes(metric, multi_label=False):
    """Return a metric or name for `compile`; those in `ONE_HOT` are wrapped by `OneHotMetric`."""
    if metric in ("accuracy", "acc"):  # Keras would choose by the shape of the labels
        if multi_label:
            return keras.metrics.BinaryAccuracy(name=metric, threshold=0.0)
        return keras.metrics.SparseCategoricalAccuracy(name=metric)
    if isinstance(metric, str):
        metric = keras.metrics.get(metric)
    return OneHotMetric(metric, multi_label) if isinstance(metric, ONE_HOT) else metric


def _balanced(labels, num_classes):
    """Return weights with which classes weigh the same in total, and labels 1 on average."""
    if labels is None:
        raise ValueError(
            "class_weight='balanced' counts labels before training: pass x and y to fit as lists "
            "or arrays, or class_weight as a dict of class name or number → weight."
        )
    labels = np.asarray(labels.flat_values if isinstance(labels, tf.RaggedTensor) else labels)
    if labels.dtype.kind == "f":  # one-hot or soft, perhaps with rows of zeros
        counts = labels.reshape(-1, num_classes).sum(axis=0)
    else:
        counts = np.bincount(labels[labels >= 0], minlength=num_classes)
    share = counts.sum() / np.count_nonzero(counts)
    return np.where(counts > 0, share / np.maximum(counts, 1e-12), 1.0).tolist()


def with_class_weights(dataset, weights):
    """Return batches of inputs and labels with weights, see `weigh_classes`."""
    weigh = tf.autograph.experimental.do_not_convert(weigh_classes)
    return dataset.map(lambda *batch: weigh(weights, *batch))


def weigh_classes(weights, x, labels=None, sample_weight=None):
    """Return a batch `(inputs, labels, weights)` in which each label weighs what its class does.

    `weights` are those of the classes, labels are class numbers, (B,) or (B, S), or one-hot or
    soft, with an axis more, which weigh the mean of their classes. `sample_weight`, (B,) or for
    each label, is multiplied in.
    """
    # In TensorFlow, whatever Keras's backend is: this is a part of `tf.data`.
    labels, weights = tf.convert_to_tensor(labels), tf.constant(weights)
    if labels.dtype.is_floating:
        of_class = tf.linalg.matvec(labels, weights)
    else:
        known = tf.cast(labels != IGNORED, tf.float32)
        of_class = known * tf.gather(weights, tf.maximum(labels, 0))
    if sample_weight is None:
        return x, labels, of_class
    sample_weight = tf.cast(sample_weight, tf.float32)
    if sample_weight.shape.rank > of_class.shape.rank:  # (B, 1)
        sample_weight = sample_weight[..., 0]
    elif sample_weight.shape.rank < of_class.shape.rank:  # of texts, for words
        sample_weight = sample_weight[:, tf.newaxis]
    return x, labels, of_class * sample_weight


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


# === The labels of a classifier ===


def of_labels(name):
    """Return a property of a task that its `labels` hold, as they may learn it."""
    return property(
        lambda self: getattr(self.labels, name),
        lambda self, value: setattr(self.labels, name, value),
    )


class NamedClasses(TaskLabels):
    """Labels of classes that may have names.

    Args:
        num_classes: int, C.
        class_names: list of str, or None to learn them from the first labels that are names.
    """

    def __init__(self, num_classes, class_names):
        self.num_classes, self.class_names = num_classes, class_names

    def numbers_of(self, names, place):
        """Return the class numbers of names; without `class_names` these are learned, sorted.

        `place` maps a position in the list to that in the user's data, such as `"[3]"`, for errors.
        """
        names = [name if name is None else text_of(name) for name in names]
        if self.class_names is None:
            class_names = sorted(set(names))
            if len(class_names) != self.num_classes:
                raise ValueError(
                    f"labels holds {len(class_names)} different names, but "
                    f"num_classes={self.num_classes}: pass class_names when making the task."
                )
            self.class_names = class_names
        numbers = {name: number for number, name in enumerate(self.class_names)}
        for i, name in enumerate(names):
            if name not in numbers:
                raise ValueError(
                    f"labels{place(i)}={name!r} is not one of {self.class_names}."
                    + advice(str(name), self.class_names)
                )
        return [numbers[name] for name in names]


class ClassLabels(NamedClasses):
    """A class for each row, as name or number, (B,) or (B, 1), or one-hot or soft, (B, C)."""

    def learn_names(self, names):
        if self.class_names is not None:
            return
        if len(names) != self.num_classes:
            raise ValueError(
                f"the table names {len(names)} classes, {names}, and "
                f"num_classes={self.num_classes}: make the task with class_names={names}, or pass "
                "the table's numbers as a list, y."
            )
        self.class_names = [*names]

    def prepare(self, labels):
        labels = without_last_axis(labels, self.num_classes)
        if labels.shape[1:] == (self.num_classes,) and labels.dtype.kind not in "US":
            return check_probabilities(labels, self.loss)
        labels = _without_gaps(labels) if labels.ndim == 1 else labels
        if labels.ndim == 1 and labels.dtype.kind in "OUS":
            return np.array(self.numbers_of(labels, "[{}]".format), "int32")
        if (
            labels.ndim != 1
            or labels.dtype.kind not in "biuf"
            or not np.array_equal(labels, np.trunc(labels))
        ):
            raise ValueError(self._wrong_shape(labels))
        check_range(labels, self.num_classes)
        return labels.astype("int32")

    def prepare_tensor(self, labels):
        labels = without_last_axis(labels, self.num_classes)
        if labels.dtype == tf.string:
            if self.class_names is None:
                raise ValueError(
                    "x is a tf.data.Dataset with string labels: make the task with class_names."
                )
            return indices_of(labels, self.class_names)
        if labels.shape.rank is None:
            return labels
        if labels.shape.rank == 1:
            return check_number_tensor(labels, self.num_classes)
        if labels.shape.rank != 2 or labels.shape[1] not in (None, self.num_classes):
            raise ValueError(self._wrong_shape(labels))
        return check_probability_tensor(labels, self.loss)

    def _wrong_shape(self, labels):
        is_float = isinstance(labels, np.ndarray) and labels.dtype.kind == "f"
        missing = np.argwhere(np.isnan(labels)) if is_float else ()
        row = f"labels[{missing[0][0]}]=nan, a missing value: " if len(missing) else ""
        return (
            f"{row}labels has shape {tuple(labels.shape)} and dtype {labels.dtype}, but "
            f"num_classes={self.num_classes}: pass one integer or class name per row, or one-hot "
            f"or soft labels of shape (B, {self.num_classes}); for any number of classes make the "
            "task with multi_label=True."
        )

    def for_loss(self, labels, outputs, sample_weight):
        return for_loss(self.loss, labels, outputs), sample_weight

    def for_metrics(self, labels, outputs):
        return for_metrics(labels, outputs)

    def check_loss(self, loss):
        warn_of_probabilities(loss)

    def metric(self, metric):
        return metric_of_classes(metric, self.multi_label)

    def class_weights(self, class_weight, labels=None):
        """Return a weight for each class, of a dict by name or number; those that it lacks are 1.

        Of `"balanced"`, prepared `labels` decide: numbers, or one-hot or soft labels.
        """
        num_classes = self.num_classes
        if isinstance(class_weight, str) and class_weight == "balanced":
            return _balanced(labels, num_classes)
        if not isinstance(class_weight, dict):
            raise ValueError(
                f"class_weight={class_weight!r}: pass a dict of class name or number → weight, or "
                "'balanced' for classes that count the same, however many labels they have."
            )
        names = names_of_classes(self.class_names, num_classes)
        numbers = {name: number for number, name in enumerate(names)}
        weights = [1.0] * num_classes
        for key, weight in class_weight.items():
            number = numbers.get(text_of(key)) if isinstance(key, (str, bytes)) else key
            if number not in range(num_classes):
                raise ValueError(
                    f"class_weight has the key {key!r}: use the names {names}, or numbers from 0 "
                    f"to {num_classes - 1}."
                )
            weights[int(number)] = float(weight)
        return weights


class MultiLabels(ClassLabels):
    """Any number of classes for each row: lists of their names, or 0 and 1 for each, (B, C)."""

    multi_label = True

    def prepare(self, labels):
        if labels.size and labels.dtype.kind not in "OUS":
            if labels.shape[1:] != (self.num_classes,):
                raise ValueError(
                    f"labels has shape {labels.shape}, but num_classes={self.num_classes}: pass "
                    f"shape ({len(labels)}, {self.num_classes}), of 0 and 1."
                )
            for row in np.flatnonzero(~((labels >= 0) & (labels <= 1)).all(axis=1))[:1]:
                raise ValueError(f"labels[{row}]={labels[row]} holds more than 0 and 1.")
            return labels.astype("float32")
        if self.class_names is None:
            raise ValueError(
                "labels are names, but the task has no class_names: pass class_names when making "
                "it, or labels of shape (B, classes) of 0 and 1."
            )
        rows = np.zeros((len(labels), self.num_classes), "float32")
        for row, names in enumerate(labels):
            names = (
                names if isinstance(names, (list, tuple, set, frozenset, np.ndarray)) else [names]
            )
            rows[row, self.numbers_of(names, lambda _: f"[{row}]")] = 1.0  # noqa: B023
        return rows

    def prepare_tensor(self, labels):
        if labels.dtype == tf.string:
            raise ValueError(
                "x is a tf.data.Dataset with string labels: for multi_label, let it yield (B, "
                "classes) of 0 and 1."
            )
        if labels.shape.rank not in (None, 2) or labels.shape[1] not in (None, self.num_classes):
            raise ValueError(
                f"labels has shape {labels.shape}, but num_classes={self.num_classes}: let the "
                f"dataset yield (B, {self.num_classes}), of 0 and 1."
            )
        return check_share_tensor(labels)

    def for_loss(self, labels, outputs, sample_weight):
        return labels, sample_weight

    def for_metrics(self, labels, outputs):
        return labels

    def class_weights(self, class_weight, labels=None):
        raise ValueError(
            "class_weight weighs texts by their one class, and with multi_label=True they have "
            "any number: pass sample_weight."
        )


def _without_gaps(labels):
    """Return labels of mixed types, integers as such; raise ValueError for None and NaN."""
    if labels.dtype.kind not in "Of":
        return labels
    for row, label in enumerate(labels):
        is_known = isinstance(label, (str, bytes, int, np.integer, np.floating))
        if not is_known or label != label:
            label = label.item() if isinstance(label, np.generic) else label
            raise ValueError(
                f"labels[{row}]={label!r} is neither a class name nor an integer: pass one integer "
                "or class name for each text."
            )
    has_names = any(isinstance(label, (str, bytes)) for label in labels)
    return labels if has_names or labels.dtype != object else labels.astype("int64")
