"""Attention to what an encoder has read, the source: blocks with it, and their cache.

Shapes: B batch, S sequence, T the source's length, L blocks, D hidden, N heads, H per head.
"""

from typing import Any

import keras

from keras_lm.layers.attention import (
    Attention,
    AttentionContext,
    KeyValueCache,
    PostNormBlock,
    PreNormBlock,
)
from keras_lm.layers.state import FIXED
from keras_lm.utils.argument_types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_lm")
class CrossAttention(Attention):
    """Cross-attention of a decoder to its source, the encoder's output.

    The query has its own kernel, (D, N·H); key and value come from one product of the source with a
    kernel of shape (width of the source, 2·N·H), key first. Arguments are those of `Attention`.

    Call: `layer(x, source)`, with `source` (B, T, its width), or with a context that has it, see
    `ContextLayer`. `bias` is added to the scores of the source. To decode in a loop, compute `past
    = layer.keys_and_values(source)` once, and pass it instead of the source.

    Example:

        attention = CrossAttention(num_heads=4)
        source = np.zeros((2, 9, 64), "float32")
        attention(np.zeros((2, 7, 64), "float32"), source).shape  # (2, 7, 64)

    Source: https://arxiv.org/abs/1706.03762, section 3.2.3.
    """

    first_field = "source"

    def build(self, x_shape: Shape, context_shape: Any = None, source_shape: Any = None) -> None:
        if isinstance(context_shape, AttentionContext):
            context_shape = context_shape.source
        source_shape = source_shape or context_shape or x_shape
        width = self.set_widths(x_shape[-1])
        self.query = self.make_projection(width, "query")
        self.query.build(x_shape)
        self.key_value = self.make_projection(2 * width, "key_value")
        self.key_value.build(source_shape)
        self.build_output(x_shape[-1])

    def keys_and_values(self, source: Tensor) -> list[Tensor]:
        """Return keys and values of a source (B, T, its width), each (B, N, T, H)."""
        return self.split_heads(self.key_value(source), 2)

    def project(self, x: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor, Tensor]:
        (query,) = self.split_heads(self.query(x), 1)
        past = context.past
        key, value = self.keys_and_values(context.source) if past is None else past
        return query, key, value

    # `source` is an argument of its own, because Keras passes its shape to `build`.
    def call(
        self,
        x: Tensor,
        context: Any = None,
        source: Any = None,
        training: bool | None = None,
        **fields: Any,
    ) -> Any:
        fields = fields if source is None else fields | {"source": source}
        return super().call(x, context, training, **fields)

    def compute_output_spec(
        self,
        x: Tensor,
        context: Any = None,
        source: Any = None,
        training: bool | None = None,
        **fields: Any,
    ) -> Any:
        fields = fields if source is None else fields | {"source": source}
        return super().compute_output_spec(x, context, training, **fields)

    def attended_length(self, x: Tensor, context: Any) -> int | None:
        return context.source.shape[1] if context.past is None else context.past[0].shape[2]


class DecoderBlock:
    """A mixin for `PostNormBlock` and `PreNormBlock` that adds attention to a source.

    It comes between self-attention and the feed-forward network.

    Call: `block(x, context)` with a `source` in the context; it keeps a pair: the keys and values
    of the tokens, and those of the source, (B, N, T, H) each.

    Source: https://arxiv.org/abs/1706.03762, section 3.1.
    """

    first_field = "source"
    cross_attention_class = CrossAttention

    def make_cross_attention(self) -> CrossAttention:
        return self.cross_attention_class(
            self.num_heads,
            self.attention_dropout,
            self.output_stddev,
            self.head_dim,
            name="cross_attention",
            dtype=self.dtype_policy,
        )

    def build(self, input_shape: Shape) -> None:
        super().build(input_shape)
        self.cross_attention: CrossAttention = self.make_cross_attention()
        self.cross_attention_norm: keras.layers.Layer = self.make_norm("cross_attention_norm")
        self.cross_attention.build(input_shape)
        self.cross_attention_norm.build(input_shape)

    def forward(
        self, x: Tensor, context: AttentionContext, training: bool | None = None
    ) -> tuple[Tensor, Any]:
        x, kept = self.add_attention(x, context, training)
        attended, source = self.cross_attention(
            *self.cross_attention_inputs(x, context), training=training
        )
        x = self.residual(x, self.cross_attention_norm, attended, training)
        return self.add_feedforward(x, training), (kept, source)

    def cross_attention_inputs(self, x: Tensor, context: Any) -> tuple[Any, Any]:
        """Return the inputs of attention to the source."""
        field = "past" if isinstance(context.source, (list, tuple)) else "source"
        source = {field: context.source, "bias": context.source_bias}
        return self.read(x, self.cross_attention_norm), AttentionContext(**source)

    def cross_attention_probabilities(
        self, x: Tensor, context: Any = None, **fields: Any
    ) -> Tensor:
        """Return the probabilities of attention to the source, (B, N, S, T) float32."""
        context = self.as_context(context, fields)
        x, _ = self.add_attention(x, context)
        return self.cross_attention.probabilities(*self.cross_attention_inputs(x, context))

    def kept_spec(self, x: Tensor, context: Any) -> Any:
        _, source = self.cross_attention_inputs(x, context)
        return super().kept_spec(x, context), self.cross_attention.kept_spec(x, source)


@keras.saving.register_keras_serializable("keras_lm")
class DecoderPostNormBlock(DecoderBlock, PostNormBlock):
    """A decoder's `PostNormBlock`, as in the Transformer; see `DecoderBlock`."""


@keras.saving.register_keras_serializable("keras_lm")
class DecoderPreNormBlock(DecoderBlock, PreNormBlock):
    """A decoder's `PreNormBlock`, as in T5; see `DecoderBlock`."""


class DecoderCache(KeyValueCache):
    """A `KeyValueCache` that also has the keys and values of a source (B, T), which do not change.

    A state has them under `FIXED`: {"keys": tuple of L (B, N, T, H), "values": the same,
    "padding_mask": (B, T) int32}. Without a state, the blocks read `encoded` (B, T, D), the
    encoder's output, with its `source_mask`.
    """

    def __init__(self, padding_mask, state, num_layers, encoded=None, source_mask=None):
        super().__init__(padding_mask, state, num_layers)
        self.source_keys, self.source_values = [], []
        self.sources, self.source_mask = [encoded] * num_layers, source_mask
        if state is not None:
            fixed = state[FIXED]
            self.sources = list(zip(fixed["keys"], fixed["values"], strict=True))
            self.source_mask = fixed["padding_mask"]

    def contexts(self, biases, source_bias):
        return [
            context._replace(source=source, source_bias=source_bias)
            for context, source in zip(super().contexts(biases), self.sources, strict=True)
        ]

    def keep(self, kept):
        own, (source_keys, source_values) = kept
        super().keep(own)
        self.source_keys.append(source_keys)
        self.source_values.append(source_values)

    def state(self):
        fixed = {
            "keys": tuple(self.source_keys),
            "values": tuple(self.source_values),
            "padding_mask": self.source_mask,
        }
        return super().state() | {FIXED: fixed}
