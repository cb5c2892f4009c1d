"""A bound on the work of a served request: rows × beams × tokens, read or written.

Each token that is written has a place in the memory of the model, for each row and beam; each that
is read has one while its row is computed. Rows are as long as the longest.
"""

from keras_lm.layers.tensorflow import most_tokens, required
from keras_lm.tensorflow import tf

MOST_TOKENS = 2**16
MOST_PIECES = 2**20  # that are only made of text, or text of them
MOST_NUMBERS = 2**26  # of an output, such as logits: 256 MiB
MOST_BEAMS = 64
TOO_MANY = (
    "rows times beams times tokens, those of the prompt or source and max_new_tokens, may be "
    "{} at most: send fewer rows, beams or tokens. Here they are"
)
TOO_LONG = (
    "rows times tokens, those of the longest row, may be {} at most: send fewer or shorter rows. "
    "Here they are"
)


TOO_WIDE = (
    "rows times tokens squared, those of the longest row, may be {} at most: send fewer or shorter "
    "rows. Here they are"
)


def within(value, rows, beams, tokens):
    """Return a tensor; in a graph traced as `bounded`, once the work is known to be little."""
    return _once_few(value, TOO_MANY, most_tokens(), rows, beams, tokens)


def few_tokens(tensors, rows, tokens=1):
    """Return tensors to be read; in a graph traced as `bounded`, once they are known to be few.

    Args:
        tensors: nested tensors.
        rows, tokens: how many there are; `rows` may be their product.
    """
    return _once_few(tensors, TOO_LONG, most_tokens(), rows, tokens)


def few_packed(packed):
    """The same for the packed rows of texts."""
    masks = [mask for name, mask in packed.items() if name.endswith("padding_mask")]
    return few_tokens(packed, tf.size(masks[0])) if masks and most_tokens() else packed


def few_numbers(tensors, rows, tokens, width):
    """The same for tokens with an output of `width` numbers each, such as logits."""
    most = min(MOST_NUMBERS // width, most_tokens() or 1)
    return _once_few(tensors, TOO_LONG, most, rows, tokens)


def few_pairs(tensors, rows, tokens, width, usual):
    """The same for `width` numbers of each pair of tokens; a row of `usual` tokens is few."""
    most = max(MOST_NUMBERS // width, usual**2)
    return _once_few(tensors, TOO_WIDE, most, rows, tokens, tokens)


def longest(ragged):
    """Return the length of the longest row of a ragged tensor; 0 without any."""
    return tf.reduce_max(tf.concat([ragged.row_lengths(), [0]], axis=0))


def _once_few(tensors, message, most, *numbers):
    if most_tokens() is None:
        return tensors
    # In floats, as the product may exceed an int32.
    work = 1.0
    for number in numbers:
        work *= tf.cast(number, tf.float32)
    work = required(work, work <= most, message.format(most))
    with tf.control_dependencies([work]):
        return tf.nest.map_structure(tf.identity, tensors, expand_composites=True)
