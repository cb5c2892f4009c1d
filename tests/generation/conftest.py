"""A model of a few numbers, whose every prediction depends on all tokens before it."""

import numpy as np
import pytest
import tensorflow as tf

SIZE = 97


class ToyModel:
    """What a token is followed by, by a table and a number that sums up the tokens so far.

    The number is that of the model's tokens, each times the square of its place. `calls`, a
    variable, counts from when the newest model was made.
    """

    calls = None

    def __init__(self, vocabulary_size, seed=0, scale=2.0):
        self.calls.assign(0)
        random = np.random.default_rng(seed)
        self.table = (scale * random.normal(size=(SIZE, vocabulary_size))).astype("float32")

    def logits(self, tokens):
        """The same for a list of all tokens, in numpy."""
        number = sum((token + 1) * (i + 1) ** 2 for i, token in enumerate(tokens))
        return self.table[number % SIZE]

    def initial_state(self, rows, length):
        return {"number": tf.zeros([rows], tf.int32), "tokens": tf.zeros([rows], tf.int32)}

    def next_logits(self, token_ids, padding_mask, cache):
        self.calls.assign_add(1)
        place = cache["tokens"][:, None] + tf.cumsum(padding_mask, axis=1)
        number = cache["number"] + tf.reduce_sum(padding_mask * (token_ids + 1) * place**2, axis=1)
        cache = {
            "number": number % SIZE,
            "tokens": cache["tokens"] + tf.reduce_sum(padding_mask, 1),
        }
        return tf.gather(self.table, cache["number"]), cache

    def decoding_state(self, state):
        return state


class RememberingModel(ToyModel):
    """It can take tokens back, and looks only at the last `memory` tokens, if that is given."""

    columns = None

    def __init__(self, vocabulary_size, seed=0, scale=2.0, memory=999):
        super().__init__(vocabulary_size, seed, scale)
        self.columns.assign(0)
        self.memory = np.array(memory, "int32")

    def logits(self, tokens):
        return super().logits(tokens[-self.memory :])

    def initial_state(self, rows, length):
        return {"ids": tf.fill([rows, length], -1), "length": tf.zeros([rows], tf.int32)}

    def all_logits(self, token_ids, padding_mask, state):
        rows, number = tf.unstack(tf.shape(token_ids))
        self.calls.assign_add(1)
        self.columns.assign_add(number)
        columns = state["length"][:, None] + tf.range(number)  # (B, S)
        cells = tf.stack([tf.repeat(tf.range(rows)[:, None], number, axis=1), columns], axis=-1)
        new = tf.where(padding_mask > 0, token_ids, -1)
        ids = tf.tensor_scatter_nd_update(state["ids"], cells, new)
        real = tf.cast(ids >= 0, tf.int32)
        place = tf.cumsum(real, axis=1)  # of each token among the real ones, from 1 on, (B, T)
        last = tf.gather(place, columns, batch_dims=1)[..., None]  # (B, S, 1)
        place = place[:, None]
        since = tf.maximum(place - tf.maximum(last - self.memory, 0), 0)  # (B, S, T)
        since = tf.where(place <= last, since, 0)
        total = tf.reduce_sum((real * (ids + 1))[:, None] * since**2, axis=-1)
        state = {"ids": ids, "length": state["length"] + number}
        return tf.gather(self.table, total % SIZE), state

    def next_logits(self, token_ids, padding_mask, state):
        logits, state = self.all_logits(token_ids, padding_mask, state)
        return logits[:, -1], state

    def rewind(self, state, number):
        return state | {"length": state["length"] - number}


@pytest.fixture(scope="session")
def toy_model():
    ToyModel.calls = tf.Variable(0)
    return ToyModel


@pytest.fixture(scope="session")
def remembering_model(toy_model):
    RememberingModel.columns = tf.Variable(0)
    return RememberingModel
