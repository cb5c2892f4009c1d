"""Self-attention, bidirectional and causal."""

import keras
from keras import ops

from keras_lm.layers.dense import Dense
from keras_lm.layers.initializers import truncated_normal

# Shapes: B batch, S sequence, T slots that are attended to, D hidden, N heads, H per head.


@keras.saving.register_keras_serializable("keras_lm")
class SelfAttention(keras.layers.Layer):
    """Multi-head scaled dot-product self-attention.

    Query, key and value come from one product with a kernel of shape (D, 3·D): query first, then
    key, then value, each with its heads one after the other. Causality, padding and relative
    positions all arrive as one additive `bias`.

    Args:
        num_heads: int. N; must divide D.
        dropout: float. Share of attention probabilities dropped in training.
        output_stddev: float. Standard deviation of the output kernel's initial values.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call: `layer(x, bias=None)`, `x` (B, S, D), `bias` broadcastable to (B, N, S, S); returns
    (B, S, D). `layer.probabilities(x, bias)` returns the (B, N, S, S) float32 that the sum uses.

    Raises:
        ValueError: when built, if `num_heads` does not divide D.

    Example:

        attention = SelfAttention(num_heads=4)
        attention(np.zeros((2, 7, 64), "float32")).shape  # (2, 7, 64)

    Source: https://arxiv.org/abs/1706.03762, section 3.2.2.
    """

    def __init__(self, num_heads, dropout=0.0, output_stddev=0.02, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout_rate = dropout
        self.output_stddev = output_stddev

    def build(self, input_shape):
        hidden_dim = input_shape[-1]
        if hidden_dim % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads} does not divide the width {hidden_dim} of the input: "
                "choose a num_heads that does."
            )
        self.head_dim = hidden_dim // self.num_heads
        self.scale = self.make_scale()
        self.query_key_value = self.make_query_key_value(3 * hidden_dim)
        self.query_key_value.build(input_shape)
        self.dropout = keras.layers.Dropout(self.dropout_rate, dtype=self.dtype_policy)
        self.output_dense = Dense(
            hidden_dim,
            kernel_initializer=truncated_normal(self.output_stddev),
            dtype=self.dtype_policy,
            name="output",
        )
        self.output_dense.build(input_shape)

    def make_scale(self):
        return self.head_dim**-0.5

    def make_query_key_value(self, units):
        return Dense(
            units,
            kernel_initializer=truncated_normal(),
            dtype=self.dtype_policy,
            name="query_key_value",
        )

    def project(self, x):
        """Return query, key and value of `x` (B, S, D), each (B, N, S, H)."""
        batch, length = ops.shape(x)[0], ops.shape(x)[1]
        x = ops.reshape(self.query_key_value(x), (batch, length, 3, self.num_heads, self.head_dim))
        query, key, value = ops.unstack(ops.transpose(x, (2, 0, 3, 1, 4)), 3)
        return query, key, value

    def _softmax(self, query, key, bias):
        scores = ops.matmul(query * self.scale, ops.swapaxes(key, -1, -2))  # (B, N, S, T)
        scores = ops.cast(scores, "float32")
        if bias is not None:
            scores = scores + ops.cast(bias, "float32")
        return ops.softmax(scores, axis=-1)

    def probabilities(self, x, bias=None):
        """Return who attends to whom: (B, N, S, S) float32, summing to 1 on the last axis."""
        query, key, _ = self.project(x)
        return self._softmax(query, key, bias)

    def attend(self, query, key, value, bias=None, training=None):
        """Return (B, S, D): what queries (B, N, S, H) read from (B, N, T, H), projected."""
        probabilities = ops.cast(self._softmax(query, key, bias), self.compute_dtype)
        probabilities = self.dropout(probabilities, training=training)
        context = ops.transpose(ops.matmul(probabilities, value), (0, 2, 1, 3))  # (B, S, N, H)
        batch, length = ops.shape(context)[0], ops.shape(context)[1]
        context = ops.reshape(context, (batch, length, self.num_heads * self.head_dim))
        return self.output_dense(context)

    def call(self, x, bias=None, training=None):
        return self.attend(*self.project(x), bias=bias, training=training)

    def compute_output_shape(self, input_shape, *args, **kwargs):
        return input_shape

    def get_config(self):
        return super().get_config() | {
            "num_heads": self.num_heads,
            "dropout": self.dropout_rate,
            "output_stddev": self.output_stddev,
        }


@keras.saving.register_keras_serializable("keras_lm")
class CausalSelfAttention(SelfAttention):
    """Self-attention that hands out its keys and values, and goes on from earlier ones.

    Args:
        num_heads: int. N; must divide D.
        dropout: float. Share of attention probabilities dropped in training.
        output_stddev: float. Standard deviation of the output kernel's initial values.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call: `layer(x, bias=None, past=None, write=None)`, `x` (B, S, D). Without a past it is
    `SelfAttention`, and who sees whom is up to `bias`. `past` is `(keys, values)`, each (B, N, T,
    H); `write(old, new)` returns one of them with the new ones (B, N, S, H) in it, and `bias` is
    broadcastable to (B, N, S, T). Returns `(output, keys, values)`: (B, S, D), and the keys and
    values that were attended to.

    Source: https://arxiv.org/abs/1706.03762, section 3.2.3.
    """

    def call(self, x, bias=None, past=None, write=None, training=None):
        query, key, value = self.project(x)
        if past is not None:
            key, value = write(past[0], key), write(past[1], value)
        return self.attend(query, key, value, bias=bias, training=training), key, value

    def compute_output_shape(self, input_shape, *args, **kwargs):
        batch, length, hidden_dim = input_shape
        heads = (batch, self.num_heads, length, hidden_dim // self.num_heads)
        return input_shape, heads, heads
