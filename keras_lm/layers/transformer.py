"""Transformer blocks."""

from collections.abc import Callable, Mapping
from typing import Any

import keras

from keras_lm.layers.attention import ContextLayer, SelfAttention
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import Dense, LayerNormalization, get_activation, truncated_normal
from keras_lm.utils.argument_types import DType, Tensor


@keras.saving.register_keras_serializable("keras_lm")
class FeedForward(keras.layers.Layer):
    """The feed-forward network of a block: Dense, activation, Dense back to the input's width.

    Args:
        intermediate_dim: int. Width between the two Dense layers.
        activation: str. See `keras_lm.layers.get_activation`.
        output_stddev: float. Standard deviation of the second kernel's initial values.

    Source: https://arxiv.org/abs/1706.03762, section 3.3.
    """

    def __init__(
        self,
        intermediate_dim: int,
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        output_stddev: float = 0.02,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.intermediate_dim = intermediate_dim
        self.activation = activation
        self.output_stddev = output_stddev

    def build(self, input_shape):
        self.intermediate = Dense(
            self.intermediate_dim,
            activation=get_activation(self.activation),
            kernel_initializer=truncated_normal(),
            dtype=self.dtype_policy,
            name="intermediate",
        )
        self.intermediate.build(input_shape)
        self.output_dense = Dense(
            input_shape[-1],
            kernel_initializer=truncated_normal(self.output_stddev),
            dtype=self.dtype_policy,
            name="output",
        )
        self.output_dense.build((*input_shape[:-1], self.intermediate_dim))

    def call(self, x):
        return self.output_dense(self.intermediate(x))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return super().get_config() | {
            "intermediate_dim": self.intermediate_dim,
            "activation": self.activation,
            "output_stddev": self.output_stddev,
        }


def block_options(config: Mapping[str, Any], dtype: DType) -> dict[str, Any]:
    """Return the arguments of the blocks of a backbone like BERT.

    Args:
        config: the arguments of the backbone, by name.
        dtype: of the blocks.
    """
    dropout, attention_dropout = config["dropout"], config["attention_dropout"]
    names = ("num_heads", "intermediate_dim", "activation", "layer_norm_epsilon")
    return {name: config[name] for name in names} | {
        "dropout": dropout,
        "attention_dropout": dropout if attention_dropout is None else attention_dropout,
        "dtype": dtype,
    }


@keras.saving.register_keras_serializable("keras_lm")
class PostNormBlock(ContextLayer):
    """A Transformer block with layer normalisation after each residual sum, as in BERT.

    A variant overrides `make_attention`, `make_feedforward` or `make_norm`. A block with more parts
    adds them in `build` and `forward`, with `read` and `residual`.

    Args:
        num_heads: int. Attention heads; must divide the width D of the input if `head_dim` is None.
        intermediate_dim: int. Width inside the feed-forward network.
        dropout: float. Fraction of the outputs of attention and feed-forward network to drop.
        attention_dropout: float. Fraction of the attention probabilities to drop.
        activation: str. See `keras_lm.layers.get_activation`.
        layer_norm_epsilon: float.
        output_stddev: float. Standard deviation of the initial values of the two kernels before the
            residual sums.
        head_dim: int, or None for D / N. Width H of an attention head.

    Call: see `keras_lm.layers.SelfAttention`. `block.attention_scores` and
    `block.attention_probabilities` have the same call, and return (B, N, S, T) float32, before and
    after the softmax.

    Example:

        block = PostNormBlock(num_heads=4, intermediate_dim=256)
        block(np.zeros((2, 7, 64), "float32")).shape  # (2, 7, 64)

    Source: https://arxiv.org/abs/1706.03762, section 3.1.
    """

    attention_class = SelfAttention

    def __init__(
        self,
        num_heads: int,
        intermediate_dim: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        layer_norm_epsilon: float = 1e-12,
        output_stddev: float = 0.02,
        head_dim: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.intermediate_dim = intermediate_dim
        self.dropout_rate = dropout
        self.attention_dropout = attention_dropout
        self.activation = activation
        self.layer_norm_epsilon = layer_norm_epsilon
        self.output_stddev = output_stddev

    def make_attention(self):
        return self.attention_class(
            self.num_heads,
            self.attention_dropout,
            self.output_stddev,
            self.head_dim,
            name="attention",
            dtype=self.dtype_policy,
        )

    def make_feedforward(self):
        return FeedForward(
            self.intermediate_dim,
            self.activation,
            self.output_stddev,
            name="feedforward",
            dtype=self.dtype_policy,
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
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy)
        for layer in (
            self.attention,
            self.attention_norm,
            self.feedforward,
            self.feedforward_norm,
        ):
            if not layer.built:  # a layer that is shared with another block is built already
                layer.build(input_shape)

    def read(self, x: Tensor, norm: keras.Layer) -> Any:
        """Return the input of a part of the block, given the residual `x` and the part's norm."""
        return x

    def residual(
        self, x: Tensor, norm: keras.Layer, added: Tensor, training: bool | None = None
    ) -> Tensor:
        """Return the residual `x` after adding a part's output, all (B, S, D)."""
        return norm(x + self.dropout(added, training=training))

    def forward(self, x, context, training=None):
        x, kept = self.add_attention(x, context, training)
        return self.add_feedforward(x, training), kept

    def add_attention(self, x: Tensor, context: Any, training: bool | None = None) -> Any:
        """Return the residual after self-attention, and what the attention keeps."""
        attended, kept = self.attention(*self.attention_inputs(x, context), training=training)
        return self.residual(x, self.attention_norm, attended, training), kept

    def add_feedforward(self, x, training=None):
        added = self.feedforward(self.read(x, self.feedforward_norm))
        return self.residual(x, self.feedforward_norm, added, training)

    def attention_inputs(self, x: Tensor, context: Any) -> tuple[Any, Any]:
        """Return the inputs of self-attention, given the residual `x` and the memory."""
        if context.memory is not None:
            memory = self.read(context.memory, self.attention_norm)
            context = context._replace(memory=memory)
        return self.read(x, self.attention_norm), context

    def attention_scores(self, x, context=None, **fields):
        inputs = self.attention_inputs(x, self.as_context(context, fields))
        return self.attention.scores(*inputs)

    def attention_probabilities(self, x, context=None, **fields):
        inputs = self.attention_inputs(x, self.as_context(context, fields))
        return self.attention.probabilities(*inputs)

    def kept_spec(self, x, context):
        return self.attention.kept_spec(x, context)

    def get_config(self):
        return super().get_config() | {
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout_rate,
            "attention_dropout": self.attention_dropout,
            "activation": self.activation,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "output_stddev": self.output_stddev,
            "head_dim": self.head_dim,
        }


@keras.saving.register_keras_serializable("keras_lm")
class PreNormBlock(PostNormBlock):
    """A Transformer block with layer normalisation before each part, as in GPT-2.

    Arguments and calls are those of `PostNormBlock`. The residual is not normalised, so a model
    adds a norm after the last block.

    Example:

        block = PreNormBlock(num_heads=4, intermediate_dim=256, layer_norm_epsilon=1e-5)
        block(np.zeros((2, 7, 64), "float32")).shape  # (2, 7, 64)

    Source: GPT-2, "Language Models are Unsupervised Multitask Learners", section 2.3.
    """

    def read(self, x, norm):
        return norm(x)

    def residual(self, x, norm, added, training=None):
        return x + self.dropout(added, training=training)
