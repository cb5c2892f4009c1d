"""Masks: int32 in all interfaces, one additive bias inside.

Shapes: B batch, S sequence, T attended length.
"""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_lm.utils.argument_types import Tensor

IGNORED = -100  # the label of a position that losses and metrics leave out
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


# Shapes: B batch, S sequence, T attended length, D hidden, N heads, H per head.
