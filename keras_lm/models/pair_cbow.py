"""GLUE's CBoW: a text is the mean of its words' vectors, and a pair compares two of them.

Shapes: B batch, S words of both texts, E width of a word.
"""

from typing import Any

import keras
from keras import ops

from keras_lm.layers import Dense
from keras_lm.layers.backend import Dropout
from keras_lm.models.pairs import PairBackbone, mean
from keras_lm.utils.argument_types import DType


@keras.saving.register_keras_serializable("keras_lm")
class PairCBOWBackbone(PairBackbone):
    """The mean of the word vectors of each text, which a layer compares: it knows no order.

    Words come from an embedding, which is trained, or from a frozen model, such as a
    `WordVectorBackbone` with GloVe's vectors. A single text is compared with zeros.

    Args:
        vocabulary_size: int. Words in the embedding; None with a language model.
        embedding_dim: int, E. Of the embedding.
        language_model: `Backbone` with a vector per word, or its configuration, or None.
        pooled_dim: int. Width of `pooled_output`.
        dropout: float. Fraction of what is compared, and of the head's input, that is dropped.
        dtype: a dtype policy or its name.

    Call: `backbone({"token_ids": …, "segment_ids": …, "padding_mask": …})`, (B, S) int32 each, with
    1 in `segment_ids` at the second text. Returns `sequence_output` (B, S, E), the words, zero in
    padding, and `pooled_output`.

    Example:

        backbone = PairCBOWBackbone(vocabulary_size=5000, embedding_dim=24, pooled_dim=16)
        outputs = backbone({"token_ids": [[4, 7, 5, 7]], "segment_ids": [[0, 0, 1, 1]]})
        outputs["pooled_output"].shape  # (1, 16)

    Source: Wang et al. 2018, https://arxiv.org/abs/1804.07461, section 5.
    """

    learning_rate = 1e-3

    def __init__(
        self,
        vocabulary_size: int | None = None,
        embedding_dim: int = 300,
        language_model: Any = None,
        pooled_dim: int = 512,
        dropout: float = 0.2,
        dtype: DType = None,
        name: str = "pair_cbow_backbone",
    ):
        super().__init__(vocabulary_size, embedding_dim, language_model, dtype, name)
        self.dropout = Dropout(dropout, dtype=dtype)
        self.pooler = Dense(pooled_dim, activation="tanh", dtype=dtype, name="pooler")
        self.finish()

    def forward(self, segment_ids, padding_mask, training=None, **words):
        x, first, second = self.read(segment_ids, padding_mask, **words)
        u, v = mean(x, first), mean(x, second)  # (B, E)
        compared = ops.concatenate([u, v, ops.abs(u - v), u * v], axis=-1)
        return {
            "sequence_output": x * ops.expand_dims(ops.cast(padding_mask, x.dtype), -1),
            "pooled_output": self.pooler(self.dropout(compared, training=training)),
            "hidden_states": [x],
        }
