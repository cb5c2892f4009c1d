"""How a model's weights are read from a format, and how well a checkpoint matches the model."""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.converters.checkpoint import Checkpoint
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
            `functools.partial` of `signs`.
        config: callable `(checkpoint) -> dict` of the backbone's arguments.
        names: `NameTable` for the backbone and all its heads.
        labels: callable `(checkpoint) -> Labels` of its classification head, None if it has none.
        vocabulary: dict of arguments which these folders need in the `from_files` of the model's
            usual tokenizer.
        architectures: dict of the kinds of heads, sorted and separated by spaces, such as
            `"classification"` → the class, or the program, that the format's library has for the
            model with them; `""` for the bare model. With it, and a `ConfigTable` as `config`, the
            format is written, too.
        tokenizer: str, the library's class of the model's tokenizer, for writing.
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
    files: dict = dataclasses.field(default_factory=dict)


def signs(
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

        matches = functools.partial(signs, model_type="mine", tensors=["mixer.weight"])
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

# Hugging Face's names of activations → ours, where they differ.
ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "swish": "silu",
}


def own_activation(name, names=ACTIVATIONS):
    """Return our name for an activation; an unknown one stays as it is."""
    return names.get(name, name) if isinstance(name, str) else name


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


# What Hugging Face's encoders could be, and ours are not: for `require_only`.
PLAIN_ENCODER = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


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
