"""A bound on the work of a served request: rows × beams × tokens.

Each token of a prompt or a text has a place in the memory of the model, for each row and beam.
"""

import contextlib
import contextvars

from keras_lm.layers.tensorflow.tracing import required
from keras_lm.tensorflow import tf

MOST_TOKENS = 2**16
MOST_BEAMS = 64
TOO_MANY = (
    f"rows times beams times tokens, those of the prompt or source and max_new_tokens, may be "
    f"{MOST_TOKENS} at most: send fewer rows, beams or tokens. Here they are"
)

_IS_BOUNDED = contextvars.ContextVar("is_bounded", default=False)


@contextlib.contextmanager
def bounded():
    """A context for tracing graphs that refuse more than `MOST_TOKENS`, before they take memory."""
    token = _IS_BOUNDED.set(True)
    try:
        yield
    finally:
        _IS_BOUNDED.reset(token)


def within(value, rows, beams, tokens):
    """Return a tensor that is available once the work is known to be little enough, if bounded."""
    if not _IS_BOUNDED.get():
        return value
    # In floats, as the product may exceed an int32.
    work = 1.0
    for number in (rows, beams, tokens):
        work *= tf.cast(number, tf.float32)
    return required(value, work <= MOST_TOKENS, TOO_MANY, work)
