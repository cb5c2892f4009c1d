"""How a model is read from a format: two tables, of its tensors' names and of its configuration.

The table of names is read from our side: for the variable `block_3/norm/gamma` it has the name
`layer.3.norm.weight`. That is looked up among the names in the file, without what varies between
files, such as the prefix `bert.` or an older spelling. The tensor is brought into the variable's
layout and assigned. Variables without a tensor and tensors without a variable are returned. Turned
round, the table names the tensors that are written.

A configuration and a backbone's arguments are one table of rules, read and written. Each argument
has a rule, with `read(config, tensors)` → its value and `write(name, arguments)` → the entries of
the configuration that state it. What the other library's code cannot do is refused when it is
written, by the argument's name.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from keras_lm.converters.checked_files import HUGGINGFACE, CheckpointError, Entries, warn
from keras_lm.converters.checkpoint import Checkpoint, assign

# === Names of tensors ===

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
KERAS_HUB_LEAVES = {
    "kernel": "/vars/0",
    "bias": "/vars/1",
    "gamma": "/vars/0",
    "beta": "/vars/1",
    "embeddings": "/vars/0",
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
        alternatives = self.alternatives(path)
        return next((alternatives[name] for name in (*variants, None) if name in alternatives), ())

    def alternatives(self, path):
        """Return a dict of variant → their names for our `path`, a tuple; empty without any."""
        numbers = dict(zip(LETTERS, INDEX.findall(path)))
        letters = iter(numbers)
        pattern = INDEX.sub(lambda match: f"_{next(letters, match[1])}/", path)
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

        return {variant: filled(theirs) for variant, theirs in names.items()}

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
            candidates = (
                list(map(resolved.get, names)) for names in self.alternatives(path).values()
            )
            stored = next((names for names in candidates if names and None not in names), None)
            if stored is None:
                missing.append(path)
                continue
            parts = [self.layout(path, np.asarray(tensors[name])) for name in stored]
            array = parts[0] if len(parts) == 1 else self.join(path, parts)
            _check(array, path, variable, " + ".join(stored))
            if not assign(variable, array):
                raise ValueError(
                    f"{' + '.join(stored)} holds numbers that are not finite (NaN or infinity), so "
                    "that every answer would be NaN: the checkpoint is damaged, or its training "
                    "failed."
                )
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
        names = self.copies.get(self._own(stored), ())
        return (names,) if isinstance(names, str) else names

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
            "its weights were quantized, by a program whose scales are not supported. Take the "
            "checkpoint before that."
        )


def _fill(name, numbers):
    for letter, number in numbers.items():
        name = name.replace(letter, number)
    return name


# === Writing ===


def published_tensors(table, arrays, heads, kinds, arguments):
    """Return a dict of their names → arrays, what `table.load` reads, and the paths without a name.

    Args:
        table: `keras_lm.converters.converter.NameTable`.
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


@dataclasses.dataclass(frozen=True)
class PyTorchNames(NameTable):
    """A `NameTable` of a file of PyTorch's, whose kernels are stored (out, in)."""

    leaves: dict = dataclasses.field(default_factory=lambda: PYTORCH_LEAVES)
    layout: Callable = transpose_kernels


@dataclasses.dataclass(frozen=True)
class KerasHubNames(NameTable):
    """A `NameTable` of a file of KerasHub's, where attention has an axis for the heads."""

    leaves: dict = dataclasses.field(default_factory=lambda: KERAS_HUB_LEAVES)
    layout: Callable = join_heads
    stored_layout: Callable | None = split_heads
    prefix: str = "layers/"
    begin: str | None = "layers/"


