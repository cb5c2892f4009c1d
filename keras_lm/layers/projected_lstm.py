"""The recurrent layer of ELMo: an LSTM with projection and clips, in both directions at once.

Shapes: B batch, T steps, D width of the input and of the projection, U units, 2 directions.
"""

import keras
from keras import ops

from keras_lm.layers.recurrent import scan


@keras.saving.register_keras_serializable("keras_lm")
class ProjectedLSTM(keras.layers.Layer):
    """The weights and the step of a long short-term memory whose output is projected.

    The gates are, in this order, input, candidate, forget and output, as in TensorFlow 1's
    `LSTMCell`, and as there the forget gate has 1 added to its bias.

    Args:
        units: int. U, the width of the cell.
        projection_dim: int. D, or None for no projection; D is U then.
        cell_clip: float. Bound of the cell's numbers, None or 0 for none.
        projection_clip: float. Bound of the projection's numbers, None or 0 for none.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Source: Sak et al. 2014, "Long Short-Term Memory Recurrent Neural Network Architectures for
    Large Scale Acoustic Modeling", https://arxiv.org/abs/1402.1128, section 2.
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
        """One step.

        Args:
            gates: (B, 4U), what calling gave for the step's input.
            hidden: (B, D), the output of the step before.
            cell: (B, U), float32: it is a sum over all steps.

        Returns:
            `(hidden, cell)` behind the step.
        """
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
class TwoWayProjectedLSTM(keras.layers.Layer):
    """Two `ProjectedLSTM`s side by side in one loop, each over a sequence of its own.

    Which of the two reads from the left is the caller's business, by the order of the steps; what
    is padding stands behind what is real, in both.

    Args:
        units, projection_dim, cell_clip, projection_clip: see `ProjectedLSTM`.
        residual: bool. Add the input to the output; the state is without it.
        dropout: float. Share of the input dropped in training.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call: `lstm(x, is_real, state=None)` with `x` (T, B, 2D), `is_real` (T, B, 1) bool, and the
    state `{"hidden": (B, 2D), "cell": (B, 2U)}`, all with the two directions side by side; left
    out, the state is zero. Returns the outputs (T, B, 2D), anything in padding, and the state
    behind each row's last real step.
    """

    def __init__(
        self,
        units,
        projection_dim=None,
        cell_clip=None,
        projection_clip=None,
        residual=False,
        dropout=0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.residual = residual
        self.arguments = (units, projection_dim, cell_clip, projection_clip)
        self.directions = [
            ProjectedLSTM(*self.arguments, dtype=self.dtype_policy, name=name)
            for name in ("forward", "backward")
        ]
        self.output_dim = self.directions[0].output_dim
        self.dropout_rate = dropout
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, x_shape, *_):
        for direction in self.directions:
            direction.build((*x_shape[:-1], x_shape[-1] // 2))

    def call(self, x, is_real, state=None, training=None):
        inputs = ops.split(self.dropout(x, training=training), 2, axis=-1)
        gates = [lstm(each) for lstm, each in zip(self.directions, inputs, strict=True)]

        def step(carry, xs):
            *gates, is_real = xs
            parts = [ops.split(value, 2, axis=-1) for value in carry]  # a half each
            after = [
                lstm.step(*each) for lstm, *each in zip(self.directions, gates, *parts, strict=True)
            ]
            after = [ops.concatenate(halves, axis=-1) for halves in zip(*after, strict=True)]
            carry = tuple(
                ops.where(is_real, new, old) for new, old in zip(after, carry, strict=True)
            )
            return carry, carry[0]

        carry, outputs = scan(step, self._start(x, state), (*gates, is_real))
        hidden, cell = carry
        state = {"hidden": hidden, "cell": ops.cast(cell, self.compute_dtype)}
        return outputs + x if self.residual else outputs, state

    def _start(self, x, state):
        """The hidden state (B, 2D), and the cell (B, 2U) in float32."""
        if state is None:
            rows = ops.shape(x)[1]
            return (
                ops.zeros((rows, 2 * self.output_dim), self.compute_dtype),
                ops.zeros((rows, 2 * self.directions[0].units), "float32"),
            )
        return ops.cast(state["hidden"], self.compute_dtype), ops.cast(state["cell"], "float32")

    def compute_output_spec(self, x, is_real, state=None, training=None):
        widths = {"hidden": 2 * self.output_dim, "cell": 2 * self.directions[0].units}
        outputs = keras.KerasTensor((*x.shape[:-1], widths["hidden"]), self.compute_dtype)
        return outputs, {
            name: keras.KerasTensor((x.shape[1], width), self.compute_dtype)
            for name, width in widths.items()
        }

    def get_config(self):
        names = ("units", "projection_dim", "cell_clip", "projection_clip")
        return super().get_config() | {
            **dict(zip(names, self.arguments, strict=True)),
            "residual": self.residual,
            "dropout": self.dropout_rate,
        }
