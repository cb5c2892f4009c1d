"""BERT's masked LM head. Shapes: B batch, S sequence, M masked positions, D hidden, V tokens."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_lm.layers.backend import word_scores
from keras_lm.layers.basic import (
    Dense,
    LayerNormalization,
    get_activation,
    truncated_normal,
)
from keras_lm.utils.argument_types import Tensor


@keras.saving.register_keras_serializable("keras_lm")
class MaskedLMHead(keras.layers.Layer):
    """BERT's masked LM head: dense, activation, norm, then the tied token embedding and a bias.

    Args:
        token_embedding: the backbone's `ReversibleEmbedding`; its transpose is the output matrix.
        activation, layer_norm_epsilon: see `PostNormBlock`.

    Call: `head(outputs, inputs)` → (B, S, V) float32, or (B, M, V) if `inputs` has `mask_positions`
    (B, M).

    Source: https://arxiv.org/abs/1810.04805, section 3.1, task 1, and google-research/bert,
    `run_pretraining.py`, `get_masked_lm_output`.
    """

    # Of each text, those that are masked at the published rate; see `keras_lm.models.sizes`.
    share_of_tokens = 0.15

    def __init__(
        self,
        token_embedding: keras.Layer,
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        layer_norm_epsilon: float = 1e-12,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.token_embedding = token_embedding
        self.activation = activation
        self.layer_norm_epsilon = layer_norm_epsilon

    def build(self, outputs_shape, inputs_shape=None):
        embedding = self.token_embedding
        self.dense = Dense(
            embedding.output_dim,
            activation=get_activation(self.activation),
            kernel_initializer=truncated_normal(),
            dtype=self.dtype_policy,
            name="dense",
        )
        self.dense.build(outputs_shape["sequence_output"])
        self.norm = LayerNormalization(
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name="norm"
        )
        self.norm.build((*outputs_shape["sequence_output"][:-1], embedding.output_dim))
        self.bias = self.add_weight(name="bias", shape=(embedding.input_dim,), initializer="zeros")

    def call(self, outputs, inputs=None, training=None):
        x = outputs["sequence_output"]
        if inputs is not None and "mask_positions" in inputs:
            x = ops.take_along_axis(x, inputs["mask_positions"][:, :, None], axis=1)  # (B, M, D)
        x = word_scores(self.transform(x), self.token_embedding.embeddings)
        return x + ops.cast(self.bias, "float32")

    def transform(self, x):
        """Return the vectors (…, D) that the embedding's are compared with."""
        return self.norm(self.dense(x))
