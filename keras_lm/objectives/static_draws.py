"""Random numbers that are the same in every epoch. Shapes: B batch, S sequence, K numbers a row."""

import keras
from keras import ops


def static_draws(token_ids, mask, number, seed_generator=None):
    """Return the draws for one of a `number` of masks of each text (B, S), one at random.

    Without a seed generator, they are those of the first mask.
    """
    if seed_generator is None:
        return DrawsOfText(token_ids, mask, 0)
    # The seed itself, which a training checkpoint has, and not the state, which changes.
    seed = ops.cast(seed_generator.state[0], "uint32") * number
    which = keras.random.randint((ops.shape(token_ids)[0], 1), 0, number, seed=seed_generator)
    return DrawsOfText(token_ids, mask, seed + ops.cast(which, "uint32"))


class DrawsOfText:
    """Random numbers (B, K) that only depend on the tokens of their row and a seed.

    So a text has the same numbers in each epoch, whatever else is in its batch, and however long
    the batch is, if rows are padded at the end.

    Args:
        token_ids, mask: (B, S) int, the rows and which of their tokens are real.
        seeds: int, or (B, 1); other seeds give other numbers.
    """

    def __init__(self, token_ids, mask, seeds):
        ids = ops.cast(token_ids, "uint32")
        places = ops.cast(ops.arange(1, ops.shape(ids)[1] + 1), "uint32")[None]
        tokens = _mix(_mix(ids) + places) * ops.cast(ops.not_equal(mask, 0), "uint32")
        self.keys = _mix(ops.sum(tokens, axis=1, keepdims=True) + _mix(seeds))  # (B, 1)

    def _bits(self, shape):
        self.keys = _mix(self.keys + 1)
        return _mix(self.keys + _mix(ops.arange(shape[1])[None]))

    def uniform(self, shape):
        """Return float32 numbers in [0, 1)."""
        return ops.cast(ops.right_shift(self._bits(shape), 8), "float32") * 2.0**-24

    def integers(self, shape, stop):
        """Return int32 numbers in [0, stop)."""
        return ops.cast(self._bits(shape) % stop, "int32")


def _mix(x):
    """Hash `x` to uint32 of the same shape, every bit of which depends on every bit of `x`.

    Source: C. Wellons, "Prospecting for hash functions", `lowbias32`,
    https://nullprogram.com/blog/2018/07/31/
    """
    x = ops.cast(x, "uint32")
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ops.bitwise_xor(x, ops.right_shift(x, shift)) * ops.cast(factor, "uint32")
    return ops.bitwise_xor(x, ops.right_shift(x, 16))
