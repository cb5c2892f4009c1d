"""State from one call of a model to the next: nested tensors, batch first.

The value of the key `FIXED` in a dict is computed once per row and never changes, such as the keys
of an encoder's tokens: beam search need not gather it. That of `EARLIER` are the keys and values of
a cache that do not change for a while, see `keras_lm.generation.lite`.
"""

import keras
from keras import ops

FIXED = "fixed"
EARLIER = "earlier"


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


def with_free_slots(cache, number):
    """Return a cache with at least `number` free slots in each row.

    It holds stacked keys and values (B, L, N, T, H), or `token_ids` (B, T).
    """
    slots = ops.shape(cache["padding_mask"])[1]
    lacking = ops.maximum(ops.max(cache["length"]) + number - slots, 0)
    lacking = lacking if known(lacking) is None else known(lacking)
    if isinstance(lacking, int) and lacking == 0:
        return cache
    cache = dict(cache)
    axes = {"keys": 3, "values": 3, "padding_mask": 1, "token_ids": 1}
    for name, axis in ((name, axis) for name, axis in axes.items() if name in cache):
        shape = list(ops.shape(cache[name]))
        shape[axis] = lacking
        free = ops.zeros(shape, cache[name].dtype)
        cache[name] = ops.concatenate([cache[name], free], axis=axis)
    return cache


def known(x):
    """The value of an integer tensor, or None while a graph is traced."""
    try:
        return int(x)
    except TypeError:
        return None
