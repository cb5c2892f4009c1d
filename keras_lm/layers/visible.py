"""The bias of attention: the number that masks, and causal masks as a rule."""

from typing import Any, NamedTuple

from keras import ops

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
