"""The layers of Transformer-XL: attention by distance, to a memory and a segment.

Shapes: B batch, S sequence, M memory, T = M + S, D hidden, N heads, H per head.
"""

import keras
import numpy as np
from keras import ops

from keras_lm.layers import (
    FeedForward,
    PostNormBlock,
    PreNormBlock,
    SelfAttention,
    truncated_normal,
)
from keras_lm.layers.backend import Dropout


def frequencies(hidden_dim):
    """Return by how much the angles of sines and cosines grow from one distance to the next."""
    return 10000.0 ** -(np.arange(0, hidden_dim, 2, dtype="float32") / hidden_dim)


class SegmentPositions(keras.layers.Layer):
    """Where the columns of a memory and a segment are: a dict of what attention needs of it.

    Columns of padding before a segment count as if they came before the memory, which the tokens
    then follow: `order` (B, T) has the number of each column in that order, `padding_mask` (B, T)
    is its mask, and `slots` (B, S) are the places of the segment's tokens in it. `distances` (1, T,
    D) are the sines and cosines of how far each column is from the last, the farthest first. `kept`
    (B, M) are the columns of the memory after the segment: the last that are not padding.

    Args:
        hidden_dim: int, D.
        clamp_length: int. Longer distances count as this one; None for no limit.

    Call: `layer(padding_mask, memory_mask)`, (B, S) and (B, M) int32.

    Source: Transformer-XL, https://arxiv.org/abs/1901.02860, section 3.3 and appendix B.
    """

    def __init__(self, hidden_dim, clamp_length=None, **kwargs):
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.clamp_length = clamp_length
        self.frequencies = frequencies(hidden_dim)

    def call(self, padding_mask, memory_mask):
        before, new = ops.shape(memory_mask)[1], ops.shape(padding_mask)[1]
        order, last = column_order(padding_mask, before)
        columns = ops.arange(before + new, dtype="int32")
        mask = ops.concatenate([memory_mask, padding_mask], axis=1)
        distances = self.vectors(ops.flip(columns))
        return {
            "order": order,
            "padding_mask": ops.take_along_axis(mask, order, axis=1),
            "slots": ops.zeros_like(padding_mask) + columns[before:],
            "distances": ops.expand_dims(distances, 0),
            "kept": ops.take_along_axis(order, last, axis=1),
        }

    def vectors(self, distance):
        """Return the vectors (P, D) of distances (P,) int32, sines first."""
        distance = ops.cast(distance, "float32")
        if self.clamp_length is not None:
            distance = ops.clip(distance, -float(self.clamp_length), float(self.clamp_length))
        angles = ops.expand_dims(distance, 1) * self.frequencies
        return ops.cast(ops.concatenate([ops.sin(angles), ops.cos(angles)], 1), self.compute_dtype)

    def compute_output_spec(self, padding_mask, memory_mask):
        (batch, new), before = padding_mask.shape, memory_mask.shape[1]
        total = None if None in (new, before) else new + before
        sizes = {"order": total, "padding_mask": total, "slots": new, "kept": before}
        spec = {name: keras.KerasTensor((batch, n), "int32") for name, n in sizes.items()}
        distances = keras.KerasTensor((1, total, self.hidden_dim), self.compute_dtype)
        return spec | {"distances": distances}


def column_order(padding_mask, before, reuse_length=None):
    """Return in which order attention takes the columns of a memory of `before`, and of a segment.

    That is the number of each column, (B, T) int32, where padding before the segment goes before
    the memory; and in this order, the places (B, M) of the last columns that are not padding, of
    those until the segment's first `reuse_length` tokens.
    """
    new = ops.shape(padding_mask)[1]
    columns = ops.arange(before + new, dtype="int32")
    # How many columns of padding are before the first token, and how many until the last.
    first = ops.cast(ops.equal(ops.cumsum(padding_mask, axis=1), 0), "int32")
    first = ops.sum(first, axis=1, keepdims=True)  # (B, 1)
    last = ops.max(padding_mask * ops.arange(1, new + 1, dtype="int32"), axis=1, keepdims=True)
    if reuse_length is not None:
        last = ops.minimum(last, first + reuse_length)
    order = ops.where(columns < first + before, columns - first, columns)
    order = ops.where(columns < first, columns + before, order)  # (B, T)
    return order, ops.maximum(first, last) + ops.arange(before, dtype="int32")


