"""Names of earlier releases, which the next release will remove."""

import warnings
from typing import Any

import keras

from keras_lm.layers.attention import AttentionContext, PostNormBlock, PreNormBlock, SelfAttention
from keras_lm.layers.basic import (
    PositionEmbedding,
    make_norm,
    make_segment_embedding,
    make_token_embedding,
)
from keras_lm.utils.argument_types import DType


class _Causal:
    """A mixin: `layer(x, bias=None, past=None, write=None, head_mask=None)`.

    `write(old, new)` returns the keys or values of the past with the new ones written into them.
    Returns the output, the keys and the values.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        name = type(self).__name__
        warnings.warn(
            f"{name} is deprecated: use {name.removeprefix('Causal')}, which returns what it keeps "
            "next to its output if it is called with a keras_lm.layers.AttentionContext.",
            DeprecationWarning,
            stacklevel=2,
        )
        super().__init__(*args, **kwargs)

    def call(self, x, bias=None, past=None, write=None, head_mask=None, training=None):
        context = AttentionContext(bias=bias, past=past, write_at=write, head_mask=head_mask)
        x, kept = self.forward(x, context, training)
        return x, *kept

    def compute_output_spec(self, x, bias=None, past=None, write=None, **options):
        output = keras.KerasTensor(x.shape, self.compute_dtype)
        return output, *self.kept_spec(x, AttentionContext(past=past))


@keras.saving.register_keras_serializable("keras_lm")
class CausalSelfAttention(_Causal, SelfAttention):
    """Deprecated: `SelfAttention` with the call of `_Causal`."""

    def write(self, old: Any, new: Any, write_at: Any) -> Any:
        return write_at(old, new)


class _CausalAttention(SelfAttention):
    """The attention of `_CausalBlock`."""

    write = CausalSelfAttention.write


class _CausalBlock(_Causal):
    """`_Causal` for blocks."""

    attention_class = _CausalAttention

    def add_attention(self, x, context, training=None):
        # Not called as a layer, since Keras refuses a context with functions in it.
        attended, kept = self.attention.forward(*self.attention_inputs(x, context), training)
        return self.residual(x, self.attention_norm, attended, training), kept


@keras.saving.register_keras_serializable("keras_lm")
class CausalPostNormBlock(_CausalBlock, PostNormBlock):
    """Deprecated: `PostNormBlock` with the call of `_Causal`."""


@keras.saving.register_keras_serializable("keras_lm")
class CausalPreNormBlock(_CausalBlock, PreNormBlock):
    """Deprecated: `PreNormBlock` with the call of `_Causal`."""


def embedding_layers(
    vocabulary_size: int,
    embedding_dim: int,
    max_sequence_length: int,
    num_segments: int,
    layer_norm_epsilon: float,
    dtype: DType,
) -> tuple[Any, Any, Any, Any]:
    """Deprecated: the embeddings of BERT's tokens, positions and segments, and their norm.

    Args:
        vocabulary_size, embedding_dim, max_sequence_length, num_segments, layer_norm_epsilon:
            arguments of the backbone.
        dtype: of all of them.

    Source: BERT, https://arxiv.org/abs/1810.04805, figure 2.
    """
    warnings.warn(
        "embedding_layers is deprecated: make the four layers by themselves.",
        DeprecationWarning,
        stacklevel=2,
    )
    return (
        make_token_embedding(vocabulary_size, embedding_dim, dtype),
        PositionEmbedding(
            max_sequence_length, embedding_dim, dtype=dtype, name="position_embedding"
        ),
        make_segment_embedding(num_segments, embedding_dim, dtype),
        make_norm("embedding_norm", layer_norm_epsilon, dtype),
    )
