"""Whether new weights are random, or zeros that those of a checkpoint replace."""

import contextlib
import contextvars
from collections.abc import Iterator

_ARE_REPLACED = contextvars.ContextVar("are_replaced", default=False)


@contextlib.contextmanager
def replaced_weights(are_replaced: bool = True) -> Iterator[None]:
    """A context for networks all of whose weights are assigned at once.

    Drawing random numbers for them would take longer than reading the weights.
    """
    token = _ARE_REPLACED.set(are_replaced)
    try:
        yield
    finally:
        _ARE_REPLACED.reset(token)


def are_replaced() -> bool:
    """Whether the weights that are made now will be replaced."""
    return _ARE_REPLACED.get()
