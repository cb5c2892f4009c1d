"""Transformer blocks."""

import keras

from keras_lm.layers.activations import get_activation
from keras_lm.layers.attention import SelfAttention
from keras_lm.layers.dense import Dense
from keras_lm.layers.initializers import truncated_normal
from keras_lm.layers.normalization import LayerNormalization


@keras.saving.register_keras_serializable("keras_lm")
class FeedForward(keras.layers.Layer):
    """The position-wise network of a block: Dense, activation, Dense back to the input's width.

    Args:
        intermediate_dim: int. Width between the two products.
        activation: str. See `keras_lm.layers.get_activation`.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call: `layer(x)`, (B, S, D) → (B, S, D).

    Source: https://arxiv.org/abs/1706.03762, section 3.3.
    """

    def __init__(self, intermediate_dim, activation="gelu", **kwargs):
        super().__init__(**kwargs)
        self.intermediate_dim = intermediate_dim
        self.activation = activation

    def build(self, input_shape):
        options = {"kernel_initializer": truncated_normal(), "dtype": self.dtype_policy}
        self.intermediate = Dense(
            self.intermediate_dim,
            activation=get_activation(self.activation),
            name="intermediate",
            **options,
        )
        self.intermediate.build(input_shape)
        self.output_dense = Dense(input_shape[-1], name="output", **options)
        self.output_dense.build((*input_shape[:-1], self.intermediate_dim))

    def call(self, x):
        return self.output_dense(self.intermediate(x))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return super().get_config() | {
            "intermediate_dim": self.intermediate_dim,
            "activation": self.activation,
        }


@keras.saving.register_keras_serializable("keras_lm")
class PostNormBlock(keras.layers.Layer):
    """A Transformer block that normalises after each residual sum, as in BERT.

    A variant overrides `make_attention`, `make_feedforward` or `make_norm`.

    Args:
        num_heads: int. Attention heads; must divide the width D of the input.
        intermediate_dim: int. Width inside the feed-forward network.
        dropout: float. Share dropped of what attention and feed-forward add.
        attention_dropout: float. Share dropped of the attention probabilities.
        activation: str. See `keras_lm.layers.get_activation`.
        layer_norm_epsilon: float.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call: `block(x, bias=None)`, `x` (B, S, D), `bias` broadcastable to (B, N, S, S); returns
    (B, S, D). `block.attention_probabilities(x, bias)` returns (B, N, S, S).

    Example:

        block = PostNormBlock(num_heads=4, intermediate_dim=256)
        block(np.zeros((2, 7, 64), "float32")).shape  # (2, 7, 64)

    Source: https://arxiv.org/abs/1706.03762, section 3.1.
    """

    def __init__(
        self,
        num_heads,
        intermediate_dim,
        dropout=0.0,
        attention_dropout=0.0,
        activation="gelu",
        layer_norm_epsilon=1e-12,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.intermediate_dim = intermediate_dim
        self.dropout_rate = dropout
        self.attention_dropout = attention_dropout
        self.activation = activation
        self.layer_norm_epsilon = layer_norm_epsilon

    def make_attention(self):
        return SelfAttention(
            self.num_heads, self.attention_dropout, name="attention", dtype=self.dtype_policy
        )

    def make_feedforward(self):
        return FeedForward(
            self.intermediate_dim, self.activation, name="feedforward", dtype=self.dtype_policy
        )

    def make_norm(self, name):
        return LayerNormalization(
            epsilon=self.layer_norm_epsilon, name=name, dtype=self.dtype_policy
        )

    def build(self, input_shape):
        self.attention = self.make_attention()
        self.attention_norm = self.make_norm("attention_norm")
        self.feedforward = self.make_feedforward()
        self.feedforward_norm = self.make_norm("feedforward_norm")
        self.dropout = keras.layers.Dropout(self.dropout_rate, dtype=self.dtype_policy)
        for layer in (
            self.attention,
            self.attention_norm,
            self.feedforward,
            self.feedforward_norm,
        ):
            layer.build(input_shape)

    def call(self, x, bias=None, training=None):
        attended = self.attention(x, bias=bias, training=training)
        x = self.attention_norm(x + self.dropout(attended, training=training))
        return self.feedforward_norm(x + self.dropout(self.feedforward(x), training=training))

    def attention_probabilities(self, x, bias=None):
        """Return the (B, N, S, S) float32 with which this block attends, given its input `x`."""
        return self.attention.probabilities(x, bias)

    def compute_output_shape(self, input_shape, *args, **kwargs):
        return input_shape

    def get_config(self):
        return super().get_config() | {
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout_rate,
            "attention_dropout": self.attention_dropout,
            "activation": self.activation,
            "layer_norm_epsilon": self.layer_norm_epsilon,
        }
