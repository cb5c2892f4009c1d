"""Sentences as two directions read them: with boundaries, without padding, step by step.

Shapes: B batch, S words, C characters of a word, W all words of a batch and two, D width of one
direction, T steps: the words of a sentence and its two boundaries.
"""

import keras
import numpy as np
from keras import ops

from keras_lm.tokenizers.characters import (
    BEGIN_SENTENCE,
    BEGIN_WORD,
    END_SENTENCE,
    END_WORD,
    FILL,
    PAD,
)


@keras.saving.register_keras_serializable("keras_lm")
class BoundaryWords(keras.layers.Layer):
    """Put all words of a batch under each other, behind the begin and the end of a sentence.

    Args:
        characters_per_word: int. C.
        **kwargs: `name` of `keras.layers.Layer`.

    Call: `layer(character_ids)` with (B, S, C) int32 returns (2 + B·S, C).
    """

    def __init__(self, characters_per_word, **kwargs):
        super().__init__(**kwargs)
        self.characters_per_word = characters_per_word
        self.boundaries = np.full((2, characters_per_word), FILL, "int32")
        for row, character in enumerate((BEGIN_SENTENCE, END_SENTENCE)):
            self.boundaries[row, :3] = BEGIN_WORD, character, END_WORD

    def call(self, character_ids):
        words = ops.reshape(character_ids, (-1, self.characters_per_word))
        return ops.concatenate([ops.convert_to_tensor(self.boundaries), words], axis=0)

    def compute_output_spec(self, character_ids):
        return keras.KerasTensor((None, self.characters_per_word), "int32")

    def get_config(self):
        return super().get_config() | {"characters_per_word": self.characters_per_word}


@keras.saving.register_keras_serializable("keras_lm")
class ReadingOrder(keras.layers.Layer):
    """Say which word each direction reads at each step, and where to find a word's outputs.

    Words move together, so that padding stands behind them wherever it was; then the forward
    direction reads from the begin of the sentence to its end, the other one from its end.

    Call: `layer(character_ids, padding_mask)` with (B, S, C) and (B, S) returns a dict, of int32:

    - `steps` (2, T, B): a row of what `BoundaryWords` gives;
    - `is_real` (T, B, 1) bool: whether there is still something to read;
    - `places` (2, B, S): of each word the row in outputs (T·B, D), -1 for padding;
    - `places_with_boundaries` (2, B, T): the same for the sentence's begin, words and end.
    """

    def call(self, character_ids, padding_mask):
        is_word = (padding_mask > 0) & ops.any(character_ids > PAD, axis=-1)  # (B, S)
        words = ops.cast(is_word, "int32")
        rows, columns = ops.shape(is_word)
        count = ops.sum(words, axis=1, keepdims=True)  # (B, 1)
        rank = ops.cumsum(words, axis=1) - 1  # of each word in its sentence
        row = ops.expand_dims(ops.arange(rows, dtype="int32"), 1)  # (B, 1)
        number = row * columns + ops.expand_dims(ops.arange(columns, dtype="int32"), 0)

        # Which word has a rank; what is padding goes into one column more.
        target = row * (columns + 1) + ops.where(is_word, rank, columns)
        ranked = ops.scatter(
            ops.reshape(target, (-1, 1)), ops.reshape(number + 2, (-1,)), (rows * (columns + 1),)
        )
        ranked = ops.reshape(ranked, (rows, columns + 1))
        slot = ops.expand_dims(ops.arange(columns + 2, dtype="int32"), 0)  # (1, T)
        is_real = slot <= count + 1  # (B, T)
        forward = ops.concatenate([ops.zeros((rows, 1), "int32"), ranked], axis=1)
        forward = ops.where(slot <= count, forward, 1)
        mirrored = ops.where(is_real, count + 1 - slot, slot)
        backward = ops.take_along_axis(forward, mirrored, axis=1)

        def places(step, is_there):
            step = ops.stack([step, count + 1 - step])  # (2, B, …)
            return ops.where(is_there, step * rows + row, -1)

        return {
            "steps": ops.stack([ops.transpose(forward), ops.transpose(backward)]),
            "is_real": ops.expand_dims(ops.transpose(is_real), -1),
            "places": places(rank + 1, is_word),
            "places_with_boundaries": places(ops.broadcast_to(slot, (rows, columns + 2)), is_real),
        }

    def compute_output_spec(self, character_ids, padding_mask):
        rows, columns = padding_mask.shape
        steps = None if columns is None else columns + 2
        return {
            "steps": keras.KerasTensor((2, steps, rows), "int32"),
            "is_real": keras.KerasTensor((steps, rows, 1), "bool"),
            "places": keras.KerasTensor((2, rows, columns), "int32"),
            "places_with_boundaries": keras.KerasTensor((2, rows, steps), "int32"),
        }


@keras.saving.register_keras_serializable("keras_lm")
class TakeRows(keras.layers.Layer):
    """Put the words that both directions read side by side.

    Call: `layer(words, steps)` with (W, D) and int32 (2, T, B) returns (T, B, 2D).
    """

    def call(self, words, steps):
        both = [ops.take(words, step, axis=0) for step in ops.unstack(steps, 2)]
        return ops.concatenate(both, axis=-1)

    def compute_output_spec(self, words, steps):
        return keras.KerasTensor((*steps.shape[1:], 2 * words.shape[-1]), self.compute_dtype)


@keras.saving.register_keras_serializable("keras_lm")
class SideBySide(keras.layers.Layer):
    """Put the outputs of both directions for a word side by side.

    Call: `layer(outputs, places)` with (T, B, 2D) and (2, B, S), see `ReadingOrder`; returns
    (B, S, 2D), zero where the place is -1.
    """

    def call(self, outputs, places):
        rows = ops.reshape(outputs, (-1, outputs.shape[-1]))
        both = [
            ops.take(half, ops.maximum(place, 0), axis=0)
            for half, place in zip(ops.split(rows, 2, axis=-1), ops.unstack(places, 2), strict=True)
        ]
        x = ops.concatenate(both, axis=-1)  # (B, S, 2D)
        return ops.where(ops.expand_dims(places[0] >= 0, -1), x, ops.zeros_like(x))

    def compute_output_spec(self, outputs, places):
        return keras.KerasTensor((*places.shape[1:], outputs.shape[-1]), self.compute_dtype)
