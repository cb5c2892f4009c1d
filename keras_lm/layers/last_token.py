"""The last real token of each row, and its classifier. Shapes: B batch, S sequence, D hidden."""

from typing import Any

import keras
from keras import ops

from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import Dense, float32_or_wider, truncated_normal


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
