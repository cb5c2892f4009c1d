"""How much context models use, by hand and of a network whose window is known."""

import numpy as np
import pytest

from keras_lm import tasks
from keras_lm.metrics import context_losses, relative_effective_context_length
from keras_lm.models import TransformerXLBackbone

LENGTHS = [2, 4, 6, 8]
SHORT = np.array([[4.0, 2.0], [3.0, 2.0], [3.0, 2.0], [3.0, 2.0]])  # gains from 4, and no more
LONG = np.array([[5.0, 3.0], [4.0, 2.0], [2.0, 1.0], [1.999, 1.0]])  # worse at first


def test_by_hand():
    # At 2, of two models, the baseline is [4, 2]; LONG's losses with 4 are [4, 2], and no gain.
    assert relative_effective_context_length([SHORT, LONG], LENGTHS) == [4, 2]
    # Alone, its own losses are the baseline.
    assert relative_effective_context_length([LONG], LENGTHS) == [6]
    assert relative_effective_context_length([SHORT], LENGTHS) == [4]
    assert relative_effective_context_length([LONG], LENGTHS, threshold=1e-9) == [8]


def test_the_hardest_tokens():
    losses = np.array([[5.0, 1.0, 1.0, 1.0], [4.99, 0.5, 1.0, 1.0]])[np.newaxis]
    assert relative_effective_context_length(losses, [1, 2]) == [2]
    assert relative_effective_context_length(losses, [1, 2], ratio=0.25, threshold=0.02) == [1]


@pytest.mark.parametrize(
    "losses, lengths, arguments, message",
    [
        ([SHORT], [2, 4], {}, r"\(models, 2 lengths, tokens\)"),
        ([SHORT], [2, 4, 6, 9], {}, "rising in equal steps"),
        ([SHORT], LENGTHS, {"ratio": 0}, "above 0, 1 at most"),
    ],
)
def test_wrong_arguments(losses, lengths, arguments, message):
    with pytest.raises(ValueError, match=message):
        relative_effective_context_length(losses, lengths, **arguments)


def test_losses_of_a_network():
    backbone = TransformerXLBackbone(20, 1, 2, 8, 12, memory_length=0, dropout=0.0)
    rng = np.random.default_rng(0)
    for weight in backbone.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.3))
    task, ids = tasks.CausalLM(backbone), rng.integers(0, 20, 12)
    losses = context_losses(task, ids, [1, 3, 5], batch_size=4)
    assert losses.shape == (3, 7)
    for row, length in enumerate([1, 3, 5]):
        for token in range(7):
            window = ids[np.newaxis, 5 + token - length : 5 + token].astype("int32")
            expected = -np.asarray(task({"token_ids": window}))[0, -1, ids[5 + token]]
            assert losses[row, token] == pytest.approx(expected, abs=1e-5)
    with pytest.raises(ValueError, match="numbers from 1 to 11"):
        context_losses(task, ids, [12])
