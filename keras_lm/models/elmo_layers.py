"""The layers of ELMo: sentences as two directions read them, and the recurrent layer of both.

Shapes: B batch, S words, C characters of a word, W all words of a batch and two, D width of one
direction, U units, T steps: the words of a sentence and its two boundaries.
"""

import keras
import numpy as np
from keras import ops

from keras_lm.layers.backend import Dropout, scan
from keras_lm.presets.argument_ranges import Axis, Count, Range, Real, Whole
from keras_lm.tokenizers.characters import (
    BEGIN_SENTENCE,
    BEGIN_WORD,
    END_SENTENCE,
    END_WORD,
    FILL,
    PAD,
)

CHARACTERS = 262  # ids of a character: see `CharacterTokenizer`


class Filters(Range):
    """What `filters` may be: a list of (width, number)."""

    is_axis = True

    def problem(self, value):
        pairs = value if isinstance(value, (list, tuple)) else [()]
        are_pairs = all(isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in pairs)
        if are_pairs and not any(Whole().problem(number) for pair in pairs for number in pair):
            return None
        return "a list of pairs of numbers of 1 or more"


# A word of more characters takes memory for each word, and no tensor shows how many there are.
RANGES = {
    "num_characters": Axis(),
    "num_highways": Count(0),
    "characters_per_word": Whole(1, 1000),
    "cell_dim": Axis(),
    "cell_clip": Real(),
    "projection_clip": Real(),
    "filters": Filters(),
}


@keras.saving.register_keras_serializable("keras_lm")
class BoundaryWords(keras.layers.Layer):
    """Stack all words (B, S, C), after the two boundaries of a sentence: (2 + B·S, C)."""

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
    """Compute which word each direction reads at each step, and where a word's outputs are.

    Words move together, so that padding follows them wherever it was; the forward direction then
    reads from the start of the sentence to its end, the other one from its end. Returns a dict:

    - `steps` (2, T, B) int32: a row of the output of `BoundaryWords`;
    - `is_real` (T, B, 1) bool: whether there is still something to read;
    - `places` (2, B, S) int32: the row of each word in the outputs (T·B, D), -1 for padding;
    - `places_with_boundaries` (2, B, T): the same for the sentence's start, words and end.
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
    """Concatenate the `words` (W, D) that both directions read at `steps` (2, T, B): (T, B, 2D)."""

    def call(self, words, steps):
        both = [ops.take(words, step, axis=0) for step in ops.unstack(steps, 2)]
        return ops.concatenate(both, axis=-1)

    def compute_output_spec(self, words, steps):
        return keras.KerasTensor((*steps.shape[1:], 2 * words.shape[-1]), self.compute_dtype)


@keras.saving.register_keras_serializable("keras_lm")
class SideBySide(keras.layers.Layer):
    """Take both directions' `outputs` (T, B, 2D) at `places`: (B, S, 2D), zero where one is -1."""

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


@keras.saving.register_keras_serializable("keras_lm")
class ProjectedLSTM(keras.layers.Layer):
    """The weights and the step of an LSTM whose output is projected; D is U without a projection.

    The gates are, in this order, input, candidate, forget and output, as in TensorFlow 1's
    `LSTMCell`, which also adds 1 to the bias of the forget gate. The values of the cell, and of the
    projection, are clipped to ± their clip; None or 0 for no clipping. Source: Sak et al. 2014,
    https://arxiv.org/abs/1402.1128, section 2.
    """

    def __init__(self, units, projection_dim=None, cell_clip=None, projection_clip=None, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.projection_dim = projection_dim
        self.cell_clip = cell_clip
        self.projection_clip = projection_clip
        self.output_dim = units if projection_dim is None else projection_dim

    def build(self, input_shape):
        gates = 4 * self.units
        self.kernel = self.add_weight(name="kernel", shape=(input_shape[-1], gates))
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel", shape=(self.output_dim, gates)
        )
        self.bias = self.add_weight(name="bias", shape=(gates,), initializer="zeros")
        self.projection_kernel = None
        if self.projection_dim is not None:
            self.projection_kernel = self.add_weight(
                name="projection_kernel", shape=(self.units, self.projection_dim)
            )

    def call(self, x):
        """The inputs' part of the gates, bias included: (…, D) → (…, 4U)."""
        shape = ops.shape(x)
        forget = ops.repeat(ops.array([0.0, 0.0, 1.0, 0.0], self.compute_dtype), self.units)
        gates = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), self.kernel)
        return ops.reshape(ops.add(gates, self.bias + forget), (*shape[:-1], 4 * self.units))

    def step(self, gates, hidden, cell):
        """One step; `gates` are what calling returned, `cell` is float32: a sum over all steps."""
        gates = gates + ops.matmul(hidden, ops.cast(self.recurrent_kernel, hidden.dtype))
        let_in, candidate, keep, let_out = ops.split(ops.cast(gates, "float32"), 4, axis=-1)
        cell = ops.sigmoid(keep) * cell + ops.sigmoid(let_in) * ops.tanh(candidate)
        if self.cell_clip:
            cell = ops.clip(cell, -self.cell_clip, self.cell_clip)
        new = ops.cast(ops.sigmoid(let_out) * ops.tanh(cell), hidden.dtype)
        if self.projection_kernel is not None:
            new = ops.matmul(new, ops.cast(self.projection_kernel, hidden.dtype))
            if self.projection_clip:
                new = ops.clip(new, -self.projection_clip, self.projection_clip)
        return new, cell

    def get_config(self):
        return super().get_config() | {
            "units": self.units,
            "projection_dim": self.projection_dim,
            "cell_clip": self.cell_clip,
            "projection_clip": self.projection_clip,
        }