def keras_hub_blocks(layer, mark=""):
    """Return the entries of a `KerasHubNames` for the blocks of a Transformer.

    Args:
        layer: str, the name of its layer without a number, such as `"transformer_encoder"`.
        mark: str, what the names of attention's layers begin with.
    """
    block = f"{layer}_{{i}}"
    attention = f"{block}/_self_attention_layer"
    return {
        "block_{i}/attention/query_key_value": tuple(
            f"{attention}/{mark}{part}_dense" for part in ("query", "key", "value")
        ),
        "block_{i}/attention/output": f"{attention}/{mark}output_dense",
        "block_{i}/attention_norm": f"{attention}_norm",
        "block_{i}/feedforward/intermediate": f"{block}/_feedforward_intermediate_dense",
        "block_{i}/feedforward/output": f"{block}/_feedforward_output_dense",
        "block_{i}/feedforward_norm": f"{block}/_feedforward_layer_norm",
    }


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


# A configuration that names the model outweighs any number of tensors.
# === Whether a checkpoint is a model's ===


STATED = 1000


@dataclasses.dataclass(frozen=True)
class Converter:
    """How a model's weights are read from one published format.

    Args:
        matches: callable `(checkpoint)` that returns how well a checkpoint matches this model: 0 or
            False for not at all, `STATED` if its configuration names the model. The best match is
            taken, so a model with files like another's checks for more tensors. Usually a
            `functools.partial` of `match_score`.
        config: callable `(checkpoint) -> dict` of the backbone's arguments.
        names: `NameTable` for the backbone and all its heads.
        labels: callable `(checkpoint) -> Labels` of its classification head, None if it has none.
        vocabulary: dict of arguments which these folders need in the `from_files` of the model's
            usual tokenizer.
        architectures: dict of the kinds of heads, sorted and separated by spaces, such as
            `"classification"` → the class, or the program, that the format's library has for the
            model with them; `""` for the bare model. With it, and a `ConfigTable` as `config`, the
            format is written, too.
        tokenizer: str, the library's class of the model's tokenizer, for writing; None for the one
            that takes all steps from its file.
        versions: str, those of the library that have the model; None for all, and for its last.
        files: dict of what is written → the name of its file, for google-research's format, whose
            names are each model's: `"config"`, `"checkpoint"`, and files of our tokenizers.
    """

    matches: Callable
    config: Callable
    names: NameTable
    labels: Callable = lambda checkpoint: None
    vocabulary: dict[str, Any] = dataclasses.field(default_factory=dict)
    architectures: dict[str, str] = dataclasses.field(default_factory=dict)
    tokenizer: str | None = None
    versions: str | None = None
    files: dict[str, str] = dataclasses.field(default_factory=dict)

    def may_be(self, model_type: str | None) -> bool:
        """Whether a configuration with this `model_type` may be the model's, None if it has none.

        If not, the model need not be asked by `matches`. What is no `partial` of `match_score` with
        a `model_type` is always asked.
        """
        named = getattr(self.matches, "keywords", {}).get("model_type")
        named = (named,) if isinstance(named, str) else named
        return model_type is None or named is None or model_type in named


def match_score(
    checkpoint: Checkpoint,
    model_type: str | Sequence[str] | None,
    tensors: Sequence[str] = (),
    prefix: str | Sequence[str] = "",
    own: str | None = None,
    refine: Callable[..., Any] | None = None,
) -> Any:
    """Return how well a checkpoint matches a model.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
        model_type: str or tuple of str. If the configuration has a `model_type`, the result is
            `STATED` if it is one of these, else 0. None for a model that no configuration names.
        tensors, prefix: list of str, and str. Without a `model_type`, the result is the number of
            `tensors` if all are there, with or without the prefix, else 0.
        own: str, a regular expression for tensors that only this model has. Without a
            `model_type`, they count as one more beside `tensors` with the prefix, which networks
            with a head have.
        refine: callable `(checkpoint, score)` that returns the result if `score` is not 0, for
            models with the `model_type` of another.

    Example:

        matches = functools.partial(match_score, model_type="mine", tensors=["mixer.weight"])
    """
    score = _signs(checkpoint, model_type, tensors, prefix, own)
    return refine(checkpoint, score) if score and refine else score


