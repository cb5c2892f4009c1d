"""The loss of a parser, by hand and against all trees."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny import all_trees

from keras_lm.objectives import IGNORED, TreeHinge


def chart(length, size, spans=()):
    """Return the labels of spans, (F, F): of the given ones, 0 of others, `IGNORED` elsewhere."""
    places = np.arange(size)
    inside = (places[:, None] < places) & (places <= length)
    labels = np.where(inside, 0, IGNORED)
    for start, end, label in spans:
        labels[start, end] = label
    return labels


def loss_by_hand(labels, scores, length):
    """Return the highest score plus cost of all trees with all labels, less that of the right."""
    right = sum(scores[span][labels[span]] for span in np.ndindex(labels.shape) if labels[span] > 0)
    numbers = range(scores.shape[-1])
    others = [
        sum(max(scores[span][n] + (n != labels[span]) for n in numbers) for span in tree)
        for tree in all_trees(0, length)
    ]
    return max(others, default=0.0) - right


SPANS = [(0, 4, 1), (0, 2, 2), (2, 4, 1), (3, 4, 2)]
LABELS = np.stack([chart(4, 6, SPANS), chart(1, 6, [(0, 1, 2)]), chart(0, 6), chart(3, 6)])
LENGTHS = [4, 1, 0, 3]


@pytest.fixture
def scores():
    scores = np.random.default_rng(0).normal(size=(4, 6, 6, 3)).astype("float32")
    scores[..., 0] = 0.0
    return scores


def test_against_all_trees(scores):
    loss = TreeHinge()
    losses = [loss_by_hand(*each) for each in zip(LABELS, scores, LENGTHS, strict=True)]
    assert min(losses[0], losses[1], losses[3]) > 0
    total, count = loss.sum_and_count(LABELS, scores)
    assert float(total) == pytest.approx(sum(losses), rel=1e-5)
    assert float(count) == float(loss.count(LABELS)) == 3  # the text without words is no sentence
    weights = np.array([1.0, 0.5, 7.0, 0.0])
    expected = (losses[0] + 0.5 * losses[1]) / 1.5
    assert float(loss(LABELS, scores, sample_weight=weights)) == pytest.approx(expected, rel=1e-5)
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert float(again(LABELS, scores)) == pytest.approx(sum(losses) / 3, rel=1e-5)


def test_a_tree_that_wins_by_its_distance_costs_nothing(scores):
    one_hot = np.eye(3, dtype="float32")[np.maximum(LABELS, 0)]
    sure = 4.0 * one_hot - 2.0
    sure[..., 0] = 0.0
    assert float(TreeHinge()(LABELS, sure)) == 0.0
    sure[0, 0, 2, 2] = 0.25  # no longer by more than the one span that another label would change
    assert 0 < float(TreeHinge()(LABELS[:1], sure[:1])) <= 1.0


def test_gradients_are_finite_and_of_two_trees(scores):
    scores[:, :, 5] = scores[:, 5] = 1e30  # beyond the words
    scores[2] = 1e30  # a text without words
    scores = tf.constant(scores)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        loss = TreeHinge()(LABELS, scores)
    gradient = tape.gradient(loss, scores).numpy()
    assert np.isfinite(gradient).all()
    assert not gradient[2].any()
    assert not gradient[:, :, 5].any()
    # What the right tree loses, another gains: of each sentence, 1 for every span of either.
    right = gradient[0][tuple(np.array(SPANS).T)] * 3
    assert set(right.round(4).tolist()) <= {-1.0, 0.0}
    others = gradient[0] * 3
    assert others[others > 0].round(4).tolist() == [1.0] * int((others > 0).sum())
