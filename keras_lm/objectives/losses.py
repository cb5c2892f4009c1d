"""Losses and accuracy over the labels that are not ignored.

Shapes: B batch, M labels per row, V classes, such as the vocabulary.
"""

import keras
from keras import ops

from keras_lm.layers.backend import sum_over_replicas
from keras_lm.layers.masks import IGNORED


class MeanLoss(keras.losses.Loss):
    """The mean of losses over a batch, whose sum and count a subclass computes.

    Under `tf.distribute`, which adds the gradients of all replicas, a replica's sum is divided by
    the count over all replicas: however labels are distributed, the gradient is that of the whole
    batch.
    """

    def __init__(self, name):
        super().__init__(name=name, reduction=None)

    def sum_and_count(self, labels, outputs, sample_weight=None):
        """Return the sum of all losses and their count or weight: two float32 scalars."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its losses are.")

    def mean(self, labels, outputs, sample_weight=None):
        """Return the scalar loss of this replica alone."""
        return ops.divide_no_nan(*self.sum_and_count(labels, outputs, sample_weight))

    def __call__(self, labels, outputs, sample_weight=None):
        total, count = self.sum_and_count(labels, outputs, sample_weight)
        return ops.divide_no_nan(total, sum_over_replicas(count))

    def get_config(self):
        return {"name": self.name}


@keras.saving.register_keras_serializable("keras_lm")
class MaskedCrossentropy(MeanLoss):
    """Cross-entropy over the labels that are not `IGNORED`, divided by their number.

    The mean is over the tokens of the whole batch, not over rows, as in google-research/bert,
    `get_masked_lm_output`.

    Call: `loss(labels, logits, sample_weight=None)`, (B, M) int and (B, M, V) float, or (B,) and
    (B, V); a weight for each row, (B,), or each label makes it a weighted mean. Returns a scalar.
    """

    def __init__(self, name="masked_crossentropy"):
        super().__init__(name)

    def sum_and_count(self, labels, logits, sample_weight=None):
        logits = ops.convert_to_tensor(logits, "float32")
        losses = keras.losses.sparse_categorical_crossentropy(
            ops.where(ops.not_equal(labels, IGNORED), labels, 0), logits, from_logits=True
        )
        weight = label_weights(labels, sample_weight)
        return ops.sum(losses * weight), ops.sum(weight)


@keras.saving.register_keras_serializable("keras_lm")
class MaskedAccuracy(keras.metrics.Mean):
    """Fraction of the labels that are not `IGNORED` whose class has the highest logit."""

    def __init__(self, name="accuracy", **kwargs):
        super().__init__(name=name, **kwargs)

    def update_state(self, labels, logits, sample_weight=None):
        labels = ops.convert_to_tensor(labels)
        right = ops.equal(labels, ops.cast(ops.argmax(logits, axis=-1), labels.dtype))
        return super().update_state(ops.cast(right, "float32"), sample_weight=label_weights(labels))


def label_weights(labels, sample_weight=None):
    """Return how much each label counts: 0 for `IGNORED`, else its weight or that of its row.

    Args:
        labels: (B, …) int.
        sample_weight: (B,), or of the shape of `labels`; 1 if omitted.

    Returns:
        float32 of the shape of `labels`.
    """
    known = ops.cast(ops.not_equal(labels, IGNORED), "float32")
    if sample_weight is None:
        return known
    weight = ops.convert_to_tensor(sample_weight, "float32")
    missing = len(known.shape) - len(weight.shape)
    return known * ops.reshape(weight, (*ops.shape(weight), *[1] * missing))
