"""A model of a few numbers, whose every prediction depends on all tokens before it."""

import numpy as np
import pytest
import tensorflow as tf

SIZE = 97


class ToyModel:
    """What a token is followed by, by a table and a number that sums up the tokens so far.

    The number is that of the model's tokens, each times the square of its place.
    """

    def __init__(self, vocabulary_size, seed=0, scale=2.0):
        random = np.random.default_rng(seed)
        self.table = (scale * random.normal(size=(SIZE, vocabulary_size))).astype("float32")
        self.calls = 0

    def logits(self, tokens):
        """The same for a list of all tokens, in numpy."""
        number = sum((token + 1) * (i + 1) ** 2 for i, token in enumerate(tokens))
        return self.table[number % SIZE]

    def initial_state(self, rows, length):
        return {"number": tf.zeros([rows], tf.int32), "tokens": tf.zeros([rows], tf.int32)}

    def next_logits(self, token_ids, padding_mask, cache):
        self.calls += 1
        place = cache["tokens"][:, None] + tf.cumsum(padding_mask, axis=1)
        number = cache["number"] + tf.reduce_sum(padding_mask * (token_ids + 1) * place**2, axis=1)
        cache = {
            "number": number % SIZE,
            "tokens": cache["tokens"] + tf.reduce_sum(padding_mask, 1),
        }
        return tf.gather(self.table, cache["number"]), cache


@pytest.fixture(scope="session")
def toy_model():
    return ToyModel
