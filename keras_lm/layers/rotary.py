"""Rotary positions: queries and keys are rotated by angles that grow with their position.

Shapes: B batch, S sequence, N heads, H per head.
"""

import keras
import numpy as np
from keras import ops

from keras_lm.layers.attention import SelfAttention


class RotaryPositions(keras.layers.Layer):
    """Cosines and sines of the angles by which queries and keys are rotated, (S, H) float32 each.

    Args:
        head_dim: int, H. Component i is rotated with component i + H / 2.
        max_wavelength: float. The slowest pair turns once in nearly 2π times as many tokens.
        slowdown: float. What all pairs turn slower by.

    Call: `layer(padding_mask)` with (B, S) int32, for its length alone.

    Source: Su et al. 2021, https://arxiv.org/abs/2104.09864, section 3.2.2.
    """

    def __init__(self, head_dim, max_wavelength, slowdown=1.0, **kwargs):
        super().__init__(**kwargs)
        self.head_dim = head_dim
        # In the arithmetic of the reference.
        exponents = np.arange(0, head_dim, 2, dtype="float32") / np.float32(head_dim)
        frequencies = np.float32(1) / np.float32(max_wavelength) ** exponents
        self.frequencies = frequencies / np.float32(slowdown)

    def call(self, padding_mask):
        columns = ops.arange(ops.shape(padding_mask)[1], dtype="int32")
        angles = ops.expand_dims(ops.cast(columns, "float32"), 1) * self.frequencies  # (S, H / 2)
        angles = ops.concatenate([angles, angles], axis=1)
        return ops.cos(angles), ops.sin(angles)

    def compute_output_spec(self, padding_mask):
        shape = (padding_mask.shape[1], self.head_dim)
        return keras.KerasTensor(shape, "float32"), keras.KerasTensor(shape, "float32")


def rotate(x, cosines, sines):
    """Return queries or keys (B, N, S, H) rotated by the angles of their positions."""
    first, second = ops.split(ops.cast(x, cosines.dtype), 2, axis=-1)
    halves = ops.concatenate([first, second], axis=-1)
    turned = ops.concatenate([-second, first], axis=-1)
    return ops.cast(halves * cosines + turned * sines, x.dtype)


def check_halves(num_heads, hidden_dim, head_dim=None):
    """Raise a ValueError if heads have no halves that can be rotated with each other."""
    if head_dim is None and hidden_dim % (2 * num_heads):
        raise ValueError(
            f"num_heads={num_heads} does not divide hidden_dim={hidden_dim} into even parts, "
            "whose halves are rotated: choose a num_heads that does."
        )
    if head_dim is not None and head_dim % 2:
        raise ValueError(
            f"head_dim={head_dim} is odd, and the halves of a head are rotated: pass an even one."
        )


class RotarySelfAttention(SelfAttention):
    """Self-attention with rotary positions; `context.positions` are those of `RotaryPositions`."""

    def project(self, x, context):
        query, key, value = super().project(x, context)
        return rotate(query, *context.positions), rotate(key, *context.positions), value
