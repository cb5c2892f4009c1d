"""Replaced-token detection: which tokens are a generator's? Shapes: B batch, S sequence."""

from typing import Any

import keras
from keras import ops

from keras_lm.layers.masks import IGNORED
from keras_lm.objectives.losses import MeanLoss, label_weights
from keras_lm.objectives.objective import Objective, register_objective
from keras_lm.utils.argument_types import Tensor


@keras.saving.register_keras_serializable("keras_lm")
class MaskedBinaryCrossentropy(MeanLoss):
    """Binary cross-entropy over the labels that are not `IGNORED`, divided by their number.

    Call: `loss(labels, logits, sample_weight=None)`, both (B, S), labels 0 or 1.
    """

    def __init__(self, name: str = "masked_binary_crossentropy"):
        super().__init__(name)

    def sum_and_count(self, labels, logits, sample_weight=None):
        labels = ops.convert_to_tensor(labels)
        logits = ops.convert_to_tensor(logits, "float32")
        targets = ops.cast(ops.where(ops.not_equal(labels, IGNORED), labels, 0), "float32")
        losses = ops.binary_crossentropy(targets, logits, from_logits=True)
        weight = label_weights(labels, sample_weight)
        return ops.sum(losses * weight), ops.sum(weight)


@keras.saving.register_keras_serializable("keras_lm")
class ReplacedAccuracy(keras.metrics.Mean):
    """Fraction of the labels that are not `IGNORED` that the sign of the logit predicts."""

    def __init__(self, name: str = "accuracy", **kwargs: Any):
        super().__init__(name=name, **kwargs)

    def update_state(self, labels, logits, sample_weight=None):
        labels, weight = ops.convert_to_tensor(labels), label_weights(labels, sample_weight)
        replaced, found = ops.equal(labels, 1), ops.greater(logits, 0)
        values, counted = self.compare(replaced, found)
        weight = weight * ops.cast(counted, "float32")
        return super().update_state(ops.cast(values, "float32"), sample_weight=weight)

    def compare(self, replaced: Tensor, found: Any) -> Any:
        """Return the values to average, and a mask of which values count, bool (B, S) each."""
        return ops.equal(replaced, found), ops.ones_like(found)


@keras.saving.register_keras_serializable("keras_lm")
class ReplacedPrecision(ReplacedAccuracy):
    """Of the tokens that are predicted to be replaced, the fraction that are."""

    def __init__(self, name: str = "precision", **kwargs: Any):
        super().__init__(name=name, **kwargs)

    def compare(self, replaced, found):
        return replaced, found


@keras.saving.register_keras_serializable("keras_lm")
class ReplacedRecall(ReplacedAccuracy):
    """Of the tokens that are replaced, the fraction that are found."""

    def __init__(self, name: str = "recall", **kwargs: Any):
        super().__init__(name=name, **kwargs)

    def compare(self, replaced, found):
        return found, replaced


@keras.saving.register_keras_serializable("keras_lm")
class ReplacedShare(ReplacedAccuracy):
    """Fraction of all tokens that are replaced; one minus it is the accuracy of predicting none."""

    def __init__(self, name: str = "share", **kwargs: Any):
        super().__init__(name=name, **kwargs)

    def compare(self, replaced, found):
        return replaced, ops.ones_like(found)


@register_objective
class ReplacedTokens(Objective):
    """ELECTRA's discriminator; its labels (B, S) come with the tokens, 1 for a replaced token.

    Every real token has a label; it is 0 for a masked token that was filled in with the original.
    `ReplacedByGenerator` makes the labels itself.

    Source: https://arxiv.org/abs/2003.10555, section 2.
    """

    heads = {"replaced_logits": "replaced"}
    row_names = ()
    labels_of_data = (
        "which tokens were replaced (1) and which not (0), -100 at padding, or train with "
        "objectives=[keras_lm.objectives.ReplacedByGenerator(…)]"
    )

    def loss(self):
        return MaskedBinaryCrossentropy()

    def metrics(self):
        return [ReplacedAccuracy(), ReplacedPrecision(), ReplacedRecall(), ReplacedShare()]
