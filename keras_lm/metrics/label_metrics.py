"""Metrics of labels and logits that Keras lacks. Shapes: B batch, S sequence, C classes, N values.

A metric keeps sums if they suffice; `KeptValues` keeps the values themselves, up to a number.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.objectives import IGNORED
from keras_lm.tensorflow import tf
from keras_lm.utils.argument_types import Tensor


def known_classes(metric, labels, logits, sample_weight=None):
    """Return class numbers (N,), logits (N, C) and weights (N,), without ignored labels."""
    labels, logits = tf.convert_to_tensor(labels), tf.convert_to_tensor(logits)
    if labels.shape.rank == logits.shape.rank and labels.shape[-1] == 1:
        labels = tf.squeeze(labels, -1)
    if labels.shape.rank != logits.shape.rank - 1:
        raise ValueError(
            f"{type(metric).__name__}: labels have shape {labels.shape} and outputs "
            f"{logits.shape}: pass one class per row, (B,) or (B, S), and logits."
        )
    weights = tf.ones(tf.shape(labels))
    if sample_weight is not None:  # of rows, or of words
        shape = [tf.shape(labels)[0], -1][: labels.shape.rank]
        weights *= tf.reshape(tf.cast(sample_weight, tf.float32), shape)
    is_known = labels != tf.cast(IGNORED, labels.dtype)
    logits = tf.cast(tf.boolean_mask(logits, is_known), tf.float32)
    labels = tf.cast(tf.boolean_mask(labels, is_known), tf.int32)
    return labels, logits, tf.boolean_mask(weights, is_known)


def numbers_of(metric, labels, outputs, sample_weight=None):
    """Return labels, outputs and weights, (N,) each."""
    flat = [tf.convert_to_tensor(labels), tf.convert_to_tensor(outputs)]
    if any(x.shape.rank > 2 or (x.shape.rank == 2 and x.shape[1] != 1) for x in flat):
        raise ValueError(
            f"{type(metric).__name__}: labels have shape {flat[0].shape} and outputs "
            f"{flat[1].shape}: pass one number per row each, (B,) or (B, 1)."
        )
    labels, outputs = (tf.reshape(x, [-1]) for x in flat)
    weights = tf.ones(tf.shape(labels)) if sample_weight is None else sample_weight
    return labels, outputs, tf.reshape(tf.cast(weights, tf.float32), [-1])


# === Classes: from sums ===


class ConfusionMetric(keras.metrics.Metric):
    """A metric of the confusion matrix; a subclass defines `result`.

    Args:
        num_classes: int.

    Call: `update_state(labels, logits, sample_weight=None)`, (B,) and (B, C), or for words (B, S)
    and (B, S, C). Labels that are `IGNORED` are left out.
    """

    def __init__(self, num_classes: int = 2, name: str | None = None, **kwargs: Any):
        super().__init__(name=name, **kwargs)
        self.num_classes = num_classes
        self.confusion: keras.Variable = self.add_weight(
            (num_classes, num_classes), "zeros", name="confusion"
        )

    def update_state(
        self, labels: Tensor, logits: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        labels, logits, weights = known_classes(self, labels, logits, sample_weight)
        if logits.shape[-1] != self.num_classes:
            raise ValueError(
                f"num_classes={self.num_classes}, but the outputs have {logits.shape[-1]} classes: "
                f"pass {type(self).__name__}(num_classes={logits.shape[-1]})."
            )
        predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
        cells = labels * self.num_classes + predicted
        counts = tf.math.unsorted_segment_sum(weights, cells, self.num_classes**2)
        self.confusion.assign_add(tf.reshape(counts, self.confusion.shape))

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"num_classes": self.num_classes}


@keras.saving.register_keras_serializable("keras_lm")
class MatthewsCorrelation(ConfusionMetric):
    """Matthews' correlation coefficient, from -1 to 1, the metric of CoLA.

    It is 0 at chance level, or if there is only one class. For more than two classes it is
    Gorodkin's generalisation, as in scikit-learn.

    Args:
        num_classes: int. The number of classes.

    Call: see `ConfusionMetric`.

    Example:

        task.compile(metrics=["accuracy", keras_lm.metrics.MatthewsCorrelation()])

    Source: Matthews 1975, https://doi.org/10.1016/0005-2795(75)90109-9; Gorodkin 2004,
    https://doi.org/10.1016/j.compbiolchem.2004.09.006.
    """

    def __init__(self, num_classes: int = 2, name: str = "matthews_correlation", **kwargs: Any):
        super().__init__(num_classes, name=name, **kwargs)

    def result(self) -> Tensor:
        shares = tf.cast(self.confusion, tf.float32)
        shares = tf.math.divide_no_nan(shares, tf.reduce_sum(shares))
        right, marked, predicted = (
            tf.linalg.trace(shares),
            *(tf.reduce_sum(shares, n) for n in (1, 0)),
        )

        def spread(x, y):
            return -tf.reduce_sum(x * y)

        covariance = right + spread(marked, predicted)
        variances = (1 + spread(marked, marked)) * (1 + spread(predicted, predicted))
        return tf.math.divide_no_nan(covariance, tf.sqrt(variances))


@keras.saving.register_keras_serializable("keras_lm")
class BinaryF1(ConfusionMetric):
    """The F1 of one class, from 0 to 1, a metric of MRPC and QQP.

    For the mean over classes, use `keras.metrics.F1Score(average="macro")`.

    Args:
        class_id: int, the class, from 0.
        num_classes: int.

    Call: see `ConfusionMetric`.
    """

    def __init__(self, class_id: int = 1, num_classes: int = 2, name: str = "f1", **kwargs: Any):
        if not 0 <= class_id < num_classes:
            raise ValueError(
                f"class_id={class_id}: pass 0 to {num_classes - 1}, as there are {num_classes} "
                "classes."
            )
        super().__init__(num_classes, name=name, **kwargs)
        self.class_id = class_id

    def result(self) -> Tensor:
        confusion = tf.convert_to_tensor(self.confusion)
        marked, predicted = (tf.reduce_sum(confusion, n)[self.class_id] for n in (1, 0))
        right = confusion[self.class_id, self.class_id]
        return tf.math.divide_no_nan(2 * right, marked + predicted)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"class_id": self.class_id}


@keras.saving.register_keras_serializable("keras_lm")
class MicroF1(ConfusionMetric):
    """The F1 of all classes together but one that means none, from 0 to 1: TACRED's metric.

    Args:
        num_classes: int. The number of classes.
        without: int. The class that is left out, such as TACRED's `no_relation`; None for none.

    Call: see `ConfusionMetric`.

    Example:

        none = task.class_names.index("no_relation")
        task.compile(metrics=[keras_lm.metrics.MicroF1(len(task.class_names), without=none)])

    Source: Zhang et al. 2017, https://aclanthology.org/D17-1004, and its `score.py`.
    """

    def __init__(
        self, num_classes: int, without: int | None = None, name: str = "micro_f1", **kwargs: Any
    ):
        if without is not None and not 0 <= without < num_classes:
            raise ValueError(f"without={without}: pass 0 to {num_classes - 1}, a class, or None.")
        super().__init__(num_classes, name=name, **kwargs)
        self.without = without

    def result(self) -> Tensor:
        counted = np.ones(self.num_classes, "float32")
        if self.without is not None:
            counted[self.without] = 0.0
        confusion = tf.convert_to_tensor(self.confusion)
        marked, predicted = (tf.reduce_sum(confusion, n) for n in (1, 0))
        right = tf.linalg.diag_part(confusion)
        right, marked, predicted = (tf.reduce_sum(counted * x) for x in (right, marked, predicted))
        return tf.math.divide_no_nan(2 * right, marked + predicted)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"without": self.without}


@keras.saving.register_keras_serializable("keras_lm")
class LooseF1(keras.metrics.Metric):
    """The loose F1 of texts with any number of classes, from 0 to 1: the metric of entity typing.

    `"micro"` counts the classes of all texts together; `"macro"` is the F1 of the mean precision
    and the mean recall of texts. A class is found if its logit is above 0.

    Args:
        average: `"micro"` or `"macro"`.

    Call: `update_state(labels, logits, sample_weight=None)`, (B, C) each, labels of 0 and 1.

    Raises:
        ValueError: if `average` is another.

    Example:

        task.compile(metrics=[keras_lm.metrics.LooseF1(), keras_lm.metrics.LooseF1("macro")])

    Source: Ling and Weld 2012, "Fine-Grained Entity Recognition", section 4.2.
    """

    def __init__(self, average: str = "micro", name: str | None = None, **kwargs: Any):
        if average not in ("micro", "macro"):
            raise ValueError(f"average={average!r}: pass 'micro' or 'macro'.")
        super().__init__(name=name or f"loose_{average}_f1", **kwargs)
        self.average = average
        # The sums of precision and recall, and what they are divided by.
        self.sums: keras.Variable = self.add_weight((2, 2), "zeros", name="sums")

    def update_state(
        self, labels: Any, logits: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        labels, logits = ops.convert_to_tensor(labels), ops.convert_to_tensor(logits)
        if len(labels.shape) != 2 or len(logits.shape) != 2:
            raise ValueError(
                f"LooseF1: labels have shape {labels.shape} and outputs {logits.shape}: pass (B, "
                "classes) each, of a task with multi_label=True."
            )
        marked, predicted = (ops.cast(x > 0, "float32") for x in (labels, logits))
        right = ops.sum(marked * predicted, axis=1)  # (B,)
        numbers = ops.stack([ops.sum(x, axis=1) for x in (predicted, marked)])  # (2, B)
        if self.average == "macro":
            right, numbers = ops.divide_no_nan(right, numbers), ops.ones_like(numbers)
        sums = ops.stack([ops.zeros_like(numbers) + right, numbers], axis=1)  # (2, 2, B)
        if sample_weight is not None:
            sums *= ops.reshape(ops.cast(sample_weight, "float32"), [-1])
        self.sums.assign(self.sums + ops.sum(sums, axis=-1))

    def result(self) -> Tensor:
        precision, recall = ops.unstack(ops.divide_no_nan(self.sums[:, 0], self.sums[:, 1]))
        return ops.divide_no_nan(2 * precision * recall, precision + recall)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"average": self.average}


@keras.saving.register_keras_serializable("keras_lm")
class ExpectedCalibrationError(keras.metrics.Metric):
    """The expected calibration error (ECE) of probabilities, from 0 to 1; 0 is best.

    Predictions are put into bins by the probability of the best class. The error is the difference
    between the mean probability and the accuracy of a bin, averaged over the predictions.

    Args:
        num_bins: int, of equal width.

    Call: `update_state(labels, logits, sample_weight=None)`, see `ConfusionMetric`. It is
    meaningless for a tagger with a CRF, whose metrics get the best sequence instead of logits.

    Source: Guo et al. 2017, https://arxiv.org/abs/1706.04599, section 2.
    """

    def __init__(self, num_bins: int = 15, name: str = "expected_calibration_error", **kwargs: Any):
        super().__init__(name=name, **kwargs)
        self.num_bins = num_bins
        # For each bin: the sums of weights, of weights of right answers, and of probabilities.
        self.sums: keras.Variable = self.add_weight((3, num_bins), "zeros", name="sums")

    def update_state(
        self, labels: Any, logits: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        labels, logits, weights = known_classes(self, labels, logits, sample_weight)
        sure = tf.reduce_max(tf.nn.softmax(logits), axis=-1)
        is_right = tf.cast(tf.argmax(logits, axis=-1, output_type=tf.int32) == labels, tf.float32)
        # A bin includes its upper end.
        bins = tf.cast(tf.math.ceil(sure * self.num_bins), tf.int32) - 1
        bins = tf.clip_by_value(bins, 0, self.num_bins - 1)
        values = tf.stack([weights, weights * is_right, weights * sure], axis=1)
        self.sums.assign_add(
            tf.transpose(tf.math.unsorted_segment_sum(values, bins, self.num_bins))
        )

    def result(self) -> Tensor:
        counts, right, sure = tf.unstack(tf.convert_to_tensor(self.sums))
        return tf.math.divide_no_nan(tf.reduce_sum(tf.abs(right - sure)), tf.reduce_sum(counts))

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"num_bins": self.num_bins}


# === Numbers ===


@keras.saving.register_keras_serializable("keras_lm")
class PearsonCorrelation(keras.metrics.Metric):
    """Pearson's correlation of numbers over all batches, from -1 to 1, a metric of STS-B.

    `keras.metrics.PearsonCorrelation` is the mean over batches instead.

    Call: `update_state(labels, outputs, sample_weight=None)`, (B,) or (B, 1) each.

    Example:

        task.compile(metrics=[keras_lm.metrics.PearsonCorrelation()])
    """

    def __init__(self, name: str = "pearson_correlation", **kwargs: Any):
        super().__init__(name=name, **kwargs)
        # The sums of 1, x, y, x², y² and xy; in float64, as their differences may be small.
        self.sums: keras.Variable = self.add_weight((6,), "zeros", dtype="float64", name="sums")

    def update_state(self, labels: Any, outputs: Any, sample_weight: Tensor | None = None) -> None:
        x, y, w = (tf.cast(v, tf.float64) for v in numbers_of(self, labels, outputs, sample_weight))
        self.sums.assign_add(
            tf.stack([tf.reduce_sum(w * v) for v in (tf.ones_like(x), x, y, x * x, y * y, x * y)])
        )

    def result(self) -> Tensor:
        n, x, y, xx, yy, xy = tf.unstack(tf.convert_to_tensor(self.sums))
        spread = tf.maximum(n * xx - x * x, 0) * tf.maximum(n * yy - y * y, 0)
        return tf.cast(tf.math.divide_no_nan(n * xy - x * y, tf.sqrt(spread)), tf.float32)


class KeptValues(keras.metrics.Metric):
    """A metric that needs all labels and outputs at once; a subclass defines `of_values`.

    It keeps the first `capacity` pairs on each replica, 9 bytes each, and ignores later ones. Each
    step of `fit` computes the value from all pairs so far.

    Args:
        capacity: int.
    """

    def __init__(self, capacity: int = 100_000, name: str | None = None, **kwargs: Any):
        super().__init__(name=name, **kwargs)
        if capacity < 1:
            raise ValueError(f"capacity={capacity}: keep 1 value or more.")
        self.capacity = capacity
        # In the first row: whether there is a pair; then labels and outputs.
        self.kept: keras.Variable = self.add_weight((3, capacity), "zeros", name="kept")
        self.number: keras.Variable = self.add_weight((), "zeros", dtype="int64", name="number")

    def update_state(
        self, labels: Tensor, outputs: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        if sample_weight is not None:
            name = type(self).__name__
            raise ValueError(f"{name} takes no weights: name it in metrics, not weighted_metrics.")
        labels, outputs = (tf.cast(x, tf.float32) for x in self.values(labels, outputs))
        # Each replica fills places of its own, which are 0 on the others: Keras sums the replicas.
        replica, replicas = 0, 1
        context = tf.distribute.get_replica_context()
        if context is not None and tf.distribute.has_strategy():
            replica, replicas = context.replica_id_in_sync_group, context.num_replicas_in_sync
        rows = tf.size(labels, tf.int64)
        places = tf.cast(replica, tf.int64) + replicas * (self.number + tf.range(rows))
        values = tf.stack([tf.ones_like(labels), labels, outputs], axis=1)
        fits = places < self.capacity
        places, values = tf.boolean_mask(places, fits), tf.boolean_mask(values, fits)
        shape = tf.constant([self.capacity, 3], tf.int64)
        self.kept.assign_add(tf.transpose(tf.scatter_nd(places[:, tf.newaxis], values, shape)))
        self.number.assign_add(rows)

    def values(self, labels: Tensor, outputs: Tensor) -> Tensor:
        """Return labels and outputs, (N,) each."""
        return numbers_of(self, labels, outputs)[:2]

    def result(self) -> Tensor:
        is_there, labels, outputs = tf.unstack(tf.convert_to_tensor(self.kept))
        there = is_there > 0
        return self.of_values(tf.boolean_mask(labels, there), tf.boolean_mask(outputs, there))

    def of_values(self, labels: Tensor, outputs: Tensor) -> Tensor:
        """Return the metric of labels and outputs, (N,) float32 each."""
        raise NotImplementedError(f"{type(self).__name__} must define of_values.")

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"capacity": self.capacity}


@keras.saving.register_keras_serializable("keras_lm")
class SpearmanCorrelation(KeptValues):
    """Spearman's rank correlation of numbers, from -1 to 1; equal numbers get their mean rank.

    Args:
        capacity: int. How many labels and outputs each replica keeps; see `KeptValues`.

    Call: `update_state(labels, outputs)`, (B,) or (B, 1) each.
    """

    def __init__(self, capacity: int = 100_000, name: str = "spearman_correlation", **kwargs: Any):
        super().__init__(capacity, name=name, **kwargs)

    def of_values(self, labels: Tensor, outputs: Tensor) -> Tensor:
        x, y = (_ranks(values) for values in (labels, outputs))
        x, y = x - tf.reduce_mean(x), y - tf.reduce_mean(y)
        return tf.cast(
            tf.math.divide_no_nan(tf.reduce_sum(x * y), tf.norm(x) * tf.norm(y)), tf.float32
        )


def _ranks(values):
    """Return the ranks of values (N,), from 0, float64; equal values get their mean rank."""
    ordered = tf.sort(values)
    first, last = (tf.searchsorted(ordered, values, side) for side in ("left", "right"))
    return tf.cast(first + last - 1, tf.float64) / 2


@keras.saving.register_keras_serializable("keras_lm")
class BestThresholdAccuracy(KeptValues):
    """The accuracy of binary decisions at the best threshold of the scores, from 0 to 1.

    It evaluates similarities on pairs that are paraphrases or not.

    Args:
        capacity: int. How many labels and outputs each replica keeps; see `KeptValues`.

    Call: `update_state(labels, outputs)`: 0 or 1, (B,) or (B, 1); scores, (B,) or (B, 1), or logits
    of two classes, (B, 2), whose score is their difference.
    """

    def __init__(
        self, capacity: int = 100_000, name: str = "best_threshold_accuracy", **kwargs: Any
    ):
        super().__init__(capacity, name=name, **kwargs)

    def values(self, labels: Tensor, outputs: Tensor) -> Tensor:
        outputs = tf.convert_to_tensor(outputs)
        if outputs.shape.rank == 2 and outputs.shape[-1] == 2:
            outputs = outputs[:, 1] - outputs[:, 0]
        return super().values(labels, outputs)

    def of_values(self, labels: Tensor, outputs: Tensor) -> Tensor:
        return self._cuts(labels, outputs)[1]

    def threshold(self) -> float:
        """Return the best threshold, the highest of several; scores at or above it are a yes."""
        is_there, labels, outputs = np.asarray(self.kept)
        there = is_there > 0
        return float(self._cuts(labels[there], outputs[there])[0])

    def _cuts(self, labels, outputs):
        """Return the best threshold and its accuracy; at infinity every decision is a no."""
        order = tf.argsort(outputs, direction="DESCENDING", stable=True)
        labels, outputs = tf.gather(labels, order), tf.gather(outputs, order)
        # How many are right if the first 0, 1, … are a yes; equal scores are not separated.
        right = tf.concat([[0.0], tf.cumsum(2 * labels - 1)], 0) + tf.reduce_sum(1 - labels)
        ends = tf.concat([[np.inf], outputs], 0)
        is_cut = tf.concat([ends[:-1] > ends[1:], [True]], 0)
        best = tf.argmax(tf.where(is_cut, right, -1.0))
        number = tf.cast(tf.size(labels), tf.float32)
        return ends[best], tf.math.divide_no_nan(right[best], number)


# Keras's metrics that take one-hot labels and probabilities.
ONE_HOT = (
    keras.metrics.AUC,
    keras.metrics.CategoricalAccuracy,
    keras.metrics.CategoricalCrossentropy,
    keras.metrics.FBetaScore,  # and F1Score
    keras.metrics.FalseNegatives,
    keras.metrics.FalsePositives,
    keras.metrics.OneHotMeanIoU,
    keras.metrics.Precision,
    keras.metrics.PrecisionAtRecall,
    keras.metrics.Recall,
    keras.metrics.RecallAtPrecision,
    keras.metrics.SensitivityAtSpecificity,
    keras.metrics.SpecificityAtSensitivity,
    keras.metrics.TopKCategoricalAccuracy,
    keras.metrics.TrueNegatives,
    keras.metrics.TruePositives,
)


@keras.saving.register_keras_serializable("keras_lm")
class OneHotMetric(keras.metrics.Metric):
    """Wraps a Keras metric of one-hot labels and probabilities to take class numbers and logits.

    A task's `compile` wraps the metrics that need it.

    Args:
        metric: `keras.metrics.Metric`, one of `ONE_HOT`.
        multi_label: bool. Whether labels are (B, C) of 0 and 1, instead of class numbers, (B,) or
            (B, S).
    """

    def __init__(self, metric, multi_label=False, name=None, **kwargs):
        super().__init__(name=name or metric.name, **kwargs)
        self.metric = metric
        self.multi_label = multi_label

    def update_state(self, labels, logits, sample_weight=None):
        labels, logits = tf.convert_to_tensor(labels), tf.cast(logits, tf.float32)
        if self.multi_label:
            probabilities = tf.sigmoid(logits)
        else:
            known = labels != IGNORED
            if sample_weight is not None and labels.shape.rank == 2:
                weight = tf.reshape(sample_weight, [tf.shape(sample_weight)[0], -1])  # (B, 1 or S)
                sample_weight = tf.broadcast_to(weight, tf.shape(labels))[known]
            probabilities = tf.nn.softmax(logits[known])
            labels = tf.one_hot(tf.cast(labels[known], tf.int32), logits.shape[-1])
        self.metric.update_state(labels, probabilities, sample_weight=sample_weight)

    def reset_state(self):
        self.metric.reset_state()

    def result(self):
        return self.metric.result()

    def get_config(self):
        metric = keras.saving.serialize_keras_object(self.metric)
        return super().get_config() | {"metric": metric, "multi_label": self.multi_label}

    @classmethod
    def from_config(cls, config):
        return cls(keras.saving.deserialize_keras_object(config.pop("metric")), **config)
