"""The layers of T5. Shapes: B batch, S sequence, T what is attended to, D hidden, N heads."""

import math

import keras
import numpy as np
from keras import ops

from keras_lm.layers import (
    CausalLMHead,
    CrossAttention,
    DecoderPreNormBlock,
    Dense,
    PreNormBlock,
    SelfAttention,
    float32_or_wider,
    get_activation,
)


def normal(stddev):
    """Return a new initialiser of normal numbers."""
    return keras.initializers.RandomNormal(stddev=stddev)


@keras.saving.register_keras_serializable("keras_lm")
class RMSNorm(keras.layers.Layer):
    """Division by the root of the mean square over the last axis, and a scale.

    Args:
        epsilon: float, added to the mean square.

    Source: Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467, equation 4.
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape):
        self.gamma = self.add_weight(name="gamma", shape=input_shape[-1:], initializer="ones")

    def call(self, x):
        x = ops.cast(x, float32_or_wider(self.dtype_policy))
        x = x * ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + self.epsilon)
        return ops.cast(x * ops.cast(self.gamma, x.dtype), self.compute_dtype)

    def get_config(self):
        return super().get_config() | {"epsilon": self.epsilon}


@keras.saving.register_keras_serializable("keras_lm")
class RelativePositionBias(keras.layers.Layer):
    """A learned bias of attention's scores by how far the two tokens are apart.

    Short distances have a bucket each, longer ones share buckets whose width grows with the
    logarithm of the distance; all beyond `max_distance` are one.

    Args:
        num_buckets, num_heads, max_distance: int.
        bidirectional: bool. Whether tokens ahead have buckets of their own, half of all.
        stddev: float, of the initial values.

    Call: `layer(padding_mask, slots=None)` as `keras_lm.layers.CausalBias`, for (B, T) int32, and
    `slots` (B, S), by default one query at each of the T; returns (B or 1, N, S, T) float32.

    Source: T5, https://arxiv.org/abs/1910.10683, section 2.1, and mesh_tensorflow's
    `transformer_layers.py`.
    """

    def __init__(
        self, num_buckets, num_heads, max_distance=128, bidirectional=True, stddev=1.0, **kwargs
    ):
        super().__init__(**kwargs)
        self.num_buckets = num_buckets
        self.num_heads = num_heads
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.stddev = stddev

    def build(self, input_shape):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.num_buckets, self.num_heads),
            initializer=normal(self.stddev),
        )
        # The bucket of each distance from 0 to the largest, in the arithmetic of the reference.
        number = self.num_buckets // 2 if self.bidirectional else self.num_buckets
        exact = number // 2
        distance = np.arange(self.max_distance + 1, dtype="float32")
        log = np.log(np.maximum(distance, 1) / np.float32(exact))
        shared = log / np.float32(math.log(self.max_distance / exact)) * np.float32(number - exact)
        shared = np.minimum(exact + shared.astype("int32"), number - 1)
        self.buckets = np.where(distance < exact, distance, shared).astype("int32")

    def call(self, padding_mask, slots=None):
        columns = ops.arange(ops.shape(padding_mask)[1], dtype="int32")
        queries = ops.expand_dims(columns, 0) if slots is None else slots
        ahead = columns - ops.expand_dims(queries, 2)  # (B, S, T)
        distance = ops.abs(ahead) if self.bidirectional else ops.maximum(-ahead, 0)
        bucket = ops.take(self.buckets, ops.minimum(distance, self.max_distance), axis=0)
        if self.bidirectional:
            bucket = bucket + self.num_buckets // 2 * ops.cast(ops.greater(ahead, 0), "int32")
        bias = ops.take(ops.cast(self.embeddings, "float32"), bucket, axis=0)  # (B, S, T, N)
        return ops.transpose(bias, (0, 3, 1, 2))

    def compute_output_spec(self, padding_mask, slots=None):
        rows, length = (1, padding_mask.shape[1]) if slots is None else slots.shape
        return keras.KerasTensor((rows, self.num_heads, length, padding_mask.shape[1]), "float32")

    def get_config(self):
        return super().get_config() | {
            "num_buckets": self.num_buckets,
            "num_heads": self.num_heads,
            "max_distance": self.max_distance,
            "bidirectional": self.bidirectional,
            "stddev": self.stddev,
        }


class T5Attention:
    """A mixin before attention: no biases, no scale, and initial values that make up for it."""

    def make_scale(self):
        return 1.0

    def make_projection(self, units, name):
        width = self.num_heads * self.head_dim

        def initializer(shape, dtype=None):
            rows = shape[0]
            stddev = np.full(shape[1], rows**-0.5, "float32")
            if name.startswith("query"):
                stddev[:width] = (rows * self.head_dim) ** -0.5
            return ops.cast(keras.random.normal(shape) * stddev, dtype)

        return Dense(
            units,
            use_bias=False,
            kernel_initializer=initializer,
            dtype=self.dtype_policy,
            name=name,
        )

    def make_output(self, units):
        return Dense(
            units,
            use_bias=False,
            kernel_initializer=normal((self.num_heads * self.head_dim) ** -0.5),
            dtype=self.dtype_policy,
            name="output",
        )


class T5SelfAttention(T5Attention, SelfAttention):
    """Self-attention of T5."""


class T5CrossAttention(T5Attention, CrossAttention):
    """Attention of T5's decoder to its source."""


