"""Losses of whole structures: sequences of labels, and clusters of mentions. Shapes: B batch."""

from keras import ops

from keras_lm.layers.coreference import antecedent_losses, mention_losses
from keras_lm.layers.masks import IGNORED
from keras_lm.objectives.objective import MeanLoss


class SequenceLikelihood(MeanLoss):
    """The negative log-likelihood of the labels of texts, divided by the number of labels.

    Args:
        crf: `keras_lm.layers.CRF`, which says how likely they are.

    Call: `loss(labels, logits, sample_weight=None)`, (B, S) int, `IGNORED` where there is none, and
    (B, S, C) float; a weight for each text, (B,), makes it a weighted mean.
    """

    def __init__(self, crf):
        super().__init__("sequence_likelihood")
        self.crf = crf

    def sum_and_count(self, labels, logits, sample_weight=None):
        mask = ops.cast(ops.not_equal(labels, IGNORED), "int32")
        losses = -self.crf.log_likelihood(logits, labels, mask)  # (B,)
        weight = 1.0 if sample_weight is None else ops.cast(sample_weight, "float32")
        return ops.sum(weight * losses), self.count(labels, sample_weight)


class ClusterLikelihood(MeanLoss):
    """The mean over documents of what `CoreferenceHead` gets wrong of mentions and antecedents.

    It is the sum of `keras_lm.layers.coreference.antecedent_losses` and a tenth of
    `mention_losses`. With the former alone, training may end with the wrong spans and no clusters.

    Call: `loss(mentions, outputs, sample_weight=None)`, (B, M, 3) int, and what the layer
    `CoreferenceHead` returns; a weight for each document, (B,), makes it a weighted mean.

    Source: Lee et al. 2017, https://arxiv.org/abs/1707.07045, section 4; Zhang et al. 2018,
    https://arxiv.org/abs/1805.04893, section 3.
    """

    MENTION_WEIGHT = 0.1

    def __init__(self):
        super().__init__("cluster_likelihood")

    def sum_and_count(self, labels, outputs, sample_weight=None):
        labels = ops.cast(labels, "int32")
        losses = antecedent_losses(outputs, labels)  # (B,)
        losses += self.MENTION_WEIGHT * mention_losses(outputs, labels)
        weights = self._weights(labels, sample_weight)
        return ops.sum(weights * losses), ops.sum(weights)

    def count(self, labels, sample_weight=None):
        return ops.sum(self._weights(labels, sample_weight))

    @staticmethod
    def _weights(labels, sample_weight):
        if sample_weight is None:
            return ops.ones((ops.shape(labels)[0],), "float32")
        return ops.cast(sample_weight, "float32")
