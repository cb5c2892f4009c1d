"""How a model is read from a format: whether a checkpoint is one, and what its configuration says.

A configuration and a backbone's arguments are one table of rules, read and written. Each argument
has a rule, with `read(config, tensors)` → its value and `write(name, arguments)` → the entries of
the configuration that state it. What the other library's code cannot do is refused when it is
written, by the argument's name.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.converters.checkpoint import Checkpoint
from keras_lm.converters.entries import HUGGINGFACE, Entries, warn
from keras_lm.converters.names import NameTable

# A configuration that names the model outweighs any number of tensors.
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
    vocabulary: dict = dataclasses.field(default_factory=dict)
    architectures: dict = dataclasses.field(default_factory=dict)
    tokenizer: str | None = None
    versions: str | None = None
    files: dict = dataclasses.field(default_factory=dict)

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
        refine: callable `(checkpoint, found)` that returns the result where `found` is not 0, for
            models with the `model_type` of another.

    Example:

        matches = functools.partial(match_score, model_type="mine", tensors=["mixer.weight"])
    """
    found = _signs(checkpoint, model_type, tensors, prefix, own)
    return refine(checkpoint, found) if found and refine else found


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
        endings, **others: dicts of kinds → how the names end; of several kinds, `_and_` is between.
    """
    endings = endings | {kinds.replace("_and_", " "): ending for kinds, ending in others.items()}
    return {kinds: f"{prefix}{ending}" for kinds, ending in endings.items()}


def require_only(checkpoint, cls, known):
    """Raise a CheckpointError if the configuration has another value for a key than `known`."""
    for key, only in known.items():
        value = checkpoint.config.get(key, only)
        if value != only:
            raise CheckpointError(
                f"{checkpoint.source}: its configuration has {key}={value!r}, and {cls.__name__} "
                f"knows only {only!r}."
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
            shared = {each for each in SHARED_ACTIVATIONS if each not in self.names}
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
        writes: callable `(arguments)` → a dict of entries; by default none, for what tensors tell.
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
        constants: dict of entries that are written, and tell our model nothing.
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
KERAS_HUB_LEAVES = {
    "kernel": "/vars/0",
    "bias": "/vars/1",
    "gamma": "/vars/0",
    "beta": "/vars/1",
    "embeddings": "/vars/0",
}

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
