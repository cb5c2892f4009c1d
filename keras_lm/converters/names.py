"""Which tensor of a published checkpoint becomes which variable: tables of names.

A table is read from our side: for the variable `block_3/norm/gamma` it has the name
`layer.3.norm.weight`. That is looked up among the names in the file, without what varies between
files, such as the prefix `bert.` or an older spelling. The tensor is brought into the variable's
layout and assigned. Variables without a tensor and tensors without a variable are returned. Turned
round, the table names the tensors that are written.
"""

import dataclasses
import re
from collections.abc import Callable

import numpy as np

from keras_lm.converters.checked_files import is_finite

INDEX = re.compile(r"_(\d+)/")
LETTERS = ("{i}", "{j}", "{k}")
# Names of tensors after their layer's name.
PYTORCH_LEAVES = {
    "kernel": ".weight",
    "bias": ".bias",
    "gamma": ".weight",
    "beta": ".bias",
    "embeddings": ".weight",
}
GOOGLE_LEAVES = {
    "kernel": "/kernel",
    "bias": "/bias",
    "gamma": "/gamma",
    "beta": "/beta",
    "embeddings": "",
}


@dataclasses.dataclass(frozen=True)
class NameTable:
    """A mapping of our variables to the tensors of a published checkpoint.

    Args:
        names: dict of our layer's path → their layer's name, or a tuple of names whose tensors are
            joined. `{i}`, `{j}` and `{k}` stand for the first, second and third number in our path
            on both sides. An entry for a whole variable path wins over its layer's. A name that
            depends on the model is a dict of a variant, which is the kind of its heads or an
            argument that is true → name; None for all others. An empty tuple is for a tensor that
            there is not.
        leaves: dict of the last part of our variable paths (`kernel`, `gamma`, …) → what their
            tensor's name has after the layer's.
        layout: callable `(path, array) -> array` that brings kernels into Keras's (in, out) form.
        stored_layout: callable `(path, array, arguments) -> array`, its inverse for a backbone of
            these arguments; None if `layout` is its own inverse.
        join: callable `(path, arrays) -> array` of a variable's parts; by default on the last axis.
        prefix: regular expression for what their names may begin with. In a table that is written,
            one string, which the network's names have beside a head.
        spellings: dict of an older spelling → the spelling in `names`, as substrings.
        ignored: regular expression for the names of their tensors without information.
        buffers: dict of the name of a tensor that only holds what the model computes →
            callable `(array) -> bool` that says whether it does. What it refuses is left over.
        copies: dict of the name of a tensor → the name, or names, of what it may be a tied copy of.
            Only one that is a copy is left out in silence. Where the original is missing, as in
            files that keep one name of a tied tensor, its copy stands in.
        twice: dict of a name in `names` → the name under which its tensor is written once more, or
            a callable `(kinds, arguments)` that returns it, or None.
        constants: dict of the name of a tensor that they need, and our model may do without →
            callable `(arguments)` that returns it, or None if our model has it.
        begin: str, what the network's names begin with when they are written; None for `prefix`
            beside a head and nothing without one, as in Hugging Face's files.

    Example:
        names = NameTable({"block_{i}/norm": "layer.{i}.norm"}, leaves={"gamma": ".weight"})
        names.sources("block_3/norm/gamma")  # ("layer.3.norm.weight",)
    """

    names: dict
    leaves: dict
    layout: Callable = lambda path, array: array
    stored_layout: Callable | None = None
    join: Callable = lambda path, arrays: np.concatenate(arrays, axis=-1)
    prefix: str = ""
    spellings: dict = dataclasses.field(default_factory=dict)
    ignored: str = r"(?!)"
    buffers: dict = dataclasses.field(default_factory=dict)
    copies: dict = dataclasses.field(default_factory=dict)
    twice: dict = dataclasses.field(default_factory=dict)
    constants: dict = dataclasses.field(default_factory=dict)
    begin: str | None = None

    def sources(self, path, variants=()):
        """Return their names for our `path` as a tuple, empty if the table has none.

        Of names that depend on the model, it has those of the first of `variants` that has one.
        """
        found = self.alternatives(path)
        return next((found[name] for name in (*variants, None) if name in found), ())

    def alternatives(self, path):
        """Return a dict of variant → their names for our `path`, a tuple; empty without any."""
        numbers = dict(zip(LETTERS, INDEX.findall(path)))
        letters = iter(numbers)
        pattern = INDEX.sub(lambda found: f"_{next(letters, found[1])}/", path)
        layer, _, leaf = pattern.rpartition("/")
        if pattern in self.names:
            names, ending = self.names[pattern], ""
        elif leaf in self.leaves:
            names, ending = self.names.get(layer, ()), self.leaves[leaf]
        else:
            return {}
        names = names if isinstance(names, dict) else {None: names}

        def filled(names):
            names = (names,) if isinstance(names, str) else names
            return tuple(_fill(name, numbers) + ending for name in names)

        return {variant: filled(each) for variant, each in names.items()}

    def resolve(self, tensors):
        """Return a dict of the name in `names` → the name in `tensors`."""
        resolved = {}
        for stored in tensors:
            resolved.setdefault(self._own(stored), stored)
        for copy, originals in self.copies.items():
            for original in (originals,) if isinstance(originals, str) else originals:
                if copy in resolved:
                    resolved.setdefault(original, resolved[copy])
        return resolved

    def _own(self, stored):
        """Return the name in `names` of a stored tensor."""
        for old, new in self.spellings.items():
            stored = stored.replace(old, new)
        return re.sub(f"^(?:{self.prefix})", "", stored)

    def load(self, variables, tensors):
        """Assign each variable its tensors, and return `(missing, unused)`, both sorted.

        `variables` are a dict of our path → variable. The missing are paths, and the values there
        stay; the unused are names of tensors.

        Raises:
            ValueError: if a tensor has another shape than its variable, or holds integers, NaN or
                infinity.
        """
        resolved = self.resolve(tensors)
        missing, used = [], set()
        for path, variable in variables.items():
            found = (list(map(resolved.get, names)) for names in self.alternatives(path).values())
            stored = next((names for names in found if names and None not in names), None)
            if stored is None:
                missing.append(path)
                continue
            parts = [self.layout(path, np.asarray(tensors[name])) for name in stored]
            array = parts[0] if len(parts) == 1 else self.join(path, parts)
            _check(array, path, variable, " + ".join(stored))
            variable.assign(array.astype(variable.dtype, copy=False))
            used.update(stored)
        unused = [name for name in tensors if name not in used]
        unused = [name for name in unused if not self._says_nothing(name, tensors)]
        unused = [name for name in unused if not self._is_copy(name, tensors, resolved)]
        return sorted(missing), sorted(unused)

    def _says_nothing(self, stored, tensors):
        """Whether a tensor is without information: of a name that is ignored, or a buffer."""
        name = self._own(stored)
        if re.fullmatch(self.ignored, name):
            return True
        return name in self.buffers and self.buffers[name](np.asarray(tensors[stored]))

    def _is_copy(self, stored, tensors, resolved):
        """Whether a tensor equals another of its name in `names`, or one that `copies` names."""
        names = (self._own(stored), *self.originals(stored))
        originals = [resolved[original] for original in names if original in resolved]
        return any(
            original != stored and np.array_equal(tensors[original], tensors[stored])
            for original in originals
        )

    def originals(self, stored):
        """Return the names in `names` of what a stored tensor may be a tied copy of, a tuple."""
        found = self.copies.get(self._own(stored), ())
        return (found,) if isinstance(found, str) else found

    def untied(self, unused):
        """Return those of a checkpoint's `unused` tensors that usually are copies of others."""
        return [name for name in unused if self._own(name) in self.copies]


