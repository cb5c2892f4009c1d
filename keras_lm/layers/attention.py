"""Attention, what models need that read from left to right, and the blocks of Transformers.

Layers with attention take a context, and return what they keep.

Shapes: B batch, S sequence or new tokens, T attended length or slots, L blocks, N heads, H per
head.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops, tree

from keras_lm.layers.backend import (
    Dropout,
    draw_seed,
    dropout,
    fused_attention,
    in_blocks,
    is_growing,
    is_long,
    keeps_axes,
    matmul,
    matmul_transposed,
    narrowed,
    sizes,
    softmax,
    takes_rules,
    traced_alike,
    word_scores,
    write_slots,
)
from keras_lm.layers.basic import (
    Dense,
    LayerNormalization,
    get_activation,
    leading_shape,
    make_dense,
    truncated_normal,
)
from keras_lm.layers.masks import MASKED
from keras_lm.layers.state import EARLIER
from keras_lm.utils.argument_types import DType, Shape, Tensor

# === Masks: int32 in all interfaces, one additive bias inside ===


class Visible(NamedTuple):
    """Which of T columns each of S queries attends to: the bias of causal attention as a rule.

    All tensors are int32. `slots` (B, S, 1) are the last columns that the queries attend to: their
    own, or some after them. `padding_mask` (B, 1, T) is 1 for columns that may be attended to.
    `window` is `()` or two tensors: the number of real tokens up to each column, (B, 1, T), and the
    number that it must exceed for each query, (B, S, 1); or columns in place of numbers.
    """

    padding_mask: Any
    slots: Any
    window: tuple = ()

    def bias(self):
        """Return the additive bias (B, 1, S, T), float32."""
        columns = ops.arange(ops.shape(self.padding_mask)[2], dtype="int32")
        visible = ops.less_equal(columns, self.slots)
        visible = ops.logical_and(visible, ops.greater(self.padding_mask, 0))
        if self.window:
            visible = ops.logical_and(visible, ops.greater(*self.window))
        return ops.expand_dims((1.0 - ops.cast(visible, "float32")) * MASKED, 1)


def bias_tensor(bias):
    """Return attention's additive bias as a tensor, (B, 1, S, T) for a `Visible`."""
    return bias.bias() if isinstance(bias, Visible) else bias


@keras.saving.register_keras_serializable("keras_lm")
class PaddingBias(keras.layers.Layer):
    """Turn a padding mask (B, S), 1 = real, into attention's additive bias, (B, 1, 1, S) float32.

    Padding gets `MASKED` instead of minus infinity, so a row of padding alone attends uniformly to
    everything, and its values are finite.
    """

    def call(self, padding_mask: Tensor) -> Tensor:
        bias = (1.0 - ops.cast(padding_mask, "float32")) * MASKED
        # Not `bias[:, None, None, :]`, since LiteRT has no kernel for it with a variable length.
        return ops.expand_dims(ops.expand_dims(bias, 1), 1)

    def compute_output_spec(self, padding_mask: Tensor) -> Any:
        batch, length = padding_mask.shape
        return keras.KerasTensor((batch, 1, 1, length), dtype="float32")


# === Attention ===


class AttentionContext(NamedTuple):
    """The inputs of blocks besides `x` (B, S, D), created once per forward pass; all may be None.

    - `bias`, broadcastable to (B, N, S, T), is added to the scores: padding, later tokens, relative
      positions. It may be a `Visible`.
    - `past` has the keys and the values of earlier tokens, (B, N, T, H) each, with free slots;
      `write_at` (B·N·S, 3) int32 has the row, head and slot of each new one.
    - `memory` (B, M, D) are earlier inputs of the layer, to attend to before those of `x`.
    - `positions` and `segments` are for attention whose scores depend on them: tensors in the form
      of the model's own class of attention.
    - `source` is what a decoder attends to: an encoder's output (B, T, its width), or its keys and
      values; `source_bias` is added to its scores.
    - `head_mask` (N,) or (B, N) is a factor for each head's output.

    Example:

        x, padding_mask = np.zeros((2, 7, 64), "float32"), np.ones((2, 7), "int32")
        blocks = [PostNormBlock(num_heads=4, intermediate_dim=256) for _ in range(2)]
        context = AttentionContext(bias=PaddingBias()(padding_mask))
        for block in blocks:
            x, _ = block(x, context)
    """

    bias: Any = None
    past: Any = None
    write_at: Any = None
    memory: Any = None
    positions: Any = None
    segments: Any = None
    source: Any = None
    source_bias: Any = None
    head_mask: Any = None


