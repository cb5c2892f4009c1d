"""Heads on a text, `head(outputs, inputs)`: a backbone's outputs and inputs → a task's logits."""

from typing import Any

import keras
from keras import ops

from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import (
    Dense,
    float32_or_wider,
    make_pooler,
    truncated_normal,
)


@keras.saving.register_keras_serializable("keras_lm")
class PooledClassifier(keras.layers.Layer):
    """Dropout and a linear layer on the pooled output: logits (B, classes) float32.

    If the backbone has no `pooled_output`, because its checkpoint has no weights for it, the head
    has a pooler of its own, of the same form.

    Args:
        num_classes: int.
        dropout: float. Fraction of the pooled output dropped in training.

    Source: BERT, https://arxiv.org/abs/1810.04805, section 4.1.
    """

    def __init__(self, num_classes: int, dropout: float = 0.1, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.dropout_rate = dropout

    def build(self, outputs_shape, inputs_shape=None):
        pooled_shape = outputs_shape.get("pooled_output")
        self.pooler = None
        if pooled_shape is None:
            batch, _, hidden_dim = outputs_shape["sequence_output"]
            pooled_shape = (batch, hidden_dim)
            self.pooler = make_pooler(hidden_dim, self.dtype_policy)
            self.pooler.build(pooled_shape)
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy)
        self.logits = Dense(
            self.num_classes,
            kernel_initializer=truncated_normal(),
            dtype=float32_or_wider(self.dtype_policy),
            name="logits",
        )
        self.logits.build(pooled_shape)

    def call(self, outputs, inputs=None, training=None):
        if self.pooler is None:
            pooled = outputs["pooled_output"]
        else:
            pooled = self.pooler(outputs["sequence_output"][:, 0])
        return self.logits(self.dropout(pooled, training=training))

    def get_config(self):
        return super().get_config() | {
            "num_classes": self.num_classes,
            "dropout": self.dropout_rate,
        }


@keras.saving.register_keras_serializable("keras_lm")
class FirstTokenClassifier(PooledClassifier):
    """Dropout, dense, tanh, dropout and logits on `<s>`: fairseq's `RobertaClassificationHead`."""

    uses_pooler = False

    def build(self, outputs_shape, inputs_shape=None):
        super().build({"sequence_output": outputs_shape["sequence_output"]})

    def call(self, outputs, inputs=None, training=None):
        first = self.dropout(outputs["sequence_output"][:, :1], training=training)
        return super().call({"sequence_output": first}, training=training)


@keras.saving.register_keras_serializable("keras_lm")
class MeanPooledClassifier(PooledClassifier):
    """`PooledClassifier` on the mean of a text's real tokens, or zeros if it has none."""

    def build(self, outputs_shape, inputs_shape=None):
        batch, _, hidden_dim = outputs_shape["sequence_output"]
        super().build({"pooled_output": (batch, hidden_dim)})

    def call(self, outputs, inputs=None, training=None):
        x = outputs["sequence_output"]
        mask = (inputs or {}).get("padding_mask")
        mask = ops.ones_like(x[:, :, :1]) if mask is None else ops.expand_dims(mask, -1)
        mask = ops.cast(mask, x.dtype)  # (B, S, 1)
        mean = ops.sum(x * mask, axis=1) / ops.maximum(ops.sum(mask, axis=1), 1)
        return super().call({"pooled_output": mean}, training=training)