def _signs(checkpoint, model_type, tensors, prefix, own):
    stated = checkpoint.config.get("model_type")
    if stated is not None and model_type is not None:
        types = (model_type,) if isinstance(model_type, str) else model_type
        return STATED if stated in types else 0
    names = checkpoint.tensors
    if not all(t in names or prefix + t in names for t in tensors):
        return 0
    may_have_own = own is not None and all(prefix + t in names for t in tensors)
    return len(tensors) + (may_have_own and any(re.search(own, name) for name in names))


def score_with(
    checkpoint: Checkpoint,
    score: int,
    config: Mapping[str, Any] = MappingProxyType({}),
    tensor: str = "",
) -> int:
    """Return a better score than that of the model with the same `model_type`, or 0.

    It is a `refine` of `match_score`, by `functools.partial`.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
        score: int, not 0.
        config: dict of entries that the configuration must have → their values, None for any.
        tensor: str, a regular expression for the name of a tensor that there must be.
    """
    stated = checkpoint.config
    is_stated = all(n in stated and value in (None, stated[n]) for n, value in config.items())
    has_tensor = not tensor or any(re.search(tensor, name) for name in checkpoint.tensors)
    return score + 1 if is_stated and has_tensor else 0


# === Published configurations ===

# Activations of Keras's that other libraries have under the same name. (PyTorch's leaky ReLU has
# another slope.)
SHARED_ACTIVATIONS = ("relu", "relu6", "silu", "sigmoid", "tanh", "mish", "linear")
# Hugging Face's names of activations → ours. Of several, the first is written.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "swish": "silu",
    "hardswish": "hard_silu",
}


def own_activation(name, names=ACTIVATIONS, entry="activation"):
    """Return our name for an activation; what is not a name stays as it is.

    Args:
        name: the activation in the other library's words.
        names: dict of their names → ours, beside `SHARED_ACTIVATIONS`.
        entry: str, the name of the entry, for the error.

    Raises:
        ValueError: if there is no activation here that the name means.
    """
    if not isinstance(name, str):
        return name
    if name not in names and name not in SHARED_ACTIVATIONS:
        known = ", ".join(sorted({*names, *SHARED_ACTIVATIONS}))
        raise ValueError(f"it has {entry}={name!r}; supported: {known}.")
    return names.get(name, name)


# The kinds of heads of encoders → how Hugging Face's class for them ends.
ENCODER_CLASSES = {
    "": "Model",
    "classification": "ForSequenceClassification",
    "multiple_choice": "ForMultipleChoice",
    "token_classification": "ForTokenClassification",
    "question_answering": "ForQuestionAnswering",
    "token": "ForMaskedLM",
}


def architectures(prefix, endings=ENCODER_CLASSES, **others):
    """Return the `architectures` of a `Converter`: a dict of kinds of heads → class.

    Args:
        prefix: str, which the names of Hugging Face's classes begin with.
        endings, **others: dicts of kinds → how the names end, None for one that has no class; of
            several kinds, `_and_` is between.
    """
    endings = endings | {kinds.replace("_and_", " "): ending for kinds, ending in others.items()}
    return {kinds: f"{prefix}{ending}" for kinds, ending in endings.items() if ending is not None}


def require_only(checkpoint, cls, known):
    """Raise a CheckpointError if the configuration has another value for a key than `known`."""
    for key, only in known.items():
        value = checkpoint.config.get(key, only)
        if value != only:
            raise CheckpointError(
                f"{checkpoint.source}: its configuration has {key}={value!r}, and {cls.__name__} "
                f"supports only {only!r}."
            )


def dropouts(dropout, attention_dropout):
    """Return the arguments `dropout` and `attention_dropout` for two published numbers."""
    return {
        "dropout": dropout,
        # If both are equal, overriding `dropout` should change both.
        "attention_dropout": None if attention_dropout == dropout else attention_dropout,
    }


REQUIRED = object()


