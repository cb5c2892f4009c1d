"""The loss of choices that are ranked.

Shapes: B batch, C choices, F places between words, L labels.
"""

from typing import Any

import keras
from keras import ops

from keras_lm.layers.masks import IGNORED
from keras_lm.layers.span_chart import best_trees
from keras_lm.objectives.objective import MeanLoss, label_weights
from keras_lm.utils.argument_types import Tensor

MISSING = -1e8  # no logit of a choice is as low, and that of a missing one is lower


@keras.saving.register_keras_serializable("keras_lm")
class MarginRanking(MeanLoss):
    """How much less than a margin the right choice is more probable than each wrong one: the mean.

    Choices that a row lacks are left out: those whose logits are at most `MISSING`.

    Args:
        margin: float.

    Call: `loss(labels, logits, sample_weight=None)`, the positions of the right choices (B,) and
    logits (B, C), whose sigmoid is compared.

    Example:

        MarginRanking()(np.array([0]), np.array([[2.0, -2.0]], "float32"))  # 0.0

    Source: INK-USC/KagNet, `models/main.py`: `torch.nn.MarginRankingLoss` with margin 0.2.
    """

    def __init__(self, margin: float = 0.2, name: str = "margin_ranking"):
        super().__init__(name)
        self.margin = margin

    def sum_and_count(
        self, labels: Tensor, logits: Tensor, sample_weight: Tensor | None = None
    ) -> tuple[Any, Any]:
        logits = ops.convert_to_tensor(logits, "float32")
        scores = ops.sigmoid(logits)  # (B, C)
        is_right = ops.one_hot(ops.cast(labels, "int32"), ops.shape(logits)[-1], dtype="float32")
        right = ops.sum(scores * is_right, axis=-1, keepdims=True)
        is_wrong = (1 - is_right) * ops.cast(logits > MISSING, "float32")
        short = ops.sum(ops.relu(self.margin - right + scores) * is_wrong, axis=-1)
        losses = ops.divide_no_nan(short, ops.sum(is_wrong, axis=-1))  # (B,)
        weight = label_weights(labels, sample_weight)
        return ops.sum(losses * weight), ops.sum(weight)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"margin": self.margin}


@keras.saving.register_keras_serializable("keras_lm")
class TreeHinge(MeanLoss):
    """The structured hinge loss of a parser: the gold tree must beat other trees by a margin.

    The margin is the Hamming distance: the number of spans of the other tree that have another
    label in the gold tree, or none. The other tree is the one with the highest score plus margin,
    so the loss is 0 only if no tree comes too close. It is averaged over the sentences of the batch
    that have words.

    Call: `loss(labels, scores, sample_weight=None)`: (B, F, F) int, the label of each span by its
    first and last place, 0 for no constituent, `IGNORED` where there is no span; and (B, F, F, L)
    float, where label 0 has the score 0. See `keras_lm.layers.SpanScorer`.

    Source: Kitaev and Klein 2018, https://arxiv.org/abs/1805.01052, section 2; Stern et al. 2017,
    https://arxiv.org/abs/1705.03919, section 4.
    """

    def __init__(self, name: str = "tree_hinge"):
        super().__init__(name)

    def sum_and_count(
        self, labels: Tensor, scores: Tensor, sample_weight: Tensor | None = None
    ) -> tuple[Any, Any]:
        scores = ops.convert_to_tensor(scores, "float32")
        is_span, labels = ops.not_equal(labels, IGNORED), ops.maximum(labels, 0)
        is_right = ops.one_hot(labels, scores.shape[-1], dtype="float32")
        scores_and_cost = scores + 1.0 - is_right
        in_tree, best_labels = best_trees(scores_and_cost, _lengths(is_span))
        other = _sum(in_tree, scores_and_cost, best_labels)
        losses = ops.relu(other - _sum(is_span, scores, labels))
        weight = self._weights(is_span, sample_weight)
        return ops.sum(losses * weight), ops.sum(weight)

    def count(self, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        return ops.sum(self._weights(ops.not_equal(labels, IGNORED), sample_weight))

    @staticmethod
    def _weights(is_span, sample_weight):
        return label_weights(ops.where(_lengths(is_span) > 0, 0, IGNORED), sample_weight)


def _lengths(is_span):
    """Return the number of words in each sentence, (B,): the spans that begin at its start."""
    return ops.sum(ops.cast(is_span[:, 0], "int32"), axis=-1)


def _sum(is_in, scores, labels):
    """Return the sum of the scores of chosen spans' labels, (B,)."""
    chosen = ops.take_along_axis(scores, ops.expand_dims(labels, -1), axis=-1)[..., 0]
    return ops.sum(ops.where(is_in, chosen, 0.0), axis=(1, 2))