class RelativeBiases(keras.layers.Layer):
    """What is added to each head's queries (N, H): for scores by content, and by distance."""

    def __init__(self, num_heads, head_dim, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.head_dim = head_dim

    def build(self, input_shape=None):
        self.content, self.position = (
            self.add_weight(
                name=name, shape=(self.num_heads, self.head_dim), initializer=truncated_normal()
            )
            for name in ("content", "position")
        )


class RelativeAttention(SelfAttention):
    """Attention to a memory and a segment, whose scores depend on content and on distance.

    Its context has a `memory`, and as `positions` what `SegmentPositions` returns. In a step of
    decoding it has a `past` instead, and as `positions` the `distances` (1, N, T, H) from the
    farthest to the token itself, and `columns` (T,) int32, which of them is that of each slot. Set
    `biases` to those of another layer to share them, before this one is built.

    Source: Transformer-XL, https://arxiv.org/abs/1901.02860, section 3.3.
    """

    has_biases = has_output_bias = False
    biases = None

    def build(self, input_shape):
        super().build(input_shape)
        self.position = self.make_projection(self.num_heads * self.head_dim, "position")
        self.position.build((1, *input_shape[1:]))
        if self.biases is None:
            self.biases = RelativeBiases(
                self.num_heads, self.head_dim, dtype=self.dtype_policy, name="biases"
            )
            self.biases.build()

    def project(self, x, context):
        query, key, value = super().project(x, context)
        distances = context.positions["distances"]
        if context.past is None:
            key = key, self.project_distances(distances)
        else:
            key = key, distances, context.positions["columns"]
        return self.queries(query, context), key, value

    def after_memory(self, x, context):
        return in_order(context.memory, x, context.positions["order"])

    def project_distances(self, distances):
        """Return (1, T, D) as (1, N, T, H)."""
        (distances,) = self.split_heads(self.position(distances), 1)
        return distances

    def queries(self, query, context):
        """Return what `raw_scores` takes of queries (B, N, S, H): for content, and for distance.

        With them is how many rows come after each, (1, 1, S, 1) int32: which ones a block has.
        """
        content, position = (
            query + ops.expand_dims(ops.cast(bias, query.dtype), 1)
            for bias in (self.biases.content, self.biases.position)
        )
        after = ops.flip(ops.arange(ops.shape(query)[2], dtype="int32"))
        return content, position, ops.reshape(after, (1, 1, -1, 1))

    def products(self, query, key):
        """Return the scaled products (B, N, S, any) of queries and keys."""
        return super().raw_scores(query, key)

    def raw_scores(self, query, key):
        (content, position, after), (key, distances, *order) = query, key
        if order:
            scores = ops.take(self.products(position, distances), order[0], axis=3)
            return self.products(content, key) + scores
        rows, columns = ops.shape(content)[2], ops.shape(key)[2]
        # The distances from the last of these queries, after one more column that becomes the zero
        # of the shift; what is after a query is never read.
        places = ops.arange(-1, columns, dtype="int32") + (after[0, 0, 0, 0] - rows + 1)
        distances = ops.take(distances, ops.clip(places, 0, columns - 1), axis=2)
        scores = self.products(position, distances)  # (B, N, S, 1 + T)
        # Each row goes one more to the left than the next: rows run on.
        batch, heads = ops.shape(scores)[:2]
        scores = ops.reshape(scores, (batch, heads, columns + 1, rows))
        # (The gradient of `ops.slice` is much quicker on TensorFlow than that of indexing.)
        scores = ops.slice(scores, (0, 0, 1, 0), (batch, heads, columns, rows))
        scores = ops.reshape(scores, (batch, heads, rows, columns))
        return self.products(content, key) + scores


def in_order(memory, x, order):
    """Return columns (B, any, D) of a memory and what follows it, by their numbers (B, any)."""
    both = ops.concatenate([memory, x], axis=1)  # (B, T, D)
    if isinstance(both, keras.KerasTensor):  # without sizes
        return ops.take_along_axis(both, ops.expand_dims(order, 2), axis=1)
    rows, columns = ops.shape(both)[:2]
    # Of all rows at once: `take_along_axis` makes an index for each of the D numbers.
    first = ops.expand_dims(ops.arange(rows, dtype="int32") * columns, 1)
    return ops.take(ops.reshape(both, (-1, both.shape[2])), order + first, axis=0)


class DroppedFeedForward(FeedForward):
    """`FeedForward` with dropout inside, too."""

    def __init__(self, *args, dropout=0.0, **kwargs):
        super().__init__(*args, **kwargs)
        self.dropout = Dropout(dropout, dtype=self.dtype_policy)

    def call(self, x, training=None):
        return self.output_dense(self.dropout(self.intermediate(x), training=training))


class RelativeBlock:
    """A mixin before `PostNormBlock` or `PreNormBlock`: what Transformer-XL's blocks have."""

    attention_class = RelativeAttention
    biases = None

    def make_attention(self):
        attention = super().make_attention()
        attention.biases = self.biases
        return attention

    def make_feedforward(self):
        return DroppedFeedForward(
            self.intermediate_dim,
            self.activation,
            self.output_stddev,
            dropout=self.dropout_rate,
            name="feedforward",
            dtype=self.dtype_policy,
        )


class RelativePostNormBlock(RelativeBlock, PostNormBlock):
    """A block of Transformer-XL."""


class RelativePreNormBlock(RelativeBlock, PreNormBlock):
    """A block of Transformer-XL with `pre_norm`."""