class ContextLayer(keras.layers.Layer):
    """A layer that computes (B, S, D) from `x` (B, S, D) and an `AttentionContext`.

    A subclass defines

        def forward(self, x, context, training=None):
            …
            return x, kept

    where `kept` are nested tensors from which a later call may continue, and their `kept_spec`.

    Call: `layer(x, context)` returns `x` and what it keeps. `layer(x)`, and calls with fields of a
    context by name, such as `layer(x, bias=bias)`, return `x` only.
    """

    # The field of the context that a tensor in its place stands for.
    first_field = "bias"

    def forward(
        self, x: Tensor, context: AttentionContext, training: bool | None = None
    ) -> tuple[Tensor, Any]:
        raise NotImplementedError(f"{type(self).__name__} must define forward.")

    def kept_spec(self, x: Tensor, context: Any) -> Any:
        """Return `keras.KerasTensor`s for what `forward` keeps, given those of its arguments."""
        raise NotImplementedError(f"{type(self).__name__} must define kept_spec.")

    def as_context(self, context: Any, fields: Mapping[str, Any]) -> AttentionContext:
        """Return the `AttentionContext` for the arguments of a call."""
        if context is None:
            return AttentionContext(**fields)
        if isinstance(context, (list, tuple)):  # in a `.keras` file, it is a list
            return AttentionContext(*context)._replace(**fields)
        return AttentionContext(**{self.first_field: context}, **fields)

    def call(
        self, x: Tensor, context: Any = None, training: bool | None = None, **fields: Any
    ) -> Any:
        output, kept = self.forward(x, self.as_context(context, fields), training)
        return (output, kept) if isinstance(context, (list, tuple)) else output

    def compute_output_shape(self, x_shape: Shape, *args: Any, **kwargs: Any) -> Any:
        return x_shape

    def compute_output_spec(
        self, x: Tensor, context: Any = None, training: bool | None = None, **fields: Any
    ) -> Any:
        output = keras.KerasTensor(x.shape, self.compute_dtype)
        if not isinstance(context, (list, tuple)):
            return output
        return output, self.kept_spec(x, self.as_context(context, fields))


def attend(raw_scores, query, key, value, bias=None, rate=0.0, seed=None):
    """Return softmax(scores + bias) times the values, (B, N, S, H).

    Long texts are computed in blocks of queries, see `is_long`.

    Args:
        raw_scores: function of query and key → (B, N, S, T), without variables.
        query: (B, N, S, H), or nested tensors with S on axis −2.
        key: (B, N, T, H), or nested tensors.
        value: (B, N, T, H); or a list of parts along T, as is `key` then.
        bias: additive bias that broadcasts to the scores, a `Visible`, or None.
        rate, seed: the fraction of probabilities to drop, and the seed; None drops nothing.
    """

    def read(rows, columns, seed):
        (query, *bias), (key, value) = rows, columns
        if isinstance(value, list):
            return attend_parts(raw_scores, query, key, value, *bias)
        probabilities = softmax(with_bias(raw_scores(query, key), *bias))  # (B, N, S, T)
        probabilities = ops.cast(probabilities, value.dtype)
        if seed is not None:
            probabilities = dropout(probabilities, rate, seed)
        return matmul(probabilities, value)

    query, key, value = tree.map_structure(narrowed, (query, key, value))
    rows, columns = [query] if bias is None else [query, bias], [key, value]
    is_whole = not isinstance(value, list)
    if is_whole and is_long(tree.flatten(query)[0].shape[-2], value.shape[-2]):
        return in_blocks(read, rows, columns, seed)
    return read(rows, columns, seed)


