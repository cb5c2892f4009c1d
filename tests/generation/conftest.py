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


class RememberingModel(ToyModel):
    """It can take tokens back, and looks only at the last `memory` tokens, if that is given."""

    def __init__(self, vocabulary_size, seed=0, scale=2.0, memory=None):
        super().__init__(vocabulary_size, seed, scale)
        self.memory = memory
        self.columns = 0

    def logits(self, tokens):
        return super().logits(tokens if self.memory is None else tokens[-self.memory :])

    def initial_state(self, rows, length):
        return {"ids": np.full([rows, length], -1), "length": np.zeros([rows], "int32")}

    def all_logits(self, token_ids, padding_mask, state):
        self.calls += 1
        self.columns += token_ids.shape[1]
        ids, length = np.array(state["ids"]), np.array(state["length"])
        new = np.where(padding_mask, token_ids, -1)
        logits = np.zeros([*new.shape, self.table.shape[1]], "float32")
        for row, column in np.ndindex(*new.shape):
            ids[row, length[row] + column] = new[row, column]
            tokens = [int(i) for i in ids[row, : length[row] + column + 1] if i >= 0]
            logits[row, column] = self.logits(tokens)
        return tf.constant(logits), {"ids": ids, "length": length + new.shape[1]}

    def next_logits(self, token_ids, padding_mask, state):
        logits, state = self.all_logits(token_ids, padding_mask, state)
        return logits[:, -1], state

    def rewind(self, state, number):
        return state | {"length": state["length"] - number.numpy()}


@pytest.fixture(scope="session")
def toy_model():
    return ToyModel


@pytest.fixture(scope="session")
def remembering_model():
    return RememberingModel
