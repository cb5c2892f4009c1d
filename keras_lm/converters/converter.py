"""How a model's weights are read from a format, and how sure we are that they are that model's."""

import dataclasses
from collections.abc import Callable

from keras_lm.converters.names import NameTable

# A configuration that names the model says more than any tensor.
STATED = 1000


@dataclasses.dataclass(frozen=True)
class Converter:
    """How a model's weights are read from one published format.

    Args:
        matches: callable `(checkpoint)` that returns how many signs there are that a checkpoint is
            one of this model: 0 or False for none, `STATED` where its configuration says so. The
            model with most signs is taken, so that one whose files look like another's asks for
            more than the other does, and neither needs to know of the other.
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
    """Return how many signs a checkpoint has of a model; what `Converter.matches` returns.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
        model_type: str or tuple of str, what the key `model_type` of its configuration may be.
        tensors: list of str, names of tensors that it must have where that key is missing.
        prefix: str, what these names may begin with.

    Returns:
        `STATED` where the configuration states one of these types, 0 where it states another;
        without one the number of `tensors` if all are there, else 0.
    """
    stated = checkpoint.config.get("model_type")
    if stated is not None:
        types = (model_type,) if isinstance(model_type, str) else model_type
        return STATED if stated in types else 0
    found = all(t in checkpoint.tensors or prefix + t in checkpoint.tensors for t in tensors)
    return len(tensors) if found else 0
