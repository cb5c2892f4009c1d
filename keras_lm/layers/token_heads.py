"""Heads on each token, `head(outputs, inputs)`, as those in `heads.py`."""

from typing import Any

import keras

from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import Dense, float32_or_wider, truncated_normal


@keras.saving.register_keras_serializable("keras_lm")
class EachTokenClassifier(keras.layers.Layer):
    """Dropout and a linear layer on every token: logits (B, S, classes) float32.

    Args:
        num_classes: int.
        dropout: float. Fraction of the sequence output dropped in training.

    Source: BERT, https://arxiv.org/abs/1810.04805, section 5.3, and its figure 4 (d).
    """

    def __init__(self, num_classes: int, dropout: float = 0.1, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.dropout_rate = dropout

    def build(self, outputs_shape, inputs_shape=None):
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy)
        self.logits = Dense(
            self.num_classes,
            kernel_initializer=truncated_normal(),
            dtype=float32_or_wider(self.dtype_policy),
            name="logits",
        )
        self.logits.build(outputs_shape["sequence_output"])

    def call(self, outputs, inputs=None, training=None):
        return self.logits(self.dropout(outputs["sequence_output"], training=training))

    def get_config(self):
        return super().get_config() | {
            "num_classes": self.num_classes,
            "dropout": self.dropout_rate,
        }


class SpanHead(keras.layers.Layer):
    """A linear layer on every token: `start_logits` and `end_logits`, (B, S) float32 each.

    Source: BERT, https://arxiv.org/abs/1810.04805, section 4.2; google-research/bert,
    `run_squad.py`, `create_model`.
    """

    uses_pooler = False

    def build(self, outputs_shape, inputs_shape=None):
        self.logits = Dense(
            2,
            kernel_initializer=truncated_normal(),
            dtype=float32_or_wider(self.dtype_policy),
            name="logits",
        )
        self.logits.build(outputs_shape["sequence_output"])

    def call(self, outputs, inputs=None, training=None):
        logits = self.logits(outputs["sequence_output"])
        return {"start_logits": logits[:, :, 0], "end_logits": logits[:, :, 1]}