def attend_parts(raw_scores, query, keys, values, bias=None):
    """Return `attend` of keys and values in parts, without joining them."""
    scores = ops.concatenate([raw_scores(query, key) for key in keys], axis=-1)
    probabilities = softmax(with_bias(scores, bias))
    attended, start = 0.0, 0
    for value in values:
        shape = (*ops.shape(probabilities)[:3], ops.shape(value)[2])
        attended += matmul(ops.slice(probabilities, (0, 0, 0, start), shape), value)
        start += shape[3]
    return attended


def with_bias(scores, bias=None):
    """Return the scores (B, N, S, T) before the softmax, float32."""
    scores = narrowed(ops.cast(scores, "float32"))
    return scores if bias is None else scores + narrowed(ops.cast(bias_tensor(bias), "float32"))


class Attention(ContextLayer):
    """Multi-head scaled dot-product attention; a subclass defines `project`.

    Causal masks, padding and relative-position biases are all part of one additive bias. A variant
    sets `has_biases` or `has_output_bias` to False, or overrides a small method: `make_scale`,
    `make_projection` and `make_output` for other weights, `raw_scores` for scores other than the
    product of query and key, `project` for further inputs of the scores, and `output_rows` for an
    output of other rows than those that attend.

    Call: see `ContextLayer`. `layer.scores` and `layer.probabilities` have the same call, and
    return (B, N, S, T) float32, before and after the softmax.

    Args:
        num_heads: int, N; must divide D if `head_dim` is None.
        dropout: float. Fraction of attention probabilities to drop in training.
        output_stddev: float. Standard deviation of the output kernel's initial values.
        head_dim: int, H, or None for D / N.
    """

    # Whether the projections to queries, keys and values have biases, and that of the output.
    has_biases = has_output_bias = True

    def __init__(
        self,
        num_heads: int,
        dropout: float = 0.0,
        output_stddev: float = 0.02,
        head_dim: int | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout_rate = dropout
        self.output_stddev = output_stddev
        self.head_dim = self._given_head_dim = head_dim

    def set_widths(self, hidden_dim: int) -> int:
        """Set `head_dim` and `scale`, given the width D of the input; return N·H."""
        if self._given_head_dim is None and hidden_dim % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads} does not divide the width {hidden_dim} of the input: "
                "choose a num_heads that does, or pass head_dim."
            )
        self.head_dim = self._given_head_dim or hidden_dim // self.num_heads
        self.scale: Any = self.make_scale()
        return self.num_heads * self.head_dim

    def build_output(self, hidden_dim: int) -> None:
        self.dropout: Dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy)
        self.output_dense: keras.layers.Layer = self.make_output(hidden_dim)
        self.output_dense.build((None, None, self.num_heads * self.head_dim))

    def make_scale(self) -> Any:
        return self.head_dim**-0.5

    def make_projection(self, units: int, name: str) -> keras.layers.Layer:
        return make_dense(name, units, self.dtype_policy, use_bias=self.has_biases)

    def make_output(self, units: int) -> keras.layers.Layer:
        return Dense(
            units,
            use_bias=self.has_output_bias,
            kernel_initializer=truncated_normal(self.output_stddev),
            dtype=self.dtype_policy,
            name="output",
        )

    def split_heads(self, x: Tensor, parts: int) -> Tensor:
        """Return the `parts` of (B, S, parts·N·H) as a list of (B, N, S, H)."""
        if x.shape[1] == 1:  # in a step of decoding, there is nothing to transpose
            x = ops.reshape(x, (-1, parts, self.num_heads, 1, self.head_dim))
            return ops.unstack(x, parts, axis=1)
        batch, length, _ = sizes(x)
        if keeps_axes(x):  # LiteRT has a quick kernel for parts of an axis, and none for its slices
            x = ops.reshape(x, (batch, length, parts * self.num_heads, self.head_dim))
            return ops.split(ops.transpose(x, (0, 2, 1, 3)), parts, axis=1)
        x = ops.reshape(x, (batch, length, parts, self.num_heads, self.head_dim))
        return ops.unstack(ops.transpose(x, (2, 0, 3, 1, 4)), parts)

    def project(self, x: Tensor, context: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return the query (B, N, S, H), and key and value, (B, N, T, H) each.

        Query and key are the arguments of `raw_scores`, and may be nested tensors: the first those
        for each query, with S on axis −2, the second those for all queries.
        """
        raise NotImplementedError(f"{type(self).__name__} must define project.")

    def raw_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the scores (B, N, S, T) for the results of `project`, or for a block of queries.

        It must not use weights, because in blocks they would have no gradient.
        """
        return matmul_transposed(query * self.scale, key)

    def forward(
        self, x: Tensor, context: AttentionContext, training: bool | None = None
    ) -> tuple[Tensor, Any]:
        query, key, value = self.project(x, context)
        seed = None
        if training and self.dropout_rate:
            seed = draw_seed(self.dropout.seed_generator)
        attended = None
        if seed is None and type(self).raw_scores is Attention.raw_scores:
            attended = fused_attention(query, key, value, context.bias, self.scale)
        if attended is None:
            attended = attend(
                self.raw_scores, query, key, value, context.bias, self.dropout_rate, seed
            )  # (B, N, S, H)
        if context.head_mask is not None:
            head_mask = ops.cast(context.head_mask, self.compute_dtype)
            attended = attended * ops.expand_dims(ops.expand_dims(head_mask, -1), -1)
        return self.output_dense(self.output_rows(self.join_heads(attended), context)), (key, value)

    def output_rows(self, x: Tensor, context: Any) -> Tensor:
        """Return the rows of `x` (B, S, N·H) of which the output is made; a variant mixes them."""
        return x

    def scores(self, x: Tensor, context: Any = None, **fields: Any) -> Tensor:
        """Return the scores (B, N, S, T) before the softmax, with the bias, float32."""
        context = self.as_context(context, fields)
        query, key, _ = self.project(x, context)
        return with_bias(self.raw_scores(query, key), context.bias)

    def probabilities(self, x: Tensor, context: Any = None, **fields: Any) -> Tensor:
        """Return the attention probabilities (B, N, S, T), float32."""
        return softmax(self.scores(x, context, **fields))

    def attended_length(self, x: Tensor, context: Any) -> int | None:
        """Return T, or None if it is unknown while a model is built."""
        raise NotImplementedError(f"{type(self).__name__} must define attended_length.")

    def kept_spec(self, x: Tensor, context: Any) -> Any:
        width = self.head_dim or x.shape[2] // self.num_heads
        shape = (x.shape[0], self.num_heads, self.attended_length(x, context), width)
        return tuple(keras.KerasTensor(shape, self.compute_dtype) for _ in range(2))

    def join_heads(self, x: Tensor) -> Tensor:
        """Return (B, N, S, H) as (B, S, N·H)."""
        width = self.num_heads * self.head_dim
        if x.shape[2] == 1:
            return ops.reshape(x, (-1, 1, width))
        batch, _, length, _ = sizes(x)
        return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (batch, length, width))

    def get_config(self) -> dict[str, Any]:
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

    Call: `layer(x)`, or with a context, see `ContextLayer`; it keeps the keys and the values that
    it attends to, (B, N, T, H) each.

    Example:

        attention = SelfAttention(num_heads=4)
        attention(np.zeros((2, 7, 64), "float32")).shape  # (2, 7, 64)

    Source: https://arxiv.org/abs/1706.03762, section 3.2.2; with a past, section 3.2.3.
    """

    def build(self, input_shape: Shape) -> None:
        width = self.set_widths(input_shape[-1])
        self.query_key_value = self.make_projection(3 * width, "query_key_value")
        self.query_key_value.build(input_shape)
        self.build_output(input_shape[-1])

    def project(self, x: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor, Tensor]:
        both = x if context.memory is None else self.after_memory(x, context)  # (B, M + S, D)
        if context.memory is None or context.memory.shape[1] == 0:
            query, key, value = self.split_heads(self.query_key_value(both), 3)
        else:
            x = ops.slice(both, (0, ops.shape(context.memory)[1], 0), ops.shape(x))
            (query,) = self.split_heads(self.queries_alone(x), 1)
            key, value = self.keys_and_values(both)
        if context.past is not None:
            key, value = (
                self.write(old, new, context.write_at)
                for old, new in zip(context.past, (key, value), strict=True)
            )
        return query, key, value

    def after_memory(self, x: Tensor, context: Any) -> Tensor:
        """Return the columns of a memory (B, M, D) and then `x` (B, S, D), as (B, M + S, D)."""
        return ops.concatenate([context.memory, x], axis=1)

    def queries_alone(self, x: Tensor) -> Tensor:
        """Return the queries (B, S, N·H) of `x` (B, S, D), before they are split into heads."""
        return self.query_key_value.columns(x, 0, self.num_heads * self.head_dim)

    def keys_and_values(self, x: Tensor) -> list[Tensor]:
        """Return the keys and the values of `x` (B, T, D), (B, N, T, H) each."""
        width = self.num_heads * self.head_dim
        return self.split_heads(self.query_key_value.columns(x, width, 3 * width), 2)

    def write(self, old: Any, new: Any, write_at: Tensor | None) -> Tensor:
        """Return keys or values (B, N, T, H) with new ones (B, N, S, H) written to their slots.

        Without slots, they come after the old ones; of a list of these, after the last part.
        """
        if isinstance(old, list):
            return [*old[:-1], self.write(old[-1], new, write_at)]
        if write_at is None:
            return ops.concatenate([old, new], axis=2)
        return write_slots(old, ops.reshape(new, (-1, self.head_dim)), write_at)

    def attended_length(self, x: Tensor, context: Any) -> int | None:
        if context.past is not None:
            return context.past[0].shape[2]
        lengths = [part.shape[1] for part in (context.memory, x) if part is not None]
        return None if None in lengths else sum(lengths)


# === From left to right ===


@keras.saving.register_keras_serializable("keras_lm")
class CausalBias(keras.layers.Layer):
    """Turn a padding mask into the additive bias of causal attention.

    Args:
        window: int, 1 or more. The maximum number of tokens to attend to, including the token
            itself; None for all earlier tokens ("dense" in GPT-3's terms, where a window is
            "locally banded").

    Call: `layer(padding_mask, slots=None)` with (B, T) int32, 1 = real; returns (B, 1, S, T)
    float32. `slots` (B, S) int32 is the column of each query; by default, there is a query in each
    of the T columns. A query that may attend to nothing attends uniformly to everything.

    Raises:
        ValueError: if `window` is less than 1.

    Source: GPT-3, https://arxiv.org/abs/2005.14165, section 2.1; Sparse Transformer,
    https://arxiv.org/abs/1904.10509, section 4.
    """

    def __init__(self, window: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        if window is not None and window < 1:
            raise ValueError(f"window={window}: pass 1 or more, as a token attends to itself.")
        self.window = window

    def visible(self, padding_mask: Tensor, slots: int | None = None) -> Visible:
        """Return which columns each query attends to."""
        window = ()
        if self.window is not None:
            # Windows count real tokens, as there may be padding between prompt and continuation.
            keys = ops.cumsum(padding_mask, axis=1)  # (B, T)
            queries = keys if slots is None else ops.take_along_axis(keys, slots, axis=1)
            window = (ops.expand_dims(keys, 1), ops.expand_dims(queries - self.window, 2))
        if slots is None:
            slots = ops.expand_dims(ops.arange(ops.shape(padding_mask)[1], dtype="int32"), 0)
        return Visible(ops.expand_dims(padding_mask, 1), ops.expand_dims(slots, 2), window)

    def call(self, padding_mask: Tensor, slots: Tensor | None = None) -> Any:
        visible = self.visible(padding_mask, slots)
        is_rule = takes_rules(visible.slots.shape[1], padding_mask.shape[1])
        return visible if is_rule else visible.bias()  # a tensor, computed once for all layers

    def compute_output_spec(self, padding_mask: Tensor, slots: Tensor | None = None) -> Any:
        batch, length = padding_mask.shape
        queries = length if slots is None else slots.shape[1]
        return keras.KerasTensor((batch, 1, queries, length), dtype="float32")

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"window": self.window}


class KeyValueCache:
    """The keys and values of the tokens so far, during a forward pass that adds new ones.

    Between two passes, the state is a dict:

        {"keys": tuple of L (B, N, T, H), "values": tuple of L (B, N, T, H),
         "padding_mask": (B, T) int32, 1 where a slot holds a real token,
         "length": (B,) int32, how many slots are in use, padding among them}

    It is created from the `padding_mask` (B, S) of the new tokens, and a `state` with S free slots
    in each row, or None. The attribute `padding_mask` (B, T) is that of all slots, `slots` (B, S)
    are the slots of the new tokens, and `start` (B,) is the number of real tokens before them.
    Without a state, `slots` and `start` are None. A state that is growing may have the keys and
    values of the first tokens under `EARLIER`; those of the others then change alone.

    Example:

        cache = KeyValueCache(padding_mask, state, len(blocks))
        states = cache.through(blocks, x, cache.contexts(biases))
        state = cache.state()
    """

    def __init__(self, padding_mask, state, num_layers):
        self.keys, self.values = [], []
        if state is None:
            self.padding_mask = padding_mask
            self.slots = self.start = self.write_at = None
            self.length = ops.sum(ops.ones_like(padding_mask), axis=1)
            self.past = [None] * num_layers
            return
        rows, new = ops.shape(padding_mask)
        self.length = state["length"] + new
        self.slots = ops.expand_dims(state["length"], 1) + ops.arange(new, dtype="int32")
        self.start = ops.sum(state["padding_mask"], axis=1)
        parts = [state[name] for name in ("keys", "values")]
        if EARLIER in state:
            earlier = [state[EARLIER][name] for name in ("keys", "values")]
            parts = [map(list, zip(*both, strict=True)) for both in zip(earlier, parts)]
        self.past = list(zip(*parts, strict=True))
        if is_growing():
            self.padding_mask = ops.concatenate([state["padding_mask"], padding_mask], axis=1)
            self.write_at = None
            return
        row = ops.expand_dims(ops.arange(rows, dtype="int32"), 1)  # (B, 1)
        self.padding_mask = ops.scatter_update(
            state["padding_mask"],
            ops.reshape(_indices(row, self.slots), (-1, 2)),
            ops.reshape(padding_mask, (-1,)),
        )
        head = ops.arange(state["keys"][0].shape[1], dtype="int32")
        indices = _indices(
            ops.expand_dims(row, 1), ops.reshape(head, (1, -1, 1)), ops.expand_dims(self.slots, 1)
        )  # (B, N, S, 3)
        self.write_at = ops.reshape(indices, (-1, 3))

    def contexts(self, biases):
        """Return the `AttentionContext` of each block, given their biases."""
        return [
            AttentionContext(bias=bias, past=past, write_at=self.write_at)
            for bias, past in zip(biases, self.past, strict=True)
        ]

    def through(self, blocks, x, contexts, training=None):
        """Return what each block makes of `x` (B, S, D), and store what it keeps."""
        states = []
        for block, context in zip(blocks, contexts, strict=True):
            x, kept = _called(block, x, context, training)
            self.keep(kept)
            states.append(x)
        return states

    def keep(self, kept):
        """Store the keys and values that a block keeps."""
        keys, values = (part[-1] if isinstance(part, list) else part for part in kept)
        self.keys.append(keys)
        self.values.append(values)

    def state(self):
        return {
            "keys": tuple(self.keys),
            "values": tuple(self.values),
            "padding_mask": self.padding_mask,
            "length": self.length,
        }


def _indices(*parts):
    """Integers that broadcast to one shape → (…, number of parts)."""
    ones = sum(ops.zeros_like(part) for part in parts)
    return ops.stack([part + ones for part in parts], axis=-1)


class CausalLMHead(keras.layers.Layer):
    """The next token's logits: the product with the token embedding, or with a separate matrix.

    Args:
        token_embedding: `keras.layers.ReversibleEmbedding` of the backbone.
        tied: bool. Whether to use the token embedding; False creates a matrix of the same shape.

    Call: `head(outputs, inputs)` → (B, S, V) float32, the next token's logits at each position.

    Source: GPT, "Improving Language Understanding by Generative Pre-Training", equation 2.
    """

    def __init__(self, token_embedding: keras.Layer, tied: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        self.token_embedding = token_embedding
        self.tied = tied

    def build(self, outputs_shape: Any, inputs_shape: Any = None) -> None:
        if not self.tied:
            self.own: keras.Variable = self.add_weight(
                name="embeddings",
                shape=(self.token_embedding.input_dim, outputs_shape["sequence_output"][-1]),
                initializer=self.make_initializer(),
            )

    def make_initializer(self) -> str:
        """Return the initialiser of the head's own matrix, if it is not tied."""
        return "glorot_uniform"

    @property
    def table(self) -> Tensor:
        """The matrix (V, D), a row per token of the vocabulary."""
        return self.token_embedding.embeddings if self.tied else self.own

    def call(
        self,
        outputs: dict[str, Tensor],
        inputs: dict[str, Tensor] | None = None,
        training: bool | None = None,
    ) -> Tensor:
        return word_scores(outputs["sequence_output"], self.table)


