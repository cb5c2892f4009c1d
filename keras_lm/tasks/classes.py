"""Classes as users give them: their number, their names, and labels by name or number."""

import numpy as np

from keras_lm.objectives import IGNORED
from keras_lm.tensorflow import tf


def check_classes(num_classes, class_names):
    """Return `(num_classes, class_names)`; ValueError if both are missing, or they disagree."""
    if num_classes is None and class_names is None:
        raise ValueError(
            "num_classes and class_names are both missing, and the checkpoint states neither: "
            "pass one."
        )
    class_names = None if class_names is None else [str(name) for name in class_names]
    num_classes = len(class_names) if num_classes is None else num_classes
    if num_classes < 1:
        raise ValueError(f"num_classes={num_classes}: a classifier needs at least one class.")
    if class_names is not None and len(class_names) != num_classes:
        raise ValueError(f"num_classes={num_classes}, but class_names={class_names}.")
    if class_names is not None and len(set(class_names)) < num_classes:
        raise ValueError(f"class_names={class_names} names a class twice.")
    return num_classes, class_names


def class_numbers(task, labels, place):
    """Return the class numbers of names; a task without `class_names` learns them here, sorted.

    `place` maps a position in the list to that in the user's data, such as `"[3]"`, for errors.
    """
    labels = [label if label is None else text_of(label) for label in labels]
    if task.class_names is None:
        found = sorted(set(labels))
        if len(found) != task.num_classes:
            raise ValueError(
                f"labels holds {len(found)} different names, but num_classes={task.num_classes}: "
                "pass class_names when making the task."
            )
        task.class_names = found
    numbers = {name: number for number, name in enumerate(task.class_names)}
    for i, label in enumerate(labels):
        if label not in numbers:
            raise ValueError(f"labels{place(i)}={label!r} is none of {task.class_names}.")
    return [numbers[label] for label in labels]


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
    known = tf.debugging.assert_non_negative(
        index, f"labels hold a name that is none of {class_names}"
    )
    with tf.control_dependencies([known]):
        return tf.identity(index)


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
