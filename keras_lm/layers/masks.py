"""Masks: int32 in all interfaces, one additive bias inside."""

from typing import Any

import keras
from keras import ops

from keras_lm.argument_types import Tensor
from keras_lm.layers.backend import takes_rules
from keras_lm.layers.context import MASKED, Visible

IGNORED = -100  # the label of a position that losses and metrics leave out


@keras.saving.register_keras_serializable("keras_lm")
class PaddingBias(keras.layers.Layer):
    """Turn a padding mask (B, S), 1 = real, into attention's additive bias, (B, 1, 1, S) float32.

    Padding gets `MASKED` instead of minus infinity, so a row of padding alone attends uniformly to
    everything, and its values are finite.
    """

    def call(self, padding_mask):
        bias = (1.0 - ops.cast(padding_mask, "float32")) * MASKED
        # Not `bias[:, None, None, :]`, since LiteRT has no kernel for it with a variable length.
        return ops.expand_dims(ops.expand_dims(bias, 1), 1)

    def compute_output_spec(self, padding_mask):
        batch, length = padding_mask.shape
        return keras.KerasTensor((batch, 1, 1, length), dtype="float32")


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

    def call(self, padding_mask, slots=None):
        visible = self.visible(padding_mask, slots)
        is_rule = takes_rules(visible.slots.shape[1], padding_mask.shape[1])
        return visible if is_rule else visible.bias()  # a tensor, computed once for all layers

    def compute_output_spec(self, padding_mask, slots=None):
        batch, length = padding_mask.shape
        queries = length if slots is None else slots.shape[1]
        return keras.KerasTensor((batch, 1, queries, length), dtype="float32")

    def get_config(self):
        return super().get_config() | {"window": self.window}