@dataclasses.dataclass(frozen=True)
class Key:
    """An argument that is one entry of the configuration.

    Args:
        key: str, the entry's name.
        default: the argument if there is no such entry; by default it has to be there.
    """

    key: str
    default: object = REQUIRED

    @property
    def keys(self):
        return (self.key,)

    def read(self, config, tensors=None):
        if self.default is REQUIRED:
            return config[self.key]
        return config.get(self.key, self.default)

    def write(self, name, arguments):
        return {self.key: arguments[name]}


@dataclasses.dataclass(frozen=True)
class Activation:
    """The argument `activation`.

    Args:
        key, default: the entry's name, and its value if it is missing, in their words.
        names: dict of their names → ours, where they differ.
    """

    key: str
    default: str = "gelu"
    names: dict = dataclasses.field(default_factory=lambda: ACTIVATIONS)

    @property
    def keys(self):
        return (self.key,)

    def read(self, config, tensors=None):
        return own_activation(config.get(self.key, self.default), self.names, self.key)

    def write(self, name, arguments):
        ours = arguments[name]
        theirs = [their for their, our in self.names.items() if our == ours]
        if not theirs and ours in SHARED_ACTIVATIONS and ours not in self.names:
            theirs = [ours]
        if not theirs:
            shared = {our for our in SHARED_ACTIVATIONS if our not in self.names}
            known = sorted({*self.names.values()} | shared)
            raise Refused(name, ours, " or ".join(map(repr, known)))
        return {self.key: theirs[0]}


@dataclasses.dataclass(frozen=True)
class Fixed:
    """An argument that has one value in Hugging Face's code.

    Args:
        value: that value.
        unless: callable `(arguments)` → whether another value makes no difference.
    """

    value: object
    unless: Callable = lambda arguments: False
    keys = ()

    def read(self, config, tensors=None):
        return self.value

    def write(self, name, arguments):
        if arguments[name] != self.value and not self.unless(arguments):
            raise Refused(name, arguments[name], repr(self.value))
        return {}


@dataclasses.dataclass(frozen=True)
class Derived:
    """An argument that follows from the configuration, or the tensors, in a way of its own.

    Args:
        reads: callable `(config, tensors)` → the argument.
        writes: callable `(arguments)` → a dict of entries; by default none, for what tensors show.
        keys: tuple of str, the entries that it reads.
    """

    reads: Callable
    writes: Callable = lambda arguments: {}
    keys: tuple = ()

    def read(self, config, tensors=None):
        return self.reads(config, tensors)

    def write(self, name, arguments):
        return self.writes(arguments)


def dropout_rules(key, attention_key, default=0.1, attention_default=None):
    """Return the rules of `dropout` and `attention_dropout`, which is None if both are equal.

    Args:
        key, attention_key: names of the two entries.
        default, attention_default: what they are if missing; None for the second is the first.
    """

    def read(config, tensors=None):
        dropout = config.get(key, default)
        other = dropout if attention_default is None else attention_default
        return dropouts(dropout, config.get(attention_key, other))["attention_dropout"]

    def write(arguments):
        own = arguments["attention_dropout"]
        return {attention_key: arguments["dropout"] if own is None else own}

    return {
        "dropout": Key(key, default),
        "attention_dropout": Derived(read, write, (key, attention_key)),
    }


def has_pooler(config, tensors):
    """Whether a checkpoint has a pooler's weights."""
    return any(name.endswith(("pooler.dense.weight", "pooler.weight")) for name in tensors)


class Refused(ValueError):
    """An argument has a value that the other library has no counterpart for."""

    def __init__(self, name, value, known):
        super().__init__(
            f"{name}={value!r}, and the other library's code of this model knows {known}"
        )


