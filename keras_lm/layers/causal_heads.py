"""Heads of causal models. Shapes: B batch, S sequence, D hidden, V vocabulary."""

from typing import Any

import keras
from keras import ops

from keras_lm.argument_types import Tensor
from keras_lm.layers.backend import Dropout, word_scores
from keras_lm.layers.basic import Dense, float32_or_wider, truncated_normal


class CausalLMHead(keras.layers.Layer):
    """The next token's logits: the product with the token embedding, or with a separate matrix.

    Args:
        token_embedding: `keras.layers.ReversibleEmbedding` of the backbone.
        tied: bool. Whether to use the token embedding; False creates a matrix of the same shape.

    Call: `head(outputs, inputs)` → (B, S, V) float32, the next token's logits at each position.

    Source: GPT, "Improving Language Understanding by Generative Pre-Training", equation 2.
    """

    def __init__(self, token_embedding: keras.Layer, tied: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        self.token_embedding = token_embedding
        self.tied = tied

    def build(self, outputs_shape, inputs_shape=None):
        if not self.tied:
            self.own = self.add_weight(
                name="embeddings",
                shape=(self.token_embedding.input_dim, outputs_shape["sequence_output"][-1]),
                initializer=self.make_initializer(),
            )

    def make_initializer(self) -> str:
        """Return the initialiser of the head's own matrix, if it is not tied."""
        return "glorot_uniform"

    @property
    def table(self) -> Tensor:
        """The matrix (V, D), a row per token of the vocabulary."""
        return self.token_embedding.embeddings if self.tied else self.own

    def call(self, outputs, inputs=None, training=None):
        return word_scores(outputs["sequence_output"], self.table)


@keras.saving.register_keras_serializable("keras_lm")
class LastTokenClassifier(keras.layers.Layer):
    """Dropout and a linear layer on the last real token, the only one that attends to all others.

    Args:
        num_classes, use_bias: int and bool, of the linear layer.
        dropout: float. Fraction of the token's vector dropped in training.

    Call: `head(outputs, inputs)` → (B, classes) float32. Without `padding_mask` (B, S) in `inputs`,
    all tokens are real.

    Source: GPT, "Improving Language Understanding by Generative Pre-Training", section 3.2.
    """

    def __init__(
        self, num_classes: int, dropout: float = 0.1, use_bias: bool = True, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.dropout_rate = dropout
        self.use_bias = use_bias

    def build(self, outputs_shape, inputs_shape=None):
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy)
        self.logits = Dense(
            self.num_classes,
            use_bias=self.use_bias,
            kernel_initializer=truncated_normal(),
            dtype=float32_or_wider(self.dtype_policy),
            name="logits",
        )
        batch, _, hidden_dim = outputs_shape["sequence_output"]
        self.logits.build((batch, hidden_dim))

    def call(self, outputs, inputs=None, training=None):
        x = outputs["sequence_output"]
        if inputs is None or "padding_mask" not in inputs:
            x = x[:, -1]
        else:
            last = last_real_token(inputs["padding_mask"])  # (B,)
            x = ops.take_along_axis(x, ops.reshape(last, (-1, 1, 1)), axis=1)[:, 0]
            # A text without tokens has padding alone, which depends on the rest of its batch.
            is_text = ops.max(inputs["padding_mask"], axis=1, keepdims=True)
            x = x * ops.cast(is_text, x.dtype)
        return self.logits(self.dropout(x, training=training))

    def get_config(self):
        return super().get_config() | {
            "num_classes": self.num_classes,
            "dropout": self.dropout_rate,
            "use_bias": self.use_bias,
        }


def last_real_token(padding_mask):
    """Return the column (B,) of the last real token in a mask (B, S); 0 if all is padding."""
    columns = ops.expand_dims(ops.arange(ops.shape(padding_mask)[1], dtype="int32"), 0)
    return ops.max(ops.cast(padding_mask, "int32") * columns, axis=1)
