"""Attention: self-attention, causal or not, and cross-attention."""

import keras
from keras import ops

from keras_lm.layers.backend import (
    draw_seed,
    dropout,
    in_blocks,
    is_long,
    matmul,
    matmul_transposed,
    softmax,
)
from keras_lm.layers.basic import Dense, truncated_normal
from keras_lm.layers.masks import as_tensor

# Shapes: B batch, S sequence, T what is attended to, D hidden, N heads, H per head.


class Attention(keras.layers.Layer):
    """Multi-head scaled dot-product attention; a subclass makes queries, keys and values.

    Causal masks, padding and relative-position biases all come as one additive `bias`, a tensor or
    a `keras_lm.layers.masks.Visible`. Long texts attend in blocks, see `is_long`. A variant
    overrides a small method: `make_scale`, `make_projection` and `make_output` for other weights,
    `raw_scores` for scores other than the product of query and key.

    Args:
        num_heads: int, N; must divide D if `head_dim` is None.
        dropout: float. Fraction of attention probabilities dropped in training.
        output_stddev: float. Standard deviation of the output kernel's initial values.
        head_dim: int, H, or None for D / N.
    """

    def __init__(self, num_heads, dropout=0.0, output_stddev=0.02, head_dim=None, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout_rate = dropout
        self.output_stddev = output_stddev
        self.head_dim = self._given_head_dim = head_dim

    def set_widths(self, hidden_dim):
        """Set `head_dim` and `scale` for the width D of the input; return N·H."""
        if self._given_head_dim is None and hidden_dim % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads} does not divide the width {hidden_dim} of the input: "
                "choose a num_heads that does, or pass head_dim."
            )
        self.head_dim = self._given_head_dim or hidden_dim // self.num_heads
        self.scale = self.make_scale()
        return self.num_heads * self.head_dim

    def build_output(self, hidden_dim):
        self.dropout = keras.layers.Dropout(self.dropout_rate, dtype=self.dtype_policy)
        self.output_dense = self.make_output(hidden_dim)
        self.output_dense.build((None, None, self.num_heads * self.head_dim))

    def make_scale(self):
        return self.head_dim**-0.5

    def make_projection(self, units, name):
        return Dense(
            units, kernel_initializer=truncated_normal(), dtype=self.dtype_policy, name=name
        )

    def make_output(self, units):
        return Dense(
            units,
            kernel_initializer=truncated_normal(self.output_stddev),
            dtype=self.dtype_policy,
            name="output",
        )

    def split_heads(self, x, parts):
        """Return the `parts` of (B, S, parts·N·H) as a list of (B, N, S, H)."""
        if x.shape[1] == 1:  # a step of decoding: there is nothing to transpose
            x = ops.reshape(x, (-1, parts, self.num_heads, 1, self.head_dim))
            return ops.unstack(x, parts, axis=1)
        batch, length = ops.shape(x)[0], ops.shape(x)[1]
        x = ops.reshape(x, (batch, length, parts, self.num_heads, self.head_dim))
        return ops.unstack(ops.transpose(x, (2, 0, 3, 1, 4)), parts)

    def raw_scores(self, query, key):
        """Return the scores (B, N, S, T) of queries (B, N, S, H) and keys (B, N, T, H).

        An override may take more keyword arguments, such as positions, which `attend` passes on.
        """
        return matmul_transposed(query * self.scale, key)

    def biased_scores(self, query, key, bias=None, **more):
        """Return the scores (B, N, S, T) before the softmax, float32."""
        scores = ops.cast(self.raw_scores(query, key, **more), "float32")
        return scores if bias is None else scores + ops.cast(as_tensor(bias), "float32")

    def read(self, query, key, value, bias=None, seed=None, **more):
        """Return the context (B, N, S, H); `seed` is that of dropout, or None for none."""
        probabilities = softmax(self.biased_scores(query, key, bias, **more))
        probabilities = ops.cast(probabilities, self.compute_dtype)
        if seed is not None:
            probabilities = dropout(probabilities, self.dropout_rate, seed)
        return matmul(probabilities, value)

    def read_by_size(self, query, key, value, bias=None, seed=None, **more):
        """Return what `read` does, block by block of queries where a text is long."""
        # Other scores may depend on more than a query and a key, or on weights.
        is_plain = not more and type(self).raw_scores is Attention.raw_scores
        if is_plain and is_long(query.shape[2], key.shape[2]):
            return in_blocks(self.read, query, key, value, bias, seed)
        return self.read(query, key, value, bias, seed, **more)

    def attend(self, query, key, value, bias=None, head_mask=None, training=None, **more):
        """Return the output (B, S, D) for queries (B, N, S, H), keys and values (B, N, T, H)."""
        seed = None
        if training and self.dropout_rate:
            seed = draw_seed(self.dropout.seed_generator)
        context = self.read_by_size(query, key, value, bias, seed, **more)  # (B, N, S, H)
        if head_mask is not None:
            head_mask = ops.cast(head_mask, self.compute_dtype)
            context = context * ops.expand_dims(ops.expand_dims(head_mask, -1), -1)
        return self.output_dense(self.join_heads(context))

    def join_heads(self, x):
        """Return (B, S, N·H) of (B, N, S, H)."""
        width = self.num_heads * self.head_dim
        if x.shape[2] == 1:
            return ops.reshape(x, (-1, 1, width))
        x = ops.transpose(x, (0, 2, 1, 3))
        return ops.reshape(x, (ops.shape(x)[0], ops.shape(x)[1], width))

    def get_config(self):
        return super().get_config() | {
            "num_heads": self.num_heads,
            "dropout": self.dropout_rate,
            "output_stddev": self.output_stddev,
            "head_dim": self._given_head_dim,
        }