# === Blocks ===


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

    def build(self, input_shape: Shape) -> None:
        self.intermediate = make_dense(
            "intermediate",
            self.intermediate_dim,
            self.dtype_policy,
            activation=get_activation(self.activation),
        )
        self.intermediate.build(input_shape)
        self.output_dense = Dense(
            input_shape[-1],
            kernel_initializer=truncated_normal(self.output_stddev),
            dtype=self.dtype_policy,
            name="output",
        )
        self.output_dense.build((*input_shape[:-1], self.intermediate_dim))

    def call(self, x: Tensor) -> Tensor:
        if keeps_axes(x):
            return self.output_dense(self.intermediate(x))
        rows = ops.reshape(x, (-1, x.shape[-1]))
        rows = self.output_dense(self.intermediate(rows))
        return ops.reshape(rows, (*leading_shape(x), x.shape[-1]))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
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

    def make_attention(self) -> Attention:
        return self.attention_class(
            self.num_heads,
            self.attention_dropout,
            self.output_stddev,
            self.head_dim,
            name="attention",
            dtype=self.dtype_policy,
        )

    def make_feedforward(self) -> FeedForward:
        return FeedForward(
            self.intermediate_dim,
            self.activation,
            self.output_stddev,
            name="feedforward",
            dtype=self.dtype_policy,
        )

    def make_norm(self, name: str) -> LayerNormalization:
        return LayerNormalization(
            epsilon=self.layer_norm_epsilon, name=name, dtype=self.dtype_policy
        )

    def build(self, input_shape: Shape) -> None:
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

    def read(self, x: Tensor, norm: keras.Layer) -> Tensor:
        """Return the input of a part of the block, given the residual `x` and the part's norm."""
        return x

    def residual(
        self, x: Tensor, norm: keras.Layer, added: Tensor, training: bool | None = None
    ) -> Tensor:
        """Return the residual `x` after adding a part's output, all (B, S, D)."""
        return norm(x + self.dropout(added, training=training))

    def forward(
        self, x: Tensor, context: AttentionContext, training: bool | None = None
    ) -> tuple[Tensor, Any]:
        x, kept = self.add_attention(x, context, training)
        return self.add_feedforward(x, training), kept

    def add_attention(
        self, x: Tensor, context: Any, training: bool | None = None
    ) -> tuple[Tensor, Any]:
        """Return the residual after self-attention, and what the attention keeps."""
        attended, kept = self.attention(*self.attention_inputs(x, context), training=training)
        return self.residual(x, self.attention_norm, attended, training), kept

    def add_feedforward(self, x: Tensor, training: bool | None = None) -> Tensor:
        added = self.feedforward(self.read(x, self.feedforward_norm))
        return self.residual(x, self.feedforward_norm, added, training)

    def attention_inputs(self, x: Tensor, context: Any) -> tuple[Any, Any]:
        """Return the inputs of self-attention, given the residual `x` and the memory."""
        if context.memory is not None:
            memory = self.read(context.memory, self.attention_norm)
            context = context._replace(memory=memory)
        return self.read(x, self.attention_norm), context

    def attention_scores(
        self, x: Tensor, context: AttentionContext | None = None, **fields: Any
    ) -> Tensor:
        inputs = self.attention_inputs(x, self.as_context(context, fields))
        return self.attention.scores(*inputs)

    def attention_probabilities(
        self, x: Tensor, context: AttentionContext | None = None, **fields: Any
    ) -> Tensor:
        inputs = self.attention_inputs(x, self.as_context(context, fields))
        return self.attention.probabilities(*inputs)

    def kept_spec(self, x: Tensor, context: Any) -> Any:
        return self.attention.kept_spec(x, context)

    def get_config(self) -> dict[str, Any]:
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


