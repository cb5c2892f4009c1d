"""The loss of KagNet: by hand, with choices that are missing."""

import numpy as np
import pytest

from keras_lm.objectives import MarginRanking


def test_missing_choices_are_left_out():
    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    logits = np.array([[0.5, 0.2, -1e9], [-1.0, 1.0, 0.0]], "float32")
    first = 0.2 - sigmoid(0.5) + sigmoid(0.2)
    second = (0.2 - sigmoid(-1) + sigmoid(1) + 0.2 - sigmoid(-1) + sigmoid(0)) / 2
    loss = MarginRanking()
    assert float(loss([0, 0], logits)) == pytest.approx((first + second) / 2, rel=1e-5)
    assert float(loss([0, 0], logits, [1.0, 3.0])) == pytest.approx((first + 3 * second) / 4)
    assert float(loss([0], [[0.3, -1e9]])) == 0  # a single choice is right
    assert float(loss([1], [[-5.0, 5.0]])) == 0
    assert MarginRanking.from_config(MarginRanking(margin=0.5).get_config()).margin == 0.5
