"""How a model's weights are read from a format, and how well a checkpoint matches the model."""

import dataclasses
from collections.abc import Callable

from keras_lm.converters.names import NameTable

# A configuration that names the model outweighs any number of tensors.
STATED = 1000


@dataclasses.dataclass(frozen=True)
class Converter:
    """How a model's weights are read from one published format.

    Args:
        matches: callable `(checkpoint)` that returns how well a checkpoint matches this model: 0 or
            False for not at all, `STATED` if its configuration names the model. The best match is
            taken: a model with files like another's checks for more tensors, and neither needs to
            know of the other.
        config: callable `(checkpoint) -> dict` of the backbone's arguments.
        names: `NameTable` for the backbone and all its heads.
        labels: callable `(checkpoint) -> Labels` of its classification head, None if it has none.

    Example:

        Converter(lambda checkpoint: signs(checkpoint, "bert", ["embeddings.weight"]), …)
    """

    matches: Callable
    config: Callable
    names: NameTable
    labels: Callable = lambda checkpoint: None


def signs(checkpoint, model_type, tensors, prefix=""):
    """Return how well a checkpoint matches a model, for `Converter.matches`.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
        model_type: str or tuple of str, allowed values of `model_type` in the configuration.
        tensors: list of str, names of tensors that it must have if that key is missing.
        prefix: str, an optional prefix of these names.

    Returns:
        `STATED` if the configuration has one of these types, 0 if it has another; without a type
        the number of `tensors` if all are there, else 0.
    """
    stated = checkpoint.config.get("model_type")
    if stated is not None:
        types = (model_type,) if isinstance(model_type, str) else model_type
        return STATED if stated in types else 0
    found = all(t in checkpoint.tensors or prefix + t in checkpoint.tensors for t in tensors)
    return len(tensors) if found else 0
