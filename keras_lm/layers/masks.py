"""Masks: int32 at every boundary, one additive bias inside."""

import keras
from keras import ops

# Its exponential is zero, and the sum of two still fits into float16.
MASKED = -3e4


@keras.saving.register_keras_serializable("keras_lm")
class PaddingBias(keras.layers.Layer):
    """Turn a padding mask into the bias that attention adds to its scores.

    Padding gets `MASKED` rather than minus infinity, so that a row that is all padding attends
    evenly to everything and gives finite numbers.

    Call: `layer(padding_mask)` with (B, S) int32, 1 = real; returns (B, 1, 1, S) float32.
    """

    def call(self, padding_mask):
        bias = (1.0 - ops.cast(padding_mask, "float32")) * MASKED
        # Not `bias[:, None, None, :]`: LiteRT has no kernel for that slice of a varying length.
        return ops.expand_dims(ops.expand_dims(bias, 1), 1)

    def compute_output_spec(self, padding_mask):
        batch, length = padding_mask.shape
        return keras.KerasTensor((batch, 1, 1, length), dtype="float32")
