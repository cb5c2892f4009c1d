"""The layers of T5. Shapes: B batch, S sequence, T what is attended to, D hidden, N heads."""

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
from keras_lm.layers.backend import Dropout


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
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy)
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
    """`CausalLMHead` over states that are scaled by D^-0.5.

    Args:
        scaled: bool, or None for `tied`. Whether they are.
        **arguments: see `CausalLMHead`.
    """

    def __init__(self, scaled=None, **arguments):
        super().__init__(**arguments)
        self.scaled = self.tied if scaled is None else scaled

    def make_initializer(self):
        return normal(1.0)

    def call(self, outputs, inputs=None, training=None):
        x = outputs["sequence_output"]
        if self.scaled:
            outputs = {"sequence_output": x * x.shape[-1] ** -0.5}
        return super().call(outputs)
