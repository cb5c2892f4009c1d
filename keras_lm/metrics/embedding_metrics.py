"""Metrics of vectors that a `SentenceEncoder` is trained and evaluated with.

Shapes: B examples, T texts of each (an anchor, its positive, perhaps negatives), D width.
"""

from typing import Any

import keras
from keras import ops

from keras_lm.metrics.label_metrics import SpearmanCorrelation
from keras_lm.objectives.embeddings import normalized, paired_cosines
from keras_lm.utils.argument_types import Tensor
from keras_lm.utils.user_arguments import check_whole


@keras.saving.register_keras_serializable("keras_lm")
class CosineSpearman(SpearmanCorrelation):
    """Spearman's rank correlation of cosines of pairs with their scores, from -1 to 1.

    Args:
        capacity: int. How many pairs each replica keeps; later ones are ignored.

    Call: `update_state(scores, vectors)`, (B,) and (B, 2, D).

    Example:

        encoder.compile(loss=keras_lm.objectives.CoSENT(), metrics=[CosineSpearman()])

    Source: the STS tasks of SemEval; the cosines of sentence-transformers'
    `EmbeddingSimilarityEvaluator`.
    """

    def __init__(self, capacity: int = 100_000, name: str = "cosine_spearman", **kwargs: Any):
        super().__init__(capacity, name=name, **kwargs)

    def values(self, labels: Tensor, outputs: Tensor) -> Tensor:
        _check_pairs(self, outputs)
        return super().values(labels, paired_cosines(outputs[:, 0], outputs[:, 1]))


@keras.saving.register_keras_serializable("keras_lm")
class InBatchRecall(keras.metrics.Mean):
    """The share of anchors whose positive is among the nearest of all positives of their batch.

    It grows easier with smaller batches, so compare runs of one batch size. Of a search in a whole
    corpus, `keras_lm.evaluation.evaluate_retrieval` has the recall.

    Args:
        k: int. How many of the nearest count.

    Call: `update_state(labels, vectors, sample_weight=None)`; `labels` are not read, vectors are
    (B, T, D), T of 2 or more.

    Example:

        encoder.compile(metrics=[InBatchRecall()])
        encoder.fit((questions, answers), validation_data=(more_questions, more_answers))
    """

    def __init__(self, k: int = 1, name: str = "in_batch_recall", **kwargs: Any):
        super().__init__(name=name, **kwargs)
        self.k: int = check_whole("k", k, 1)

    def update_state(
        self, labels: Any, vectors: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        _check_pairs(self, vectors)
        vectors = normalized(ops.cast(vectors, "float32"))
        cosines = ops.matmul(vectors[:, 0], ops.transpose(vectors[:, 1]))  # (B, B)
        # A positive as near as its own one, such as the same text, is no better.
        own = ops.diagonal(cosines)[:, None] + 1e-6
        nearer = ops.sum(ops.cast(cosines > own, "int32"), axis=1)
        super().update_state(ops.cast(nearer < self.k, "float32"), sample_weight)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"k": self.k}


def _check_pairs(metric, vectors):
    if len(vectors.shape) == 4:
        raise ValueError(
            f"{type(metric).__name__} compares one vector of each text, and those of tokens are "
            "given: leave it out of metrics, and measure by keras_lm.evaluation."
        )
    if len(vectors.shape) != 3:
        raise ValueError(
            f"{type(metric).__name__} compares the vectors of pairs, and those of single texts are "
            "given: leave it out of metrics, or train on pairs."
        )