def counts(array):
    """Whether an array has the numbers from 0, as Hugging Face's `position_ids`."""
    return np.array_equal(array.ravel(), np.arange(array.size))


def _check(array, path, variable, stored):
    """Raise a ValueError if an array is not fit for a variable; see `NameTable.load`."""
    if array.shape != tuple(variable.shape):
        raise ValueError(
            f"{stored} has shape {array.shape}, but {path} needs {tuple(variable.shape)}: the "
            "checkpoint's configuration does not describe its weights."
        )
    if array.dtype.kind in "iub" and "float" in str(variable.dtype):
        raise ValueError(
            f"{stored} holds integers ({array.dtype}), and {path} needs numbers with a fraction: "
            "its weights were quantized, by a program whose scale is not read. Take the checkpoint "
            "before that."
        )
    if not is_finite(array):
        raise ValueError(
            f"{stored} holds numbers that are not finite (NaN or infinity), so that every answer "
            "would be NaN: the checkpoint is damaged, or its training failed."
        )


def _fill(name, numbers):
    for letter, number in numbers.items():
        name = name.replace(letter, number)
    return name


# === Writing ===


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


# === Layouts ===


def transpose_kernels(path, array):
    """The layout of PyTorch's `Linear`: kernels are stored (out, in)."""
    return array.T if path.endswith("/kernel") else array


