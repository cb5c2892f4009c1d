"""Windows over long texts × a slow reference, token by token."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.generation import scoring

LENGTHS = [0, 1, 2, 9, 10, 11, 30, 5]
WINDOW = 9


class Counting:
    """Scores each target by all tokens that its window shows before it."""

    def __init__(self):
        self.shapes = []

    def __call__(self, token_ids, padding_mask, targets):
        self.shapes.append(token_ids.shape)
        assert not np.any(token_ids.numpy()[:, 0] < 0)
        seen = tf.cumsum(token_ids * padding_mask, axis=1)
        return tf.cast(1000 * seen + targets, tf.float32)


def reference(tokens, stride):
    scores, start = [], 0
    while len(scores) < len(tokens) - 1:
        for i in range(len(scores) + 1, min(start + WINDOW, len(tokens) - 1) + 1):
            scores.append(1000.0 * sum(tokens[start:i]) + tokens[i])
        start += stride
    return scores


@pytest.mark.parametrize("tokens_at_once", [5, 20, 1024])
@pytest.mark.parametrize("stride", [1, 4, 9])
def test_each_token_is_scored_once_after_what_its_window_shows(monkeypatch, stride, tokens_at_once):
    monkeypatch.setattr(scoring, "TOKENS_AT_ONCE", tokens_at_once)
    random = np.random.default_rng(0)
    rows = [random.integers(1, 50, size=n).tolist() for n in LENGTHS]
    model = Counting()
    actual = scoring.token_scores(
        model, tf.ragged.constant(rows, tf.int32), WINDOW, tf.constant(stride)
    )
    assert actual.to_list() == [reference(tokens, stride) for tokens in rows]
    assert max(rows * columns for rows, columns in model.shapes) <= max(tokens_at_once, WINDOW)


@pytest.mark.parametrize("rows", [[[], [3]], []])
def test_nothing_to_score(rows):
    ids = tf.ragged.constant(rows, tf.int32, ragged_rank=1)
    assert scoring.token_scores(Counting(), ids, WINDOW, 3).to_list() == [[] for _ in rows]
