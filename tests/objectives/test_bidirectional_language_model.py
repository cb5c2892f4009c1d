"""Bidirectional language modelling: which word is whose label, and what loss and metrics count."""

import numpy as np
import pytest

from keras_lm.objectives import (
    IGNORED,
    BidirectionalLanguageModel,
    DirectionPerplexity,
    MeanOfKnown,
)

X = IGNORED
LABELS = np.array([[[7, 8, 1], [0, 7, 8]], [[9, 1, X], [0, 9, X]]])
LOSSES = np.log(np.array([[[2, 2, 2], [4, 4, 4]], [[8, 8, 99], [1, 1, 99]]], "float32"))


def test_every_word_is_predicted_from_both_sides():
    ids = np.array([[0, 7, 8, 1], [0, 9, 1, X], [0, 1, X, X]])
    inputs, labels = BidirectionalLanguageModel().corrupt({"word_ids": ids})
    np.testing.assert_array_equal(labels[:2], LABELS)
    np.testing.assert_array_equal(labels[2], [[1, X, X], [0, X, X]])  # a sentence without words
    assert inputs["labels"] is labels


def test_loss_is_a_mean_over_words():
    assert float(MeanOfKnown()(LABELS, LOSSES)) == pytest.approx(LOSSES[LABELS != X].mean())
    first = float(MeanOfKnown()(LABELS, LOSSES, sample_weight=[1.0, 0.0]))
    assert first == pytest.approx(np.log(8) / 2)
    assert float(MeanOfKnown()(np.full_like(LABELS, X), LOSSES)) == 0.0


@pytest.mark.parametrize(
    "direction, name, expected",
    [
        ("forward", "forward_perplexity", (2**3 * 8**2) ** 0.2),
        ("backward", "backward_perplexity", (4**3) ** 0.2),
        (None, "perplexity", (2**3 * 8**2 * 4**3) ** 0.1),
    ],
)
def test_perplexity_of_words_however_they_are_batched(direction, name, expected):
    metric = DirectionPerplexity(direction)
    assert metric.name == name
    for row in (0, 1):
        metric.update_state(LABELS[row : row + 1], LOSSES[row : row + 1])
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)
    again = DirectionPerplexity.from_config(metric.get_config())
    again.update_state(LABELS, LOSSES)
    assert float(again.result()) == pytest.approx(expected, rel=1e-5)
