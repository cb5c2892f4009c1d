"""The baseline of GLUE: a bidirectional LSTM with attention between the two texts of a pair.

Shapes: B batch, S words of both texts, E width of a word, D both directions of a layer.
"""

from typing import Any

import keras
from keras import ops

from keras_lm.layers import Dense
from keras_lm.models.pairs import AttendAcross, PairBackbone, TwoWayLSTM, largest
from keras_lm.utils.argument_types import DType


@keras.saving.register_keras_serializable("keras_lm")
class PairLSTMBackbone(PairBackbone):
    """A BiLSTM over each text, attention between them, a second BiLSTM and max pooling.

    Words come from an embedding, or from a frozen language model: the learned mix of its hidden
    states if these are equally wide (ELMo), else all of them concatenated (word vectors and CoVe).
    A single text has nothing to attend to, and is compared with zeros.

    Args:
        vocabulary_size: int. Words in the embedding; None with a language model.
        num_layers: int. Layers of the first LSTM; the second, after the attention, has one.
        language_model: `Backbone` with a vector per word, or its configuration, or None.
        pooled_dim: int. Width of `pooled_output`.
        Other arguments: as `CoveBackbone`.

    Call: `backbone({"token_ids": …, "segment_ids": …, "padding_mask": …})`, (B, S) int32 each, with
    1 in `segment_ids` at the second text; over ELMo with `character_ids` in place of the first.
    Returns `sequence_output` (B, S, D), zero in padding, and `pooled_output`.

    Raises:
        ValueError: if `hidden_dim` is odd, or not exactly one of `vocabulary_size` and
            `language_model` is given.

    Example:

        elmo = keras_lm.models.ElmoBackbone.from_preset("elmo_small")
        tokenizer = keras_lm.tokenizers.Tokenizer.from_preset("elmo_small")
        task = keras_lm.tasks.TextClassifier(
            keras_lm.models.PairLSTMBackbone(language_model=elmo, hidden_dim=600),
            tokenizer=tokenizer,
            class_names=["entailment", "neutral", "contradiction"],
        )

    Source: Wang et al. 2018, https://arxiv.org/abs/1804.07461, section 5; the attention is that of
    Seo et al. 2016, https://arxiv.org/abs/1611.01603, without its trainable similarity.
    """

    learning_rate = 1e-3

    def __init__(
        self,
        vocabulary_size: int | None = None,
        embedding_dim: int = 300,
        hidden_dim: int = 3000,
        num_layers: int = 2,
        language_model: Any = None,
        pooled_dim: int = 512,
        dropout: float = 0.2,
        dtype: DType = None,
        name: str = "pair_lstm_backbone",
    ):
        super().__init__(vocabulary_size, embedding_dim, language_model, dtype, name)
        self.lstms = [
            TwoWayLSTM(hidden_dim, dropout, dtype=dtype, name=f"pair_lstm_{i}")
            for i in range(num_layers + 1)
        ]
        self.attend = AttendAcross(dtype=dtype)
        self.compare = ComparePair(dtype=dtype)
        self.pooler = Dense(pooled_dim, activation="tanh", dtype=dtype, name="pooler")
        self.finish()

    def forward(self, segment_ids, padding_mask, training=None, **words):
        x, first, second = self.read(segment_ids, padding_mask, **words)
        u, v, hidden_states = x, x, [x]
        for lstm in self.lstms[:-1]:
            u, v = lstm(u, first, training=training), lstm(v, second, training=training)
            hidden_states.append(u + v)  # each is zero where the other is not
        u, v = self.attend(u, v, second), self.attend(v, u, first)
        last = self.lstms[-1]
        u, v = last(u, first, training=training), last(v, second, training=training)
        hidden_states.append(u + v)
        return {
            "sequence_output": hidden_states[-1],
            "pooled_output": self.pooler(self.compare(u, v, first, second)),
            "hidden_states": hidden_states,
        }


@keras.saving.register_keras_serializable("keras_lm")
class ComparePair(keras.layers.Layer):
    """Max-pool both texts to u and v, and combine them as [u; v; |u - v|; u · v], (B, 4D)."""

    def call(self, first, second, first_mask, second_mask):
        u, v = largest(first, first_mask), largest(second, second_mask)
        return ops.concatenate([u, v, ops.abs(u - v), u * v], axis=-1)

    def compute_output_spec(self, first, *_):
        return keras.KerasTensor((first.shape[0], 4 * first.shape[-1]), self.compute_dtype)
