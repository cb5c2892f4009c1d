"""The loss of sparse vectors: which texts belong together, and that few numbers are above 0.

Shapes: B examples, T texts of each, V width, A examples of all replicas.
"""

from typing import Any

import keras
from keras import ops

from keras_lm.layers.tensorflow import gathered_from_replicas
from keras_lm.objectives.embeddings import EmbeddingLoss, Examples, InBatchNegatives
from keras_lm.utils.argument_types import Tensor


@keras.saving.register_keras_serializable("keras_lm")
class SpladeLoss(EmbeddingLoss):
    """A loss of embeddings, and the FLOPS regularizer of sparse vectors.

    FLOPS is the sum over the vocabulary of the squared mean weight of a batch's texts, those of
    other replicas included: an estimate of what an inverted index has to multiply. It counts once
    for anchors, which are queries, and once for all others, which are documents.

    Args:
        loss: another loss of embeddings, or its configuration; None for
            `InBatchNegatives(scale=1.0, similarity="dot")`.
        document_weight, query_weight: float. How much FLOPS of documents and of queries counts; 0
            for not at all. Vectors get sparser with more.
        document_threshold, query_threshold: int. Only texts with more weights above 0 count; None
            for all.

    Raises:
        ValueError: if a weight is negative, or the loss is not one of at least two texts.

    Example:

        encoder.compile(loss=keras_lm.objectives.SpladeLoss(document_weight=3e-4))
        encoder.fit((questions, answers))

    Source: Paria et al. 2020, https://arxiv.org/abs/2004.05665, equation 5; Formal et al. 2021,
    https://arxiv.org/abs/2107.05720, section 3.2; thresholds, https://arxiv.org/abs/2504.14839;
    sentence-transformers' `SpladeLoss`.
    """

    def __init__(
        self,
        loss: EmbeddingLoss | None = None,
        document_weight: float = 3e-5,
        query_weight: float = 5e-5,
        document_threshold: int | None = None,
        query_threshold: int | None = None,
        name: str = "splade_loss",
    ):
        super().__init__(name)
        if isinstance(loss, dict):
            loss = keras.saving.deserialize_keras_object(loss)
        loss = InBatchNegatives(1.0, "dot") if loss is None else loss
        if not isinstance(loss, EmbeddingLoss) or loss.least_texts < 2:
            raise ValueError(
                f"loss={loss!r}: pass a loss of pairs, such as InBatchNegatives(), of which the "
                "first are queries and the others documents."
            )
        for argument, value in (
            ("document_weight", document_weight),
            ("query_weight", query_weight),
        ):
            if not value >= 0:
                raise ValueError(f"{argument}={value!r}: pass a number of 0 or more.")
        self.loss, self.labels_are, self.least_texts = loss, loss.labels_are, loss.least_texts
        self.are_cosines = loss.are_cosines
        self.document_weight, self.query_weight = document_weight, query_weight
        self.document_threshold, self.query_threshold = document_threshold, query_threshold

    def losses(self, vectors: Tensor, examples: Examples) -> tuple[Tensor, Tensor]:
        losses, counted = self.loss.losses(vectors, examples)
        everything = gathered_from_replicas(vectors)  # (A, T, V)
        is_text = None
        if examples.is_text is not None:
            is_text = gathered_from_replicas(ops.cast(examples.is_text, "float32"))[:, 1:]
        documents = _flops(everything[:, 1:], self.document_threshold, is_text)
        queries = _flops(everything[:, :1], self.query_threshold)
        penalty = self.document_weight * documents + self.query_weight * queries
        return losses + penalty, counted

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "loss": keras.saving.serialize_keras_object(self.loss),
            "document_weight": self.document_weight,
            "query_weight": self.query_weight,
            "document_threshold": self.document_threshold,
            "query_threshold": self.query_threshold,
        }


def _flops(vectors, threshold, is_text=None):
    """Return the FLOPS of vectors (A, T, V), of those that are there: ()."""
    width = vectors.shape[-1]
    counted = ops.ones_like(vectors[..., 0]) if is_text is None else is_text
    number = ops.maximum(ops.sum(counted), 1.0)
    if threshold is not None:  # others count as vectors of zeros
        above = ops.sum(ops.cast(vectors != 0, "int32"), axis=-1)
        counted *= ops.cast(above > threshold, "float32")
    rows = ops.reshape(vectors * counted[..., None], (-1, width))
    return ops.sum(ops.square(ops.sum(rows, axis=0) / number))