def transpose_logits(path, array):
    """The layout of google-research: matrices multiplied transposed are stored as (out, in)."""
    return array.T if path.endswith("/logits/kernel") else array


def join_heads(path, array):
    """The layout of Keras's attention: kernels and biases have an axis for the heads."""
    if path.endswith("query_key_value/kernel"):
        return array.reshape(array.shape[0], -1)  # (D, N, H) → (D, D)
    if path.endswith("query_key_value/bias"):
        return array.reshape(-1)
    if path.endswith("attention/output/kernel"):
        return array.reshape(-1, array.shape[-1])  # (N, H, D) → (D, D)
    return array


def split_heads(path, array, arguments):
    """The inverse of `join_heads` for a backbone of these arguments."""
    num_heads = arguments["num_heads"]
    if path.endswith("query_key_value/kernel"):
        return array.reshape(array.shape[0], num_heads, -1)  # (D, D) → (D, N, H)
    if path.endswith("query_key_value/bias"):
        return array.reshape(num_heads, -1)
    if path.endswith("attention/output/kernel"):
        return array.reshape(num_heads, -1, array.shape[-1])  # (D, D) → (N, H, D)
    return array


# === `torch.nn.LSTM`, whose weights have the same names in all checkpoints ===


def torch_lstm(ours, theirs, layer="l0"):
    """Return the entries of a `NameTable` for one direction of one layer.

    `ours` is the path of our `LSTM`, `theirs` the prefix of their names with the final dot, and
    `layer` their suffix: `"l0"` for the first layer, `"l0_reverse"` backwards.

    PyTorch keeps two biases, of which only the sum counts: `join_torch_lstm` adds them.

    Example:
        names = torch_lstm("lstm_0", "rnn.") | torch_lstm("lstm_1", "rnn.", "l1")
        NameTable(names, {}, layout=transpose_torch_lstm, join=join_torch_lstm)
    """
    return {
        f"{ours}/kernel": f"{theirs}weight_ih_{layer}",
        f"{ours}/recurrent_kernel": f"{theirs}weight_hh_{layer}",
        f"{ours}/bias": (f"{theirs}bias_ih_{layer}", f"{theirs}bias_hh_{layer}"),
    }


def transpose_torch_lstm(path, array):
    """The layout of PyTorch's LSTM, and of its `Linear`: kernels are stored (out, in)."""
    return array.T if path.endswith("/recurrent_kernel") else transpose_kernels(path, array)


def join_torch_lstm(path, arrays):
    """Add the two biases of an LSTM; whatever else comes in parts is joined on the last axis."""
    if path.endswith("/bias"):
        return np.sum(arrays, axis=0, dtype="float32")  # as they may be float16, in which it rounds
    return np.concatenate(arrays, axis=-1)
