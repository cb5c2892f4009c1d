"""Replaced-token detection: which tokens did a generator put there? Shapes: B batch, S sequence."""

import keras
from keras import ops

from keras_lm.objectives.objective import (
    IGNORED,
    MeanLoss,
    Objective,
    label_weights,
    register_objective,
)


@keras.saving.register_keras_serializable("keras_lm")
class MaskedBinaryCrossentropy(MeanLoss):
    """Binary cross-entropy over the labels that are not `IGNORED`, divided by their number.

    Call: `loss(labels, logits, sample_weight=None)`, both (B, S), labels 0 or 1.
    """

    def __init__(self, name="masked_binary_crossentropy"):
        super().__init__(name)

    def sum_and_count(self, labels, logits, sample_weight=None):
        labels = ops.convert_to_tensor(labels)
        logits = ops.convert_to_tensor(logits, "float32")
        targets = ops.cast(ops.where(ops.not_equal(labels, IGNORED), labels, 0), "float32")
        losses = ops.binary_crossentropy(targets, logits, from_logits=True)
        weight = label_weights(labels, sample_weight)
        return ops.sum(losses * weight), ops.sum(weight)


@register_objective
class ReplacedTokens(Objective):
    """ELECTRA's discriminator; its labels (B, S) come with the tokens, 1 where one was replaced.

    Every real token has a label, also a masked one that was filled in as it had been: 0.

    Source: https://arxiv.org/abs/2003.10555, section 2.
    """

    heads = {"replaced_logits": "replaced"}
    labels_of_data = "which tokens were replaced (1) and which not (0), -100 at padding"

    def loss(self):
        return MaskedBinaryCrossentropy()