class T5FeedForward(keras.layers.Layer):
    """T5's feed-forward network, in T5 1.1 with a gate, with dropout inside and without biases.

    Args:
        intermediate_dim, activation: see `keras_lm.layers.FeedForward`.
        gated: bool. Multiply the activated half by a linear one.
        dropout: float. Fraction dropped between the two matrices.

    Source: Shazeer 2020, https://arxiv.org/abs/2002.05202, equation 6.
    """

    def __init__(self, intermediate_dim, activation, gated, dropout, **kwargs):
        super().__init__(**kwargs)
        self.intermediate_dim = intermediate_dim
        self.activation = activation
        self.gated = gated
        self.dropout_rate = dropout

    def build(self, input_shape):
        width = input_shape[-1]

        def dense(units, fan_in, name, activation=None):
            return Dense(
                units,
                use_bias=False,
                activation=activation,
                kernel_initializer=normal(fan_in**-0.5),
                dtype=self.dtype_policy,
                name=name,
            )

        activation = get_activation(self.activation)
        self.intermediate = dense(self.intermediate_dim, width, "intermediate", activation)
        self.intermediate.build(input_shape)
        self.gate = None
        if self.gated:
            self.gate = dense(self.intermediate_dim, width, "gate")
            self.gate.build(input_shape)
        self.dropout = keras.layers.Dropout(self.dropout_rate, dtype=self.dtype_policy)
        self.output_dense = dense(width, self.intermediate_dim, "output")
        self.output_dense.build((*input_shape[:-1], self.intermediate_dim))

    def call(self, x, training=None):
        inner = self.intermediate(x)
        if self.gate is not None:
            inner = inner * self.gate(x)
        return self.output_dense(self.dropout(inner, training=training))

    def compute_output_shape(self, input_shape):
        return input_shape


class T5Block:
    """A mixin before `PreNormBlock`: T5's norms, attention and feed-forward network."""

    attention_class = T5SelfAttention

    def __init__(self, gated=False, **arguments):
        super().__init__(**arguments)
        self.gated = gated

    def make_norm(self, name):
        return RMSNorm(self.layer_norm_epsilon, name=name, dtype=self.dtype_policy)

    def make_feedforward(self):
        return T5FeedForward(
            self.intermediate_dim,
            self.activation,
            self.gated,
            self.dropout_rate,
            name="feedforward",
            dtype=self.dtype_policy,
        )

    def add_feedforward(self, x, training=None):
        added = self.feedforward(self.read(x, self.feedforward_norm), training=training)
        return self.residual(x, self.feedforward_norm, added, training)

    def get_config(self):
        return super().get_config() | {"gated": self.gated}


class T5EncoderBlock(T5Block, PreNormBlock):
    """A block of T5's encoder."""


class T5DecoderBlock(T5Block, DecoderPreNormBlock):
    """A block of T5's decoder."""

    cross_attention_class = T5CrossAttention


class T5LMHead(CausalLMHead):
    """`CausalLMHead`, with states scaled where the matrix is the token embedding."""

    def make_initializer(self):
        return normal(1.0)

    def call(self, outputs, inputs=None, training=None):
        x = outputs["sequence_output"]
        if self.tied:
            outputs = {"sequence_output": x * x.shape[-1] ** -0.5}
        return super().call(outputs)
