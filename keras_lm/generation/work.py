"""A bound on the work of a served request: rows × beams × tokens.

Each token of a prompt or a text has a place in the memory of the model, for each row and beam.
"""

from keras_lm.layers.tensorflow.tracing import is_bounded, required
from keras_lm.tensorflow import tf

MOST_TOKENS = 2**16
MOST_BEAMS = 64
TOO_MANY = (
    f"rows times beams times tokens, those of the prompt or source and max_new_tokens, may be "
    f"{MOST_TOKENS} at most: send fewer rows, beams or tokens. Here they are"
)


def within(value, rows, beams, tokens):
    """Return a tensor; in a graph traced as `bounded`, once the work is known to be little."""
    if not is_bounded():
        return value
    # In floats, as the product may exceed an int32.
    work = 1.0
    for number in (rows, beams, tokens):
        work *= tf.cast(number, tf.float32)
    return required(value, work <= MOST_TOKENS, TOO_MANY, work)
