"""A model's variables under the names that a published format has for them, for writing it."""

import re

import numpy as np


def published_tensors(table, arrays, heads, kinds, arguments):
    """Return a dict of their names → arrays, what `table.load` reads, and the paths without a name.

    Args:
        table: `keras_lm.converters.names.NameTable`.
        arrays: dict of our path → array.
        heads: names of the model's layers that may be heads.
        kinds: str, the heads that it has, see `Converter.architectures`.
        arguments: dict, those of the backbone.
    """
    begin = table.begin
    if begin is None:
        begin = table.prefix.replace("\\", "") if kinds else ""
    variants = (kinds, *(name for name, value in arguments.items() if value))
    network = {path: names for path, names in table.names.items() if not _in_heads([path], heads)}
    network = {name for names in network.values() for name in _flat(names)}
    tensors, nameless = {}, []
    for path, array in arrays.items():
        names = table.sources(path, variants)
        if not names:
            is_left_out = () in table.alternatives(path).values()
            nameless += [] if is_left_out else [path]
            continue
        for name, part in zip(names, np.split(array, len(names), axis=-1), strict=True):
            part = (
                table.layout(path, part)
                if table.stored_layout is None
                else table.stored_layout(path, part, arguments)
            )
            # (A classifier may have the network's pooler, if that has none.)
            layer = re.sub(r"[./]\w+$", "", name)
            is_of_network = not _in_heads([path], heads) or layer in network
            tensors[begin + name if is_of_network else name] = part
    for name, again in table.twice.items():
        again = again(kinds, arguments) if callable(again) else again
        if again is not None and name in tensors:
            tensors[again] = tensors[name]
    for name, constant in table.constants.items():
        array = constant(arguments)
        if array is not None:
            tensors[begin + name] = array.astype("float32")
    return tensors, nameless


def _in_heads(paths, heads):
    """Whether a path is of one of the layers that are heads."""
    return any(path.partition("/")[0] in heads for path in paths)


def _flat(names):
    """Return all names in an entry of a table, a list."""
    if isinstance(names, str):
        return [names]
    return [
        name
        for part in (names.values() if isinstance(names, dict) else names)
        for name in _flat(part)
    ]
