"""Reformer's layers: positions in a grid, a block whose inputs follow from its outputs, and heads.

Shapes: B batch, S sequence, D hidden, V vocabulary.
"""

import math

import keras
from keras import ops

from keras_lm.layers import (
    Dense,
    LayerNormalization,
    PooledClassifier,
    float32_or_wider,
    get_activation,
    truncated_normal,
)
from keras_lm.layers.backend import reversible
from keras_lm.layers.basic import at_masks, last_real_token, make_dense
from keras_lm.models.reformer_attention import ascending, dropped, inverse, rows_at


class AxialPositionEmbedding(keras.layers.Layer):
    """Learned positions in a grid: each is the vector of its row beside that of its column.

    Args:
        grid: list of int, the sizes of the grid, whose product is the number of positions.
        dims: list of int, how wide the vectors of each axis are; D in all.

    Call: `layer(padding_mask, start=None)` with (B, S) returns (1, S, D), the vectors of the first
    S positions; or (B, S, D) with `start` (B,) int32, the number of earlier tokens.

    Raises:
        ValueError: if there is not a width for each axis.

    Source: Reformer, https://arxiv.org/abs/2001.04451, appendix A; Ho et al. 2019,
    https://arxiv.org/abs/1912.12180.
    """

    def __init__(self, grid, dims, **kwargs):
        super().__init__(**kwargs)
        self.grid = list(grid)
        self.dims = list(dims)

    def build(self, input_shape):
        self.axes = [
            self.add_weight(name=f"axis_{i}", shape=size, initializer=truncated_normal())
            for i, size in enumerate(zip(self.grid, self.dims, strict=True))
        ]

    def call(self, padding_mask, start=None):
        places = ops.arange(ops.shape(padding_mask)[1], dtype="int32")[None]  # (1, S)
        places = places if start is None else places + start[:, None]
        parts = []
        for size, table in reversed([*zip(self.grid, self.axes, strict=True)]):
            row = ops.mod(places, size)
            parts.insert(0, ops.take(ops.cast(table, self.compute_dtype), row, axis=0))
            places = ops.floor_divide(places, size)
        return ops.concatenate(parts, axis=-1)

    def compute_output_spec(self, padding_mask, start=None):
        return keras.KerasTensor((1, padding_mask.shape[1], sum(self.dims)), self.compute_dtype)


def check_axes(grid, dims, positions, hidden_dim):
    """Raise a ValueError if axial positions are too few, or not as wide as the network."""
    if grid is None and dims is None:
        return
    if grid is None or dims is None or len(grid) != len(dims):
        raise ValueError(
            f"axial_shape={grid} and axial_dims={dims}: pass lists of the same length, or neither."
        )
    if math.prod(grid) < positions:
        raise ValueError(
            f"axial_shape={grid} has {math.prod(grid)} positions, fewer than "
            f"max_sequence_length={positions}: pass sizes whose product is at least that."
        )
    if sum(dims) != hidden_dim:
        raise ValueError(
            f"axial_dims={dims} are {sum(dims)} wide together: their sum must be "
            f"hidden_dim={hidden_dim}."
        )


class WholeChunks(keras.layers.Layer):
    """Put the tokens of each text before its padding, and fill texts up to whole chunks.

    Args:
        chunk_lengths: list of int. A text that is longer than the shortest becomes a multiple of
            all of them.

    Call: `layer(token_ids, padding_mask)`, (B, S) int32 each, returns both, and where each column
    has gone, (B, S) int32.
    """

    def __init__(self, chunk_lengths, **kwargs):
        super().__init__(**kwargs)
        self.chunk_lengths = chunk_lengths

    def call(self, token_ids, padding_mask):
        order = ascending(1 - padding_mask)
        token_ids, padding_mask = (
            self.filled(ops.take_along_axis(x, order, axis=1)) for x in (token_ids, padding_mask)
        )
        return token_ids, padding_mask, inverse(order)

    def filled(self, x):
        """Return rows with zeros after them."""
        return ops.pad(x, [[0, 0], [0, self.lacking(ops.shape(x)[1])]])

    def lacking(self, length):
        """Return how many columns a text of `length` lacks."""
        multiple, shortest = math.lcm(*self.chunk_lengths), min(self.chunk_lengths)
        if isinstance(length, int):
            return -length % multiple if length > shortest else 0
        return ops.where(length > shortest, ops.mod(-length, multiple), 0)

    def compute_output_spec(self, token_ids, padding_mask):
        whole = keras.KerasTensor((token_ids.shape[0], None), "int32")
        return whole, whole, keras.KerasTensor(token_ids.shape, "int32")


