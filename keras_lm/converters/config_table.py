"""A published configuration and a backbone's arguments: one table of rules, read and written.

Each argument has a rule, with `read(config, tensors)` → its value and `write(name, arguments)` →
the entries of the configuration that state it. What Hugging Face's code cannot do is refused when
it is written, by the argument's name.
"""

import dataclasses
from collections.abc import Callable

from keras_lm.converters.converter import ACTIVATIONS, dropouts, own_activation, require_only

REQUIRED = object()
# Versions of transformers before 5 leave heads that were pruned out of the weights.
WHOLE = {"pruned_heads": {}}
# Activations of Keras's that Hugging Face's code has under the same name.
SHARED_ACTIVATIONS = ("gelu", "relu", "silu", "sigmoid", "tanh", "mish", "leaky_relu", "linear")


@dataclasses.dataclass(frozen=True)
class Key:
    """An argument that is one entry of the configuration.

    Args:
        key: str, the entry's name.
        default: the argument if there is no such entry; by default it has to be there.
    """

    key: str
    default: object = REQUIRED

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

    def read(self, config, tensors=None):
        return own_activation(config.get(self.key, self.default), self.names)

    def write(self, name, arguments):
        ours = arguments[name]
        theirs = [their for their, our in self.names.items() if our == ours]
        if not theirs and ours in SHARED_ACTIVATIONS and ours not in self.names:
            theirs = [ours]
        if not theirs:
            known = sorted({*self.names.values()}.union(SHARED_ACTIVATIONS) - {*self.names})
            raise Refused(name, ours, " or ".join(map(repr, known)))
        return {self.key: theirs[0]}


@dataclasses.dataclass(frozen=True)
class Only:
    """An argument that has one value in Hugging Face's code.

    Args:
        value: that value.
        unless: callable `(arguments)` → whether another value makes no difference.
    """

    value: object
    unless: Callable = lambda arguments: False

    def read(self, config, tensors=None):
        return self.value

    def write(self, name, arguments):
        if arguments[name] != self.value and not self.unless(arguments):
            raise Refused(name, arguments[name], repr(self.value))
        return {}


@dataclasses.dataclass(frozen=True)
class By:
    """An argument that follows from the configuration, or the tensors, in a way of its own.

    Args:
        reads: callable `(config, tensors)` → the argument.
        writes: callable `(arguments)` → a dict of entries; by default none, for what tensors tell.
    """

    reads: Callable
    writes: Callable = lambda arguments: {}

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

    return {"dropout": Key(key, default), "attention_dropout": By(read, write)}


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
        only: dict of entries → the one value that our model knows.
        check: callable `(checkpoint)` that raises a CheckpointError for what `only` cannot say.
        inside: str, the entry of a file that has all these entries; None if it is the file.

    Example:

        table = ConfigTable(MyBackbone, "mine", {"num_layers": Key("n_layer")})
        table.write({"num_layers": 2})  # {"model_type": "mine", "n_layer": 2}
    """

    model: type
    model_type: str | None
    rules: dict
    only: dict = dataclasses.field(default_factory=dict)
    check: Callable = lambda checkpoint: None
    inside: str | None = None

    def __call__(self, checkpoint):
        require_only(checkpoint, self.model, WHOLE | self.only)
        self.check(checkpoint)
        config = checkpoint.config
        config = config if self.inside is None else config[self.inside]
        return read(self.rules, config, checkpoint.weights)

    def write(self, arguments):
        """Return the configuration, a dict.

        Raises:
            Refused: if Hugging Face's code cannot do what an argument says.
        """
        config = {} if self.model_type is None else {"model_type": self.model_type}
        for name, rule in self.rules.items():
            config |= rule.write(name, arguments)
        return config


def read(rules, config, tensors=None):
    """Return the arguments that rules find in a configuration, a dict."""
    return {name: rule.read(config, tensors) for name, rule in rules.items()}


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
        name: value if hasattr(value, "read") else Only(value) for name, value in only.items()
    }
    rules["attention_dropout"] = Only(
        None, lambda given: given["attention_dropout"] == given["dropout"]
    )
    return ConfigTable(model, None, rules, inside="config")