@dataclasses.dataclass(frozen=True)
class ConfigTable:
    """A backbone's arguments in the words of a configuration. Called, it reads a `Checkpoint`.

    Args:
        model: our class, for errors.
        model_type: str, the entry by which Hugging Face's code finds its own; None for others'.
        rules: dict of our argument → its rule, for all arguments of the constructor.
        entries: `Entries` of the file, beside those that the rules read; None for a format whose
            other entries are not looked at.
        check: callable `(checkpoint)` that raises a CheckpointError for what `entries` cannot say.
        inside: str, the entry of a file that has all these entries; None if it is the file.
        constants: dict of entries that are written, and that our model does not need.
        rates: dict of entries that only training reads, and our model has no argument for → the
            values that go with what it does; a name stands for that entry's value. Others are
            warned of.
        aliases: dict of other names by which Hugging Face's code takes an entry → the entry. Where
            a file has both, that code follows the alias.

    Example:

        table = ConfigTable(MyBackbone, "mine", {"num_layers": Key("n_layer")})
        table.write({"num_layers": 2})  # {"model_type": "mine", "n_layer": 2}
    """

    model: type
    model_type: str | None
    rules: dict
    entries: Entries | None = None
    check: Callable = lambda checkpoint: None
    inside: str | None = None
    constants: dict = dataclasses.field(default_factory=dict)
    rates: dict = dataclasses.field(default_factory=dict)
    aliases: dict = dataclasses.field(default_factory=dict)

    def __call__(self, checkpoint):
        if self.aliases:
            given = checkpoint.config
            meant = {self.aliases[name]: given[name] for name in self.aliases if name in given}
            checkpoint = dataclasses.replace(checkpoint, config=given | meant)
        config = checkpoint.config if self.inside is None else checkpoint.config[self.inside]
        if self.entries is not None:
            where = f"{checkpoint.source}: its configuration"
            self.words.check(config, where, self.model.__name__)
            self._warn_of_rates(config, where)
        self.check(checkpoint)
        return read(self.rules, config, checkpoint.weights)

    @functools.cached_property
    def words(self) -> Entries:
        """What each entry means, those that the rules read among them."""
        ours = Entries(
            read={key for rule in self.rules.values() for key in rule.keys} | {*self.aliases},
            harmless={*self.constants, *self.rates},
        )
        shared = Entries() if self.model_type is None else HUGGINGFACE
        return shared | ours | (self.entries or Entries())

    def _warn_of_rates(self, config, where):
        others = []
        for entry, fine in self.rates.items():
            fine = [config.get(value) if isinstance(value, str) else value for value in fine]
            if config.get(entry) is not None and config[entry] not in fine:
                others.append(f"{entry}={config[entry]!r}")
        if others:
            warn(
                f"{where} has {', '.join(others)}, which {self.model.__name__} does not follow in "
                "training."
            )

    def write(self, arguments):
        """Return the configuration, a dict.

        Raises:
            Refused: if Hugging Face's code cannot do what an argument says.
        """
        config = {} if self.model_type is None else {"model_type": self.model_type}
        for name, rule in self.rules.items():
            config |= rule.write(name, arguments)
        return config | self.constants


def read(rules, config, tensors=None):
    """Return the arguments that rules find in a configuration, a dict."""
    return {name: rule.read(config, tensors) for name, rule in rules.items()}


# === KerasHub's configurations ===

# Its names of tensors after their layer's name.
# The arguments that all of KerasHub's backbones have under our names.
KERAS_HUB_SIZES = (
    "vocabulary_size",
    "num_layers",
    "num_heads",
    "hidden_dim",
    "intermediate_dim",
    "dropout",
    "max_sequence_length",
)


def keras_hub_table(model, *more, **only):
    """Return the `ConfigTable` of a KerasHub preset.

    Args:
        model: our class.
        *more: our arguments, beside `KERAS_HUB_SIZES`, that its class has under the same name.
        only: our other arguments → the one value that its code has, or a rule.
    """
    rules = {name: Key(name) for name in (*KERAS_HUB_SIZES, *more)}
    rules |= {
        name: value if hasattr(value, "read") else Fixed(value) for name, value in only.items()
    }
    rules["attention_dropout"] = Fixed(
        None, lambda given: given["attention_dropout"] == given["dropout"]
    )
    entries = Entries(harmless={"name", "trainable", "dtype"})
    return ConfigTable(model, None, rules, entries, inside="config")