class AtPlaces(keras.layers.Layer):
    """`rows_at` of `x` (B, any, D) and places (B, S) as a layer: (B, S, D)."""

    def __init__(self, **kwargs):
        super().__init__(autocast=False, **kwargs)

    def call(self, x, places):
        return rows_at(x, places)

    def compute_output_spec(self, x, places):
        return keras.KerasTensor((*places.shape, x.shape[2]), x.dtype)


def with_tokens(cache, token_ids, padding_mask):
    """Return a cache with new tokens (B, S), and their slots (B, S), None if there was none."""
    if cache is None:
        length = ops.sum(ops.ones_like(padding_mask), axis=1)
        return {"token_ids": token_ids, "padding_mask": padding_mask, "length": length}, None
    rows, new = ops.shape(token_ids)
    slots = ops.expand_dims(cache["length"], 1) + ops.arange(new, dtype="int32")  # (B, S)
    row = ops.expand_dims(ops.arange(rows, dtype="int32"), 1) + ops.zeros_like(slots)
    indices = ops.reshape(ops.stack([row, slots], axis=-1), (-1, 2))
    both = {"token_ids": token_ids, "padding_mask": padding_mask}
    written = {
        name: ops.scatter_update(cache[name], indices, ops.reshape(x, (-1,)))
        for name, x in both.items()
    }
    return written | {"length": cache["length"] + new}, slots


class ReformerBlock(keras.layers.Layer):
    """A block of two streams: attention to the second adds to the first, feed-forward to the other.

    Args:
        attention: `keras_lm.models.reformer_attention.ChunkedAttention`.
        intermediate_dim: int. Width inside the feed-forward network.
        activation: str. See `keras_lm.layers.get_activation`.
        dropout: float. Fraction dropped of what both parts add, and inside the second.
        layer_norm_epsilon: float.

    Call: `layer(x, y, padding_mask, seeds=None, rotations=None)`; the streams x and y, (B, S, D),
    are returned in their next forms; the others see `ChunkedAttention`.

    Source: Reformer, https://arxiv.org/abs/2001.04451, section 3, equations 8 and 9.
    """

    def __init__(
        self, attention, intermediate_dim, activation, dropout, layer_norm_epsilon, **kwargs
    ):
        # Streams stay wide under a mixed policy: what is subtracted again would be rounded twice.
        super().__init__(autocast=False, **kwargs)
        self.attention = attention
        self.intermediate_dim = intermediate_dim
        self.activation = activation
        self.dropout_rate = dropout
        self.layer_norm_epsilon = layer_norm_epsilon

    def build(self, input_shape):
        options = {"dtype": self.dtype_policy}

        def norm(name):
            return LayerNormalization(epsilon=self.layer_norm_epsilon, name=name, **options)

        def dense(units, name):
            return Dense(units, kernel_initializer=truncated_normal(), name=name, **options)

        self.attention_norm, self.feedforward_norm = (
            norm("attention_norm"),
            norm("feedforward_norm"),
        )
        self.intermediate = dense(self.intermediate_dim, "intermediate")
        self.output_dense = dense(input_shape[-1], "output")
        for layer in (
            self.attention_norm,
            self.attention,
            self.feedforward_norm,
            self.intermediate,
        ):
            layer.build(input_shape)
        self.output_dense.build((*input_shape[:-1], self.intermediate_dim))

    def halves(self):
        """Return both functions of a stream, each with its layers."""
        return (
            (self.attend, (self.attention_norm, self.attention)),
            (self.feed_forward, (self.feedforward_norm, self.intermediate, self.output_dense)),
        )

    def attend(self, y, padding_mask, seeds, rotations):
        """Return what attention adds to the first stream for the second, `y`."""
        added = self.attention(
            self.attention_norm(y), padding_mask, seeds=seeds, rotations=rotations
        )
        return self.widened(dropped(added, self.dropout_rate, seeds, 2))

    def feed_forward(self, x, padding_mask, seeds, rotations):
        """Return what the feed-forward network adds to the second stream for the first, `x`."""
        inner = self.intermediate(self.feedforward_norm(x))
        inner = get_activation(self.activation)(dropped(inner, self.dropout_rate, seeds, 3))
        return self.widened(dropped(self.output_dense(inner), self.dropout_rate, seeds, 4))

    def widened(self, x):
        return ops.cast(x, float32_or_wider(self.dtype_policy))

    def call(self, x, y, padding_mask, seeds=None, rotations=None):
        x = x + self.attend(y, padding_mask, seeds, rotations)
        return x, y + self.feed_forward(x, padding_mask, seeds, rotations)

    def compute_output_spec(self, x, y, padding_mask, seeds=None, rotations=None):
        stream = keras.KerasTensor(x.shape, float32_or_wider(self.dtype_policy))
        return stream, stream