def through_blocks(
    blocks: Sequence[keras.layers.Layer],
    x: Tensor,
    context: AttentionContext,
    training: bool | None = None,
    first_only: bool = False,
) -> list[Tensor]:
    """Return what each of several blocks makes of `x` (B, S, D), one after another.

    Args:
        blocks: layers such as `PostNormBlock`, with one context for all.
        x: (B, S, D).
        context: its bias may depend on columns; nothing else may depend on their order.
        training: bool.
        first_only: bool. Whether the last block computes the first token alone, (B, 1, D); it does
            not depend on what the block makes of the others.

    Example:

        x, padding_mask = np.zeros((2, 7, 64), "float32"), np.ones((2, 7), "int32")
        blocks = [PostNormBlock(num_heads=4, intermediate_dim=256) for _ in range(2)]
        context = AttentionContext(bias=PaddingBias()(padding_mask))
        states = through_blocks(blocks, x, context, first_only=True)
        states[-1].shape  # (2, 1, 64)
    """
    states = []
    for number, block in enumerate(blocks, 1):
        if first_only and number == len(blocks):
            x, context = _first_after_others(x, context)
        x, _ = _called(block, x, context, training)
        states.append(x)
    return states


def _called(block, x, context, training):
    """Return what a block makes of `x`; of blocks that are alike, graphs may hold one trace."""
    # A symbolic call only makes weights, and is in no graph.
    call = block if isinstance(x, keras.KerasTensor) else functools.partial(traced_alike, block)
    return call(x, context, training=training)


def _first_after_others(x, context):
    """Return the first token (B, 1, D), and the context in which it attends to all tokens.

    The others are a memory, which attention reads before the token itself.
    """
    bias = context.bias[:, :, :1]  # (B, 1 or N, 1, S)
    bias = ops.concatenate([bias[..., 1:], bias[..., :1]], axis=-1)
    return x[:, :1], context._replace(memory=x[:, 1:], bias=bias)


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

    def read(self, x: Tensor, norm: keras.Layer) -> Tensor:
        return norm(x)

    def residual(
        self, x: Tensor, norm: keras.Layer, added: Tensor, training: bool | None = None
    ) -> Tensor:
        return x + self.dropout(added, training=training)
