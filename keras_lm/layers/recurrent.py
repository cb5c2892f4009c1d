"""Recurrent layers with explicit state. Shapes: B batch, S sequence, I input width, U units."""

import keras
from keras import ops

from keras_lm.layers.backend import scan


@keras.saving.register_keras_serializable("keras_lm")
class LSTM(keras.layers.Layer):
    """An LSTM that takes and returns its state.

    A padded step leaves the state unchanged and outputs zero, so that rows may be padded on either
    side, and `reverse` starts at each row's last real token. The gates are, in this order, input,
    forget, cell and output, as in PyTorch and Keras.

    Args:
        units: int. U.
        reverse: bool. Read from the last token to the first. Outputs keep the order of the tokens.
        weight_drop: float in [0, 1). Fraction of the recurrent kernel's weights set to zero in
            training, the same ones in all steps and rows of a batch.
        use_bias: bool.

    Call: `lstm(x, padding_mask=None, state=None)` with `x` (B, S, I), the mask (B, S) int32, 1 =
    real, and the state as returned: `{"hidden": (B, U), "cell": (B, U)}`, zero by default. Returns
    the outputs (B, S, U) and the state after the last step.

    Raises:
        ValueError: if `weight_drop` is not in [0, 1).

    Example:

        lstm = LSTM(5)
        first, state = lstm(np.ones((2, 7, 3), "float32"))
        rest, state = lstm(np.ones((2, 4, 3), "float32"), state=state)  # continues from there

    Source: the equations of `torch.nn.LSTM`; weight drop: "Regularizing and Optimizing LSTM
    Language Models", https://arxiv.org/abs/1708.02182, section 2.
    """

    def __init__(self, units, reverse=False, weight_drop=0.0, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= weight_drop < 1:
            raise ValueError(f"weight_drop={weight_drop} is not in [0, 1): pass a fraction.")
        self.units = units
        self.reverse = reverse
        self.weight_drop = weight_drop
        self.use_bias = use_bias
        self.seed_generator = keras.random.SeedGenerator() if weight_drop else None

    def build(self, input_shape):
        gates = 4 * self.units
        self.kernel = self.add_weight(name="kernel", shape=(input_shape[-1], gates))
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel", shape=(self.units, gates), initializer="orthogonal"
        )
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias", shape=(gates,), initializer=_remembering_bias(self.units)
            )

    def call(self, x, padding_mask=None, state=None, training=None):
        recurrent_kernel = ops.cast(self.recurrent_kernel, self.compute_dtype)
        if training and self.weight_drop:
            recurrent_kernel = keras.random.dropout(
                recurrent_kernel, self.weight_drop, seed=self.seed_generator
            )

        def step(carry, xs):
            hidden, cell = carry  # (B, U), the cell in float32: it is a sum over all steps
            gates = ops.cast(xs[0] + ops.matmul(hidden, recurrent_kernel), "float32")
            let_in, keep, candidate, let_out = ops.split(gates, 4, axis=-1)
            new_cell = ops.sigmoid(keep) * cell + ops.sigmoid(let_in) * ops.tanh(candidate)
            new_hidden = ops.cast(ops.sigmoid(let_out) * ops.tanh(new_cell), hidden.dtype)
            if padding_mask is None:
                return (new_hidden, new_cell), new_hidden
            is_real = xs[1]  # (B, 1)
            output = ops.where(is_real, new_hidden, ops.zeros_like(new_hidden))
            carry = ops.where(is_real, new_hidden, hidden), ops.where(is_real, new_cell, cell)
            return carry, output

        xs = (self._project(x),)
        if padding_mask is not None:
            xs += (ops.expand_dims(ops.transpose(padding_mask) > 0, -1),)
        carry = self._start(x, state)
        carry, outputs = scan(step, carry, xs, reverse=self.reverse)  # (S, B, U)
        hidden, cell = carry
        state = {"hidden": hidden, "cell": ops.cast(cell, self.compute_dtype)}
        return ops.transpose(outputs, (1, 0, 2)), state

    def _project(self, x):
        """The inputs' part of the gates of all steps, in one product: (S, B, 4U)."""
        x = ops.transpose(x, (1, 0, 2))
        length, rows, _ = ops.shape(x)
        gates = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), self.kernel)
        if self.use_bias:
            gates = ops.add(gates, self.bias)
        return ops.reshape(gates, (length, rows, 4 * self.units))

    def _start(self, x, state):
        if state is None:
            zeros = ops.zeros((ops.shape(x)[0], self.units), self.compute_dtype)
            state = {"hidden": zeros, "cell": zeros}
        return (
            ops.cast(state["hidden"], self.compute_dtype),
            ops.cast(state["cell"], "float32"),
        )

    def compute_output_shape(self, input_shape, *_, **__):
        batch = input_shape[0]
        state = {"hidden": (batch, self.units), "cell": (batch, self.units)}
        return (*input_shape[:-1], self.units), state

    def get_config(self):
        return super().get_config() | {
            "units": self.units,
            "reverse": self.reverse,
            "weight_drop": self.weight_drop,
            "use_bias": self.use_bias,
        }


@keras.saving.register_keras_serializable("keras_lm")
class BidirectionalLSTM(keras.layers.Layer):
    """Two `LSTM`s over the same input, one in each direction; arguments and calls as there.

    Forward features come before backward ones in the outputs (B, S, 2U) and in each part of the
    state (B, 2U).

    Example:

        outputs, state = BidirectionalLSTM(5)(np.ones((2, 7, 3), "float32"))
        outputs.shape  # (2, 7, 10)
    """

    def __init__(self, units, weight_drop=0.0, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.weight_drop = weight_drop
        self.use_bias = use_bias
        self.directions = [
            LSTM(
                units,
                reverse=name == "backward",
                weight_drop=weight_drop,
                use_bias=use_bias,
                dtype=self.dtype_policy,
                name=name,
            )
            for name in ("forward", "backward")
        ]

    def build(self, input_shape):
        for direction in self.directions:
            direction.build(input_shape)

    def call(self, x, padding_mask=None, state=None, training=None):
        states = [None, None]
        if state is not None:
            parts = {name: ops.split(value, 2, axis=-1) for name, value in state.items()}
            states = [{name: part[i] for name, part in parts.items()} for i in range(2)]
        ends = [
            direction(x, padding_mask=padding_mask, state=state, training=training)
            for direction, state in zip(self.directions, states, strict=True)
        ]
        (forward, first), (backward, last) = ends
        state = {name: ops.concatenate([first[name], last[name]], axis=-1) for name in first}
        return ops.concatenate([forward, backward], axis=-1), state

    def compute_output_shape(self, input_shape, *_, **__):
        outputs, state = self.directions[0].compute_output_shape(input_shape)
        return keras.tree.map_shape_structure(
            lambda shape: (*shape[:-1], 2 * shape[-1]), (outputs, state)
        )

    def get_config(self):
        return super().get_config() | {
            "units": self.units,
            "weight_drop": self.weight_drop,
            "use_bias": self.use_bias,
        }


def _remembering_bias(units):
    """Zeros, but ones for the forget gate, so that an untrained cell keeps its values."""

    def initializer(shape, dtype=None):
        return ops.concatenate(
            [ops.zeros(units, dtype), ops.ones(units, dtype), ops.zeros(2 * units, dtype)]
        )

    return initializer
