"""Embeddings: learned absolute positions."""

import keras
from keras import ops

from keras_lm.layers.initializers import truncated_normal


@keras.saving.register_keras_serializable("keras_lm")
class PositionEmbedding(keras.layers.Layer):
    """Learned absolute positions, counted from the first real token of each row.

    With padding on the right, or none, the position is the column; with padding on the left,
    positions start after it, so that the side of the padding makes no difference.

    Args:
        max_sequence_length: int. Number of positions, S at most.
        hidden_dim: int. Width D of a vector.

    Call: `layer(padding_mask, start=None)` with (B, S) int32, 1 = real; returns (B, S, D). `start`
    (B,) int32 is the number of earlier tokens, if a sequence continues. Columns beyond the last
    position, which must be padding, get the last one.

    Example:

        positions = PositionEmbedding(max_sequence_length=512, hidden_dim=64)
        positions(np.ones((2, 7), "int32")).shape  # (2, 7, 64)

    Source: BERT, https://arxiv.org/abs/1810.04805, section 3 ("Input/Output Representations").
    """

    def __init__(self, max_sequence_length, hidden_dim, **kwargs):
        super().__init__(**kwargs)
        self.max_sequence_length = max_sequence_length
        self.hidden_dim = hidden_dim

    def build(self, input_shape):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.max_sequence_length, self.hidden_dim),
            initializer=truncated_normal(),
        )

    def call(self, padding_mask, start=None):
        left_padding = ops.argmax(padding_mask, axis=-1, keepdims=True)  # (B, 1)
        columns = ops.arange(ops.shape(padding_mask)[1], dtype="int32")  # (S,)
        positions = ops.maximum(columns - ops.cast(left_padding, "int32"), 0)  # (B, S)
        if start is not None:
            positions = positions + ops.expand_dims(start, 1)
            positions = ops.minimum(positions, self.max_sequence_length - 1)
        return ops.take(ops.cast(self.embeddings, self.compute_dtype), positions, axis=0)

    def compute_output_spec(self, padding_mask, start=None):
        # Not compute_output_shape: Keras 3.12 does not pass it arguments called `…_mask`.
        return keras.KerasTensor((*padding_mask.shape, self.hidden_dim), self.compute_dtype)

    def get_config(self):
        return super().get_config() | {
            "max_sequence_length": self.max_sequence_length,
            "hidden_dim": self.hidden_dim,
        }
