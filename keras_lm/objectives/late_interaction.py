"""Late interaction: texts are compared token by token (ColBERT).

Shapes: B queries, C documents, Q and S their tokens, T texts of an example, D width.
"""

from typing import Any

import keras
from keras import ops

from keras_lm.objectives.embeddings import InBatchNegatives
from keras_lm.utils.argument_types import Tensor

LOWEST = -1e4  # a similarity that no token of length 1 has


def max_sim(queries: Tensor, documents: Tensor) -> Tensor:
    """Return the sum over a query's tokens of the highest similarity to one of a document's.

    Args:
        queries, documents: float (B, Q, D) and (C, S, D). A vector of zeros is no token.

    Returns:
        (B, C), float32.

    Source: Khattab and Zaharia 2020, https://arxiv.org/abs/2004.12832, equation 3.
    """
    is_token = ops.any(documents != 0, axis=-1)  # (C, S)
    scores = ops.einsum("bqd,csd->bcqs", queries, documents)
    best = ops.max(ops.where(is_token[None, :, None], scores, LOWEST), axis=-1)  # (B, C, Q)
    counts = ops.cast(ops.any(queries != 0, axis=-1), "float32")
    return ops.sum(best * counts[:, None], axis=-1)


@keras.saving.register_keras_serializable("keras_lm")
class MaxSimNegatives(InBatchNegatives):
    """`InBatchNegatives` over `max_sim` of the vectors of tokens, (B, T, S, D).

    Under a strategy of `tf.distribute`, texts of all replicas need as many columns: make the
    encoder with `padding="fixed"`.

    Args:
        scale: float, by which scores are multiplied: the inverse of a temperature.

    Example:

        encoder.compile(loss=keras_lm.objectives.MaxSimNegatives())
        encoder.fit((questions, answers))

    Source: Khattab and Zaharia 2020, https://arxiv.org/abs/2004.12832, section 3.3;
    sentence-transformers' `MultiVectorMultipleNegativesRankingLoss`.
    """

    def __init__(self, scale: float = 1.0, name: str = "max_sim_negatives"):
        super().__init__(scale, "dot", name=name)

    def scores(self, queries: Tensor, documents: Tensor) -> Tensor:
        return max_sim(queries, documents)

    def _check(self, vectors):
        if len(vectors.shape) != 4:
            raise ValueError(
                "loss=MaxSimNegatives() compares the tokens of pairs, (B, T, S, D), and there are "
                f"vectors of the shape {tuple(vectors.shape)}: pass pairs to a MultiVectorEncoder, "
                "or compile with another loss."
            )

    def get_config(self) -> dict[str, Any]:
        return {"scale": self.scale, "name": self.name}
