"""State from one call of a model to the next: nested tensors, batch first.

The value of the key `FIXED` in a dict is computed once per row and never changes, such as the keys
of an encoder's tokens: beam search need not gather it.
"""

import keras
from keras import ops

FIXED = "fixed"


def map_state(function, state):
    """Apply a function of tensors (B, …) to all tensors of a state except the fixed ones."""
    if isinstance(state, dict):
        return {
            key: value if key == FIXED else map_state(function, value)
            for key, value in state.items()
        }
    if isinstance(state, (list, tuple)):
        return type(state)(map_state(function, value) for value in state)
    return function(state)


def named_tensors(state, name):
    """Return a state's tensors by flat names with the prefix `name`: `states_0_hidden`, …."""
    if isinstance(state, dict):
        parts = state.items()
    elif isinstance(state, (list, tuple)):
        parts = enumerate(state)
    else:
        return {name: state}
    named = {}
    for key, value in parts:
        named |= named_tensors(value, f"{name}_{key}")
    return named


def nested_tensors(tensors, spec, name):
    """Return a state with the structure `spec` from tensors by flat names; see `named_tensors`."""
    if isinstance(spec, dict):
        return {key: nested_tensors(tensors, part, f"{name}_{key}") for key, part in spec.items()}
    if isinstance(spec, (list, tuple)):
        return [nested_tensors(tensors, part, f"{name}_{i}") for i, part in enumerate(spec)]
    return tensors[name]


def fit_rows(state, rows, spec, name):
    """Return a state with `rows` rows: the first rows of `state`, and zeros for missing rows.

    `spec` is the structure, with `keras.KerasTensor`s, where variable sizes are None. If `state`
    has another structure or shape, it raises a ValueError, with `name` in its message.
    """
    try:
        keras.tree.assert_same_structure(state, spec)
    except ValueError as error:
        reason = str(error)
        if isinstance(spec, dict) and isinstance(state, dict):
            reason = f"{name} has the keys {sorted(state)}, but needs {list(spec)}."
        raise ValueError(
            f"{name} has another structure than the result of an earlier call: {reason}"
        ) from error

    def fitted(part, spec):
        part = ops.convert_to_tensor(part, spec.dtype)
        wrong = len(part.shape) != len(spec.shape) or any(
            size not in (None, needed)
            for size, needed in zip(part.shape[1:], spec.shape[1:], strict=True)
            if needed is not None
        )
        if wrong:
            raise ValueError(
                f"{name} has a tensor of shape {tuple(part.shape)}, but needs "
                f"{('rows', *spec.shape[1:])}: pass the result of an earlier call of this model."
            )
        return with_rows(part, rows)

    return keras.tree.map_structure(fitted, state, spec)


def with_rows(part, rows):
    """Return a tensor (B, …), truncated or padded with zeros to `rows` rows."""
    if isinstance(rows, int) and rows == part.shape[0]:
        return part
    lacking = ops.maximum(rows - ops.shape(part)[0], 0)
    free = ops.zeros((lacking, *ops.shape(part)[1:]), part.dtype)
    return ops.concatenate([part, free])[:rows]
