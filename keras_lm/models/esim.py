"""ESIM: two texts compared word by word, by LSTMs and soft alignment.

Differs from the baseline of GLUE, `pairs.py`: what a word attends to is also subtracted from it
and multiplied with it, a layer makes this narrow again, and texts are pooled by mean and maximum.

Shapes: B batch, S words of both texts, E width of a word, D both directions of a layer.
"""

from typing import Any

import keras
from keras import ops

from keras_lm.layers import Dense
from keras_lm.layers.backend import Dropout
from keras_lm.models.pairs import AttendAcross, PairBackbone, TwoWayLSTM, largest, mean
from keras_lm.utils.argument_types import DType, Tensor


@keras.saving.register_keras_serializable("keras_lm")
class EsimBackbone(PairBackbone):
    """A BiLSTM over each text, soft alignment of their words, a second BiLSTM, mean and maximum.

    Words come from an embedding, which is trained, or from a frozen language model; see
    `PairLSTMBackbone`. A single text is aligned with nothing.

    Args:
        vocabulary_size: int. Words in the embedding; None with a language model.
        embedding_dim: int, E. Of the embedding.
        hidden_dim: int, D. Both directions of each LSTM; the layers between have half of it.
        language_model: `Backbone` with a vector per word, or its configuration, or None.
        dropout: float. Fraction of the inputs of LSTMs and of the last two layers that is dropped.
        dtype: a dtype policy or its name.

    Call: `backbone({"token_ids": …, "segment_ids": …, "padding_mask": …})`, (B, S) int32 each, with
    1 in `segment_ids` at the second text; over ELMo with `character_ids` in place of the first.
    Returns `sequence_output` (B, S, D), zero in padding, and `pooled_output` (B, D / 2).

    Raises:
        ValueError: if `hidden_dim` is odd, or not exactly one of `vocabulary_size` and
            `language_model` is given.

    Example:

        backbone = EsimBackbone(vocabulary_size=5000, embedding_dim=24, hidden_dim=32)
        outputs = backbone({"token_ids": [[4, 7, 5, 7]], "segment_ids": [[0, 0, 1, 1]]})
        outputs["pooled_output"].shape  # (1, 16)

    Source: Chen et al. 2017, https://arxiv.org/abs/1609.06038, section 3; without the tree-LSTM.
    """

    learning_rate = 4e-4  # section 5.1

    def __init__(
        self,
        vocabulary_size: int | None = None,
        embedding_dim: int = 300,
        hidden_dim: int = 600,
        language_model: Any = None,
        dropout: float = 0.5,
        dtype: DType = None,
        name: str = "esim_backbone",
    ):
        super().__init__(vocabulary_size, embedding_dim, language_model, dtype, name)
        self.encode = TwoWayLSTM(hidden_dim, dropout, dtype=dtype, name="encoding")
        self.align = LocalInference(dtype=dtype)
        self.narrow = Dense(hidden_dim // 2, activation="relu", dtype=dtype, name="projection")
        self.compose = TwoWayLSTM(hidden_dim, dropout, dtype=dtype, name="composition")
        self.pool = PoolPair(dtype=dtype)
        self.dropout = Dropout(dropout, dtype=dtype)
        self.pooler = Dense(hidden_dim // 2, activation="tanh", dtype=dtype, name="pooler")
        self.finish()

    def forward(
        self, segment_ids: Tensor, padding_mask: Tensor, training: bool | None = None, **words: Any
    ) -> dict[str, Any]:
        x, first, second = self.read(segment_ids, padding_mask, **words)
        # Input encoding: each text is zero where the other one stands.
        a, b = (self.encode(x, mask, training=training) for mask in (first, second))
        encoded = a + b  # (B, S, D)
        # Local inference
        a, b = self.align(a, b, second), self.align(b, a, first)  # (B, S, 4D)
        # Inference composition
        a, b = self.narrow(a), self.narrow(b)  # (B, S, D / 2)
        a, b = self.compose(a, first, training=training), self.compose(b, second, training=training)
        pooled = self.dropout(self.pool(a, b, first, second), training=training)  # (B, 4D)
        return {
            "sequence_output": a + b,
            "pooled_output": self.pooler(pooled),
            "hidden_states": [x, encoded, a + b],
        }


@keras.saving.register_keras_serializable("keras_lm")
class LocalInference(AttendAcross):
    """A text's words a and what they attend to, ã, as [a; ã; a - ã; a · ã]: (B, S, 4D)."""

    def call(self, own, other, mask):
        attended = self.attended(own, other, mask)
        return ops.concatenate([own, attended, own - attended, own * attended], axis=-1)

    def compute_output_spec(self, own, other, mask):
        return keras.KerasTensor((*own.shape[:-1], 4 * own.shape[-1]), self.compute_dtype)


@keras.saving.register_keras_serializable("keras_lm")
class PoolPair(keras.layers.Layer):
    """The mean and the maximum over the words of both texts, [ā; a; b̄; b], (B, 4D)."""

    def call(self, first, second, first_mask, second_mask):
        pooled = []
        for x, mask in ((first, first_mask), (second, second_mask)):
            pooled += [mean(x, mask), largest(x, mask)]
        return ops.concatenate(pooled, axis=-1)

    def compute_output_spec(self, first, *_):
        return keras.KerasTensor((first.shape[0], 4 * first.shape[-1]), self.compute_dtype)
