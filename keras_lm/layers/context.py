"""The context of attention: its inputs besides the vectors of the tokens, and masks as numbers."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_lm.argument_types import Tensor

# Shapes: B batch, S sequence, T attended length, D hidden, N heads, H per head.

# The exponential of `MASKED` is zero, and the sum of two still fits into float16.
MASKED = -3e4


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


def as_tensor(bias):
    """Return attention's additive bias as a tensor, (B, 1, S, T) for a `Visible`."""
    return bias.bias() if isinstance(bias, Visible) else bias


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

    def forward(self, x, context, training=None):
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

    def call(self, x, context=None, training=None, **fields):
        output, kept = self.forward(x, self.as_context(context, fields), training)
        return (output, kept) if isinstance(context, (list, tuple)) else output

    def compute_output_shape(self, x_shape, *args, **kwargs):
        return x_shape

    def compute_output_spec(self, x, context=None, training=None, **fields):
        output = keras.KerasTensor(x.shape, self.compute_dtype)
        if not isinstance(context, (list, tuple)):
            return output
        return output, self.kept_spec(x, self.as_context(context, fields))
