"""Recurrent layers with explicit state. Shapes: B batch, S sequence, I input width, U units."""

from typing import Any

import keras
from keras import ops

from keras_lm.layers.backend import scan
from keras_lm.layers.basic import float32_or_wider
from keras_lm.utils.argument_types import DType, Shape, Tensor


class Recurrent(keras.layers.Layer):
    """The base class of recurrent layers; a subclass defines a cell by `gates` and `advance`.

    A padded step does not change the state, and outputs zero. So rows may be padded on either side,
    and `reverse` starts at each row's last real token.

    Args:
        units: int. U.
        reverse: bool. Read from the last token to the first. Outputs are in the order of the
            tokens.
        weight_drop: float in [0, 1). Fraction of the recurrent kernel's weights set to zero in
            training, the same ones for all steps and rows of a batch.
        use_bias: bool.

    Call: `layer(x, padding_mask=None, state=None)` with `x` (B, S, I), the mask (B, S) int32, 1 =
    real, and the state as returned, a dict of `parts`, (B, U) each, zero by default. Returns the
    outputs (B, S, U) and the state after the last step.

    Raises:
        ValueError: if `weight_drop` is not in [0, 1).
    """

    gates = 1  # the number of gates, of U units each
    parts: tuple[str, ...] = ("hidden",)  # the names of a state's parts, the output first
    bias_initializer = "zeros"

    def __init__(
        self,
        units: int,
        reverse: bool = False,
        weight_drop: float = 0.0,
        use_bias: bool = True,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if not 0 <= weight_drop < 1:
            raise ValueError(f"weight_drop={weight_drop}: pass a number from 0 to below 1.")
        self.units = units
        self.reverse = reverse
        self.weight_drop = weight_drop
        self.use_bias = use_bias
        self.seed_generator: keras.random.SeedGenerator | None = (
            keras.random.SeedGenerator() if weight_drop else None
        )

    def build(self, input_shape: Shape) -> None:
        gates = self.gates * self.units
        self.kernel: keras.Variable = self.add_weight(name="kernel", shape=(input_shape[-1], gates))
        self.recurrent_kernel: keras.Variable = self.add_weight(
            name="recurrent_kernel", shape=(self.units, gates), initializer="orthogonal"
        )
        if self.use_bias:
            self.bias: keras.Variable = self.add_weight(
                name="bias", shape=(gates,), initializer=self.bias_initializer
            )

    def advance(self, gates: Tensor, state: Any, recurrent_kernel: Tensor) -> tuple[Tensor, ...]:
        """Return the state after a step, a tuple of (B, U) like `state`.

        Args:
            gates: (B, G · U), from the step's input; see `input_gates`.
            state: tuple of (B, U), in the order of `parts`: the first in the layer's dtype, others
                in float32 or wider, because they are sums over all steps.
            recurrent_kernel: (U, G · U) in the layer's dtype.
        """
        raise NotImplementedError(f"{type(self).__name__} must define advance.")

    def call(
        self,
        x: Tensor,
        padding_mask: Tensor | None = None,
        state: dict[str, Tensor] | None = None,
        training: bool | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        recurrent_kernel = ops.cast(self.recurrent_kernel, self.compute_dtype)
        if training and self.weight_drop:
            recurrent_kernel = keras.random.dropout(
                recurrent_kernel, self.weight_drop, seed=self.seed_generator
            )

        def step(carry, xs):
            new = self.advance(xs[0], carry, recurrent_kernel)
            if padding_mask is None:
                return new, new[0]
            is_real = xs[1]  # (B, 1)
            output = ops.where(is_real, new[0], ops.zeros_like(new[0]))
            carry = tuple(ops.where(is_real, *both) for both in zip(new, carry, strict=True))
            return carry, output

        xs = (self.input_gates(ops.transpose(x, (1, 0, 2))),)
        if padding_mask is not None:
            xs += (ops.expand_dims(ops.transpose(padding_mask) > 0, -1),)
        carry, outputs = scan(step, self._start(x, state), xs, reverse=self.reverse)  # (S, B, U)
        state = {
            name: ops.cast(part, self.compute_dtype)
            for name, part in zip(self.parts, carry, strict=True)
        }
        return ops.transpose(outputs, (1, 0, 2)), state

    def input_gates(self, x: Tensor) -> Tensor:
        """Return the input's part of the gates, for any number of steps in one product.

        Args:
            x: (…, I). Returns (…, G · U).
        """
        leading = ops.shape(x)[:-1]
        rows = ops.reshape(x, (-1, x.shape[-1]))
        gates = ops.matmul(rows, ops.cast(self.kernel, rows.dtype))
        if self.use_bias:
            gates = ops.add(gates, ops.cast(self.bias, gates.dtype))
        return ops.reshape(gates, (*leading, self.gates * self.units))

    def _start(self, x, state):
        if state is None:
            zeros = ops.zeros((ops.shape(x)[0], self.units), self.compute_dtype)
            state = dict.fromkeys(self.parts, zeros)
        first, *others = self.parts
        return (
            ops.cast(state[first], self.compute_dtype),
            *(ops.cast(state[name], float32_or_wider(self.dtype_policy)) for name in others),
        )

    def compute_output_shape(
        self, input_shape: Shape, *_: Any, **__: Any
    ) -> tuple[Shape, dict[str, Shape]]:
        state = dict.fromkeys(self.parts, (input_shape[0], self.units))
        return (*input_shape[:-1], self.units), state

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "units": self.units,
            "reverse": self.reverse,
            "weight_drop": self.weight_drop,
            "use_bias": self.use_bias,
        }


@keras.saving.register_keras_serializable("keras_lm")
class LSTM(Recurrent):
    """An LSTM that takes and returns its state, `{"hidden": (B, U), "cell": (B, U)}`.

    The order of the gates is input, forget, cell, output, as in PyTorch and Keras. Arguments and
    calls are those of `keras_lm.layers.recurrent.Recurrent`: `units`, `reverse` (read from the last
    token to the first), `weight_drop` (of the recurrent kernel, in training) and `use_bias`.

    Example:

        lstm = LSTM(5)
        first, state = lstm(np.ones((2, 7, 3), "float32"))
        rest, state = lstm(np.ones((2, 4, 3), "float32"), state=state)  # continues from there

    Source: the equations of `torch.nn.LSTM`; weight drop: "Regularizing and Optimizing LSTM
    Language Models", https://arxiv.org/abs/1708.02182, section 2.
    """

    gates = 4
    parts = ("hidden", "cell")

    def bias_initializer(self, shape: Shape, dtype: DType = None) -> Tensor:
        """Zeros, but ones for the forget gate, so that an untrained cell keeps its values."""
        zeros, ones = ops.zeros(self.units, dtype), ops.ones(self.units, dtype)
        return ops.concatenate([zeros, ones, zeros, zeros])

    def advance(self, gates: Tensor, state: Any, recurrent_kernel: Tensor) -> tuple[Tensor, ...]:
        hidden, cell = state
        gates = gates + ops.matmul(hidden, recurrent_kernel)
        gates = ops.cast(gates, float32_or_wider(self.dtype_policy))
        let_in, keep, candidate, let_out = ops.split(gates, 4, axis=-1)
        cell = ops.sigmoid(keep) * cell + ops.sigmoid(let_in) * ops.tanh(candidate)
        return ops.cast(ops.sigmoid(let_out) * ops.tanh(cell), hidden.dtype), cell


@keras.saving.register_keras_serializable("keras_lm")
class GRU(Recurrent):
    """A gated recurrent unit that takes and returns its state, `{"hidden": (B, U)}`.

    The order of the gates is update, reset, candidate, as in Keras with `reset_after=False`: the
    update gate is the share of the old state that is kept. (In Bahdanau et al., it is the share
    that is replaced.) Arguments and calls are those of `keras_lm.layers.recurrent.Recurrent`.

    Example:

        outputs, state = GRU(5)(np.ones((2, 7, 3), "float32"))

    Source: Cho et al. 2014, https://arxiv.org/abs/1406.1078, section 2.3.
    """

    gates = 3

    def advance(self, gates, state, recurrent_kernel):
        (hidden,) = state
        units = 2 * self.units
        both = gates[:, :units] + ops.matmul(hidden, recurrent_kernel[:, :units])
        wide = float32_or_wider(self.dtype_policy)
        update, reset = ops.split(ops.sigmoid(ops.cast(both, wide)), 2, axis=-1)
        old = ops.cast(hidden, wide)
        read = ops.cast(reset * old, hidden.dtype)
        candidate = gates[:, units:] + ops.matmul(read, recurrent_kernel[:, units:])
        new = update * old + (1.0 - update) * ops.tanh(ops.cast(candidate, wide))
        return (ops.cast(new, hidden.dtype),)


@keras.saving.register_keras_serializable("keras_lm")
class BidirectionalLSTM(keras.layers.Layer):
    """Two `LSTM`s over the same input, one in each direction; arguments and calls are the same.

    Forward features come before backward ones in the outputs (B, S, 2U) and in each part of the
    state (B, 2U).

    Example:

        outputs, state = BidirectionalLSTM(5)(np.ones((2, 7, 3), "float32"))
        outputs.shape  # (2, 7, 10)
    """

    direction_class = LSTM

    def __init__(self, units, weight_drop=0.0, use_bias=True, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.weight_drop = weight_drop
        self.use_bias = use_bias
        self.directions = [
            self.direction_class(
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


@keras.saving.register_keras_serializable("keras_lm")
class BidirectionalGRU(BidirectionalLSTM):
    """Two `GRU`s over the same input, one in each direction, like `BidirectionalLSTM`.

    Example:

        outputs, state = BidirectionalGRU(5)(np.ones((2, 7, 3), "float32"))
        outputs.shape  # (2, 7, 10)
    """

    direction_class = GRU
