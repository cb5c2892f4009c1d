"""State from one call of a model to the next: nested tensors, batch first.

The value of the key `FIXED` in a dict is computed once per row and never changes, such as the keys
of an encoder's tokens: beam search need not gather it.
"""

import keras
from keras import ops

FIXED = "fixed"


def map_state(function, state):
    """Apply a function to all tensors of a state except the fixed ones.

    Args:
        function: callable from a tensor (B, …) to another.
        state: nested dicts, lists and tuples of tensors.
    """
    if isinstance(state, dict):
        return {
            key: value if key == FIXED else map_state(function, value)
            for key, value in state.items()
        }
    if isinstance(state, (list, tuple)):
        return type(state)(map_state(function, value) for value in state)
    return function(state)


def named_tensors(state, name):
    """Return the tensors of a state by flat names: `cache_keys`, `states_0_hidden`, ….

    Args:
        state: nested dicts, lists and tuples of tensors.
        name: str, the prefix of the names.
    """
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
    """Return the state for tensors by flat names; the inverse of `named_tensors`.

    Args:
        tensors: dict from flat names to tensors.
        spec: the state's structure.
        name: see `named_tensors`.
    """
    if isinstance(spec, dict):
        return {key: nested_tensors(tensors, part, f"{name}_{key}") for key, part in spec.items()}
    if isinstance(spec, (list, tuple)):
        return [nested_tensors(tensors, part, f"{name}_{i}") for i, part in enumerate(spec)]
    return tensors[name]


def fit_rows(state, rows, spec, name):
    """Return a state for a batch of another size than the one that returned it.

    Args:
        state: nested tensors (B, …), returned by a call.
        rows: int or int32 scalar, rows of the new batch: the first ones of the state, and zeros for
            missing ones.
        spec: `keras.KerasTensor`s, the state's structure, None for sizes that vary.
        name: str, the state's key, for messages.

    Raises:
        ValueError: if `state` has another structure than `spec`, or other shapes.
    """
    try:
        keras.tree.assert_same_structure(state, spec)
    except ValueError as error:
        reason = str(error)
        if isinstance(spec, dict) and isinstance(state, dict):
            reason = f"{name} has the keys {sorted(state)}, but needs {list(spec)}."
        raise ValueError(
            f"{name} has another structure than what an earlier call returned: {reason}"
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
                f"{('rows', *spec.shape[1:])}: pass what an earlier call of this model returned."
            )
        return with_rows(part, rows)

    return keras.tree.map_structure(fitted, state, spec)


def with_rows(part, rows):
    """Return a tensor (B, …) cut or zero-padded to a number of rows."""
    if isinstance(rows, int) and rows == part.shape[0]:
        return part
    lacking = ops.maximum(rows - ops.shape(part)[0], 0)
    free = ops.zeros((lacking, *ops.shape(part)[1:]), part.dtype)
    return ops.concatenate([part, free])[:rows]