@keras.saving.register_keras_serializable("keras_lm")
class ProjectedLSTMs(keras.layers.Layer):
    """`ProjectedLSTM`s side by side in one loop, N directions, each over its own sequence.

    The order of the steps says which of them reads from the left; in all of them, padding follows
    the real steps. `residual` adds the input to the output, but not to the state.

    Call: `lstm(x, is_real, state=None)` with `x` (T, B, N·D), `is_real` (T, B, 1) bool, and the
    state `{"hidden": (B, N·D), "cell": (B, N·U)}`, zero by default, all with the directions
    concatenated. Returns the outputs (T, B, N·D), undefined in padding, and the state after each
    row's last real step.
    """

    def __init__(
        self,
        units,
        projection_dim=None,
        cell_clip=None,
        projection_clip=None,
        residual=False,
        dropout=0.0,
        directions=("forward", "backward"),
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.residual = residual
        self.arguments = (units, projection_dim, cell_clip, projection_clip)
        self.directions = [
            ProjectedLSTM(*self.arguments, dtype=self.dtype_policy, name=name)
            for name in directions
        ]
        self.number = len(directions)
        self.output_dim = self.directions[0].output_dim
        self.dropout_rate = dropout
        self.dropout = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, x_shape, *_):
        for direction in self.directions:
            direction.build((*x_shape[:-1], x_shape[-1] // self.number))

    def call(self, x, is_real, state=None, training=None):
        inputs = ops.split(self.dropout(x, training=training), self.number, axis=-1)
        gates = [lstm(part) for lstm, part in zip(self.directions, inputs, strict=True)]

        def step(carry, xs):
            *gates, is_real = xs
            parts = [ops.split(value, self.number, axis=-1) for value in carry]
            after = [
                lstm.step(*values)
                for lstm, *values in zip(self.directions, gates, *parts, strict=True)
            ]
            after = [ops.concatenate(pair, axis=-1) for pair in zip(*after, strict=True)]
            carry = tuple(
                ops.where(is_real, new, old) for new, old in zip(after, carry, strict=True)
            )
            return carry, carry[0]

        carry, outputs = scan(step, self._start(x, state), (*gates, is_real))
        hidden, cell = carry
        state = {"hidden": hidden, "cell": ops.cast(cell, self.compute_dtype)}
        return outputs + x if self.residual else outputs, state

    def _start(self, x, state):
        """The hidden state (B, N·D), and the cell (B, N·U) in float32."""
        if state is None:
            rows = ops.shape(x)[1]
            hidden, cell = self._widths()
            return ops.zeros((rows, hidden), self.compute_dtype), ops.zeros((rows, cell), "float32")
        return ops.cast(state["hidden"], self.compute_dtype), ops.cast(state["cell"], "float32")

    def compute_output_spec(self, x, is_real, state=None, training=None):
        hidden, cell = self._widths()
        return keras.KerasTensor((*x.shape[:-1], hidden), self.compute_dtype), {
            "hidden": keras.KerasTensor((x.shape[1], hidden), self.compute_dtype),
            "cell": keras.KerasTensor((x.shape[1], cell), self.compute_dtype),
        }

    def _widths(self):
        return self.number * self.output_dim, self.number * self.directions[0].units

    def get_config(self):
        names = ("units", "projection_dim", "cell_clip", "projection_clip")
        return super().get_config() | {
            **dict(zip(names, self.arguments, strict=True)),
            "residual": self.residual,
            "dropout": self.dropout_rate,
            "directions": [direction.name for direction in self.directions],
        }
