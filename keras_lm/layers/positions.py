"""Positions other than BERT's: sines, those that count real tokens, and a bias by distance.

Shapes: B batch, S sequence, T what is attended to, N heads.
"""

import math
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.layers.basic import PositionEmbedding, truncated_normal
from keras_lm.utils.argument_types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_lm")
class CountedPositionEmbedding(keras.layers.Layer):
    """Learned positions that count real tokens; padding has a position of its own, the row before.

    Args:
        max_sequence_length, hidden_dim: int. The number of positions, and the width D of a vector.
        first_position: int. The table's row for the first real token.

    Call: `layer(padding_mask)` with (B, S) int32, 1 = real; returns (B, S, D).

    Example:

        positions = CountedPositionEmbedding(max_sequence_length=512, hidden_dim=64)
        positions(np.ones((2, 7), "int32")).shape  # (2, 7, 64)

    Source: fairseq, `learned_positional_embedding.py`.
    """

    def __init__(
        self, max_sequence_length: int, hidden_dim: int, first_position: int = 2, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.max_sequence_length = max_sequence_length
        self.hidden_dim = hidden_dim
        self.first_position = first_position

    def build(self, input_shape: Shape) -> None:
        self.embeddings: keras.Variable = self.add_weight(
            name="embeddings",
            shape=(self.first_position + self.max_sequence_length, self.hidden_dim),
            initializer=truncated_normal(),
        )

    def call(self, padding_mask: Tensor) -> Tensor:
        count = ops.cumsum(padding_mask, axis=1) * padding_mask  # (B, S), 0 at padding
        positions = count + (self.first_position - 1)
        return ops.take(ops.cast(self.embeddings, self.compute_dtype), positions, axis=0)

    def compute_output_spec(self, padding_mask: Tensor) -> Any:
        return keras.KerasTensor((*padding_mask.shape, self.hidden_dim), self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "max_sequence_length": self.max_sequence_length,
            "hidden_dim": self.hidden_dim,
            "first_position": self.first_position,
        }


@keras.saving.register_keras_serializable("keras_lm")
class RelativePositionBias(keras.layers.Layer):
    """A learned bias of attention's scores by how far the two tokens are apart.

    Short distances have a bucket each, longer ones share buckets whose width grows with the
    logarithm of the distance; all beyond `max_distance` are one.

    Args:
        num_buckets, num_heads, max_distance: int.
        bidirectional: bool. Whether tokens ahead have buckets of their own, half of all.
        stddev: float, of the initial values.

    Call: `layer(padding_mask, slots=None)` as `keras_lm.layers.CausalBias`, for (B, T) int32, and
    `slots` (B, S), by default one query at each of the T; returns (B or 1, N, S, T) float32.

    Example:

        positions = RelativePositionBias(num_buckets=32, num_heads=4)
        positions(np.ones((2, 7), "int32")).shape  # (1, 4, 7, 7)

    Source: T5, https://arxiv.org/abs/1910.10683, section 2.1, and mesh_tensorflow's
    `transformer_layers.py`.
    """

    def __init__(
        self,
        num_buckets: int | Sequence[int],
        num_heads: int,
        max_distance: int = 128,
        bidirectional: bool = True,
        stddev: float = 1.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_buckets = num_buckets
        self.num_heads = num_heads
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.stddev = stddev

    def build(self, input_shape: Shape) -> None:
        self.embeddings: keras.Variable = self.add_weight(
            name="embeddings",
            shape=(self.num_buckets, self.num_heads),
            initializer=keras.initializers.RandomNormal(stddev=self.stddev),
        )
        # The bucket of each distance from 0 to the largest, in the arithmetic of the reference.
        number = self.num_buckets // 2 if self.bidirectional else self.num_buckets
        exact = number // 2
        distance = np.arange(self.max_distance + 1, dtype="float32")
        log = np.log(np.maximum(distance, 1) / np.float32(exact))
        shared = log / np.float32(math.log(self.max_distance / exact)) * np.float32(number - exact)
        shared = np.minimum(exact + shared.astype("int32"), number - 1)
        self.buckets: np.ndarray = np.where(distance < exact, distance, shared).astype("int32")

    def call(self, padding_mask: Tensor, slots: Tensor | None = None) -> Tensor:
        columns = ops.arange(ops.shape(padding_mask)[1], dtype="int32")
        queries = ops.expand_dims(columns, 0) if slots is None else slots
        ahead = columns - ops.expand_dims(queries, 2)  # (B, S, T)
        distance = ops.abs(ahead) if self.bidirectional else ops.maximum(-ahead, 0)
        bucket = ops.take(self.buckets, ops.minimum(distance, self.max_distance), axis=0)
        if self.bidirectional:
            bucket = bucket + self.num_buckets // 2 * ops.cast(ops.greater(ahead, 0), "int32")
        bias = ops.take(ops.cast(self.embeddings, "float32"), bucket, axis=0)  # (B, S, T, N)
        return ops.transpose(bias, (0, 3, 1, 2))

    def compute_output_spec(self, padding_mask: Tensor, slots: Tensor | None = None) -> Any:
        rows, length = (1, padding_mask.shape[1]) if slots is None else slots.shape
        return keras.KerasTensor((rows, self.num_heads, length, padding_mask.shape[1]), "float32")

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "num_buckets": self.num_buckets,
            "num_heads": self.num_heads,
            "max_distance": self.max_distance,
            "bidirectional": self.bidirectional,
            "stddev": self.stddev,
        }


@keras.saving.register_keras_serializable("keras_lm")
class SinusoidalPositionEmbedding(PositionEmbedding):
    """Fixed positions: sines and cosines of geometric frequencies.

    Args:
        max_sequence_length, hidden_dim: see `PositionEmbedding`, which has the same calls.
        interleaved: bool. Whether a sine and its cosine are next to each other, as in the paper;
            False puts all sines first, as in Hugging Face's Marian. (tensor2tensor has other
            frequencies.)

    Source: https://arxiv.org/abs/1706.03762, section 3.5.
    """

    def __init__(
        self, max_sequence_length: int, hidden_dim: int, interleaved: bool = True, **kwargs: Any
    ):
        super().__init__(max_sequence_length, hidden_dim, **kwargs)
        self.interleaved = interleaved

    def build(self, input_shape: Shape) -> None:
        number = -(-self.hidden_dim // 2)
        frequency = 10000.0 ** (-2 * np.arange(number) / self.hidden_dim)
        angles = np.arange(self.max_sequence_length)[:, None] * frequency
        table = np.stack([np.sin(angles), np.cos(angles)], axis=2 if self.interleaved else 1)
        table = table.reshape(self.max_sequence_length, 2 * number)[:, : self.hidden_dim]
        self.embeddings: np.ndarray = table.astype("float32")

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"interleaved": self.interleaved}