def through_reversible(blocks, x, y, padding_mask, noise):
    """Return what comes out of blocks, whose gradient computes what they have read again.

    Args:
        blocks: list of `ReformerBlock`.
        x, y: the streams, (B, S, D).
        padding_mask: (B, S) int32.
        noise: list of pairs of `seeds` and `rotations`, those of each block.
    """
    functions, weights, given = [], [], []
    for block, of_block in zip(blocks, noise, strict=True):
        for half, layers in block.halves():
            learned = [v for layer in layers for v in layer.trainable_variables]
            others = [v for layer in layers for v in layer.non_trainable_variables]
            functions.append(_with_values(half, learned, others))
            weights.append([variable.value for variable in learned])
            given.append(((padding_mask, *of_block), [ops.stop_gradient(v.value) for v in others]))
    return reversible(functions, x, y, weights, given)


def _with_values(half, learned, others):
    def function(stream, values, given):
        arguments, constants = given
        mapping = [*zip(learned, values, strict=True), *zip(others, constants, strict=True)]
        with keras.StatelessScope(state_mapping=mapping):
            return half(stream, *arguments)

    return function


# === Heads ===


class ReformerLMHead(keras.layers.Layer):
    """A linear layer: logits of tokens, at each place or at those that are masked.

    Args:
        token_embedding: the backbone's `ReversibleEmbedding`, which says how many tokens there are.

    Call: `head(outputs, inputs)` → (B, S, V) float32, or (B, M, V) if `inputs` has `mask_positions`
    (B, M).
    """

    def __init__(self, token_embedding, **kwargs):
        super().__init__(**kwargs)
        self.token_embedding = token_embedding

    def build(self, outputs_shape, inputs_shape=None):
        self.logits = make_dense("logits", self.token_embedding.input_dim, self.dtype_policy)
        self.logits.build(outputs_shape["sequence_output"])

    def call(self, outputs, inputs=None, training=None):
        x = at_masks(outputs, inputs)
        return ops.cast(self.logits(x), float32_or_wider(self.dtype_policy))


class ReformerClassifier(PooledClassifier):
    """Dropout, dense of D units, tanh, dropout and logits (B, classes) float32 of one token.

    That is the first token, or the last before the padding if the network is causal.

    Args:
        hidden_dim: int, D.
        is_causal: bool. Whether it reads the last token.
        num_classes, dropout: see `PooledClassifier`.
    """

    uses_pooler = False

    def __init__(self, num_classes, hidden_dim, is_causal, dropout=0.1, **kwargs):
        super().__init__(num_classes, dropout, **kwargs)
        self.hidden_dim = hidden_dim
        self.is_causal = is_causal

    def build(self, outputs_shape, inputs_shape=None):
        batch, _, width = outputs_shape["sequence_output"]
        super().build({"pooled_output": (batch, self.hidden_dim)})
        self.dense = make_dense("dense", self.hidden_dim, self.dtype_policy, activation="tanh")
        self.dense.build((batch, width))

    def call(self, outputs, inputs=None, training=None):
        x = outputs["sequence_output"]
        if not self.is_causal:
            x = x[:, 0]
        elif inputs is None or "padding_mask" not in inputs:
            x = x[:, -1]
        else:
            last = last_real_token(inputs["padding_mask"])  # (B,)
            x = ops.take_along_axis(x, ops.reshape(last, (-1, 1, 1)), axis=1)[:, 0]
        x = self.dense(self.dropout(x, training=training))
        return super().call({"pooled_output": x}, training=training)
