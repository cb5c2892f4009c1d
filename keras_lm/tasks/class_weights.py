"""Weights of classes, for `fit`. Shapes: B batch, C classes."""

import numpy as np

from keras_lm.objectives import IGNORED
from keras_lm.tasks.classes import names_of_classes, text_of
from keras_lm.tensorflow import tf


def weights_in_order(task, class_weight, labels=None):
    """Return a weight for each class, of a dict by name or number; those that it lacks are 1.

    Of `"balanced"`, prepared `labels` decide: numbers, or one-hot or soft labels.
    """
    num_classes = task.num_classes
    if isinstance(class_weight, str) and class_weight == "balanced":
        return _balanced(labels, num_classes)
    if not isinstance(class_weight, dict):
        raise ValueError(
            f"class_weight={class_weight!r}: pass a dict of class name or number → weight, or "
            "'balanced' for classes that count the same, however many labels they have."
        )
    names = names_of_classes(task.class_names, num_classes)
    numbers = {name: number for number, name in enumerate(names)}
    weights = [1.0] * num_classes
    for key, weight in class_weight.items():
        number = numbers.get(text_of(key)) if isinstance(key, (str, bytes)) else key
        if number not in range(num_classes):
            raise ValueError(
                f"class_weight has the key {key!r}: use the names {names}, or numbers from 0 to "
                f"{num_classes - 1}."
            )
        weights[int(number)] = float(weight)
    return weights


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