@keras.saving.register_keras_serializable("keras_lm")
class SelfAttention(Attention):
    """Self-attention; arguments are those of `Attention`.

    Query, key and value come from one product with a kernel of shape (D, 3·N·H): query first, then
    key, then value, each with its heads one after the other.

    Call: `layer(x, bias=None, head_mask=None)`, `x` (B, S, D), `bias` broadcastable to
    (B, N, S, S), `head_mask` (N,) or (B, N), a factor of each head's output; returns (B, S, D).

    Example:

        attention = SelfAttention(num_heads=4)
        attention(np.zeros((2, 7, 64), "float32")).shape  # (2, 7, 64)

    Source: https://arxiv.org/abs/1706.03762, section 3.2.2.
    """

    def build(self, input_shape):
        width = self.set_widths(input_shape[-1])
        self.query_key_value = self.make_projection(3 * width, "query_key_value")
        self.query_key_value.build(input_shape)
        self.build_output(input_shape[-1])

    def project(self, x):
        """Return query, key and value of `x` (B, S, D), each (B, N, S, H)."""
        return self.split_heads(self.query_key_value(x), 3)

    def scores(self, x, bias=None, **more):
        """Return the scores (B, N, S, S) before the softmax, with the bias, float32."""
        query, key, _ = self.project(x)
        return self.biased_scores(query, key, bias, **more)

    def probabilities(self, x, bias=None, **more):
        """Return the attention probabilities (B, N, S, S), float32."""
        return softmax(self.scores(x, bias, **more))

    def call(self, x, bias=None, head_mask=None, training=None):
        return self.attend(*self.project(x), bias=bias, head_mask=head_mask, training=training)

    def compute_output_shape(self, input_shape, *args, **kwargs):
        return input_shape


@keras.saving.register_keras_serializable("keras_lm")
class CausalSelfAttention(SelfAttention):
    """Self-attention that returns its keys and values, and continues from earlier ones.

    Arguments are those of `Attention`, and the causal mask is part of `bias`.

    Call: `layer(x, bias=None, past=None, write=None, head_mask=None)`, `x` (B, S, D). `past` is
    `(keys, values)`, each (B, N, T, H); `write(old, new)` returns one of them with the new ones
    (B, N, S, H) written into it, and `bias` is broadcastable to (B, N, S, T). Returns the output
    (B, S, D), and the keys and the values that were attended to.

    Source: https://arxiv.org/abs/1706.03762, section 3.2.3.
    """

    def call(self, x, bias=None, past=None, write=None, head_mask=None, training=None):
        query, key, value = self.project(x)
        if past is not None:
            key, value = write(past[0], key), write(past[1], value)
        output = self.attend(query, key, value, bias=bias, head_mask=head_mask, training=training)
        return output, key, value

    def compute_output_shape(self, input_shape, *args, **kwargs):
        batch, length, hidden_dim = input_shape
        heads = (batch, self.num_heads, length, self.head_dim or hidden_dim // self.num_heads)
        return input_shape, heads, heads


@keras.saving.register_keras_serializable("keras_lm")
class CrossAttention(Attention):
    """Cross-attention: of a decoder to its source, the encoder's output.

    The query has its own kernel, (D, N·H); key and value come from one product of the source with a
    kernel of shape (width of the source, 2·N·H), key first. Arguments are those of `Attention`.

    Call: `layer(x, source=None, bias=None, past=None, head_mask=None)` as `SelfAttention`, with
    `source` (B, T, its width) and `bias` broadcastable to (B, N, S, T). To decode in a loop,
    compute `past = layer.keys_and_values(source)` once and pass it instead of the source.

    Example:

        attention = CrossAttention(num_heads=4)
        source = np.zeros((2, 9, 64), "float32")
        attention(np.zeros((2, 7, 64), "float32"), source).shape  # (2, 7, 64)

    Source: https://arxiv.org/abs/1706.03762, section 3.2.3.
    """

    def build(self, x_shape, source_shape=None):
        width = self.set_widths(x_shape[-1])
        self.query = self.make_projection(width, "query")
        self.query.build(x_shape)
        self.key_value = self.make_projection(2 * width, "key_value")
        self.key_value.build(x_shape if source_shape is None else source_shape)
        self.build_output(x_shape[-1])

    def keys_and_values(self, source):
        """Return keys and values of a source (B, T, its width), each (B, N, T, H)."""
        return self.split_heads(self.key_value(source), 2)

    def scores(self, x, source=None, bias=None, past=None, **more):
        (query,) = self.split_heads(self.query(x), 1)
        key, _ = self.keys_and_values(source) if past is None else past
        return self.biased_scores(query, key, bias, **more)

    def probabilities(self, x, source=None, bias=None, past=None, **more):
        return softmax(self.scores(x, source, bias, past, **more))

    def call(self, x, source=None, bias=None, past=None, head_mask=None, training=None):
        (query,) = self.split_heads(self.query(x), 1)
        key, value = self.keys_and_values(source) if past is None else past
        return self.attend(query, key, value, bias=bias, head_mask=head_mask, training=training)

    def compute_output_shape(self, x_shape, *args, **kwargs):
        return x_shape
