"""The chain of a CRF against all sequences, one by one."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops
from scipy.special import logsumexp

from keras_lm.layers import CRF

C, S = 3, 5
MASKS = {
    "whole": [1, 1, 1, 1, 1],
    "right": [1, 1, 1, 0, 0],
    "left": [0, 0, 1, 1, 1],
    "between": [0, 1, 0, 1, 1],
    "one": [0, 0, 1, 0, 0],
    "nothing": [0, 0, 0, 0, 0],
}
MASK = np.array(list(MASKS.values()), "int32")
LOGITS = np.random.default_rng(1).normal(size=(len(MASK), S, C)).astype("float32")


@pytest.fixture(scope="module")
def crf():
    crf = CRF(C)
    crf.build()
    random = np.random.default_rng(0)
    for weight in crf.weights:
        weight.assign(random.normal(size=weight.shape))
    return crf


def score(crf, logits, classes):
    transitions, start, end = (np.asarray(w) for w in (crf.transitions, crf.start, crf.end))
    total = start[classes[0]] + end[classes[-1]] + logits[range(len(classes)), classes].sum()
    return total + sum(transitions[a, b] for a, b in itertools.pairwise(classes))


def enumerate_all(crf, row):
    """All sequences of a row's real positions, and their scores."""
    logits = LOGITS[row][MASK[row] > 0]
    sequences = list(itertools.product(range(C), repeat=len(logits)))
    return np.array(sequences), np.array([score(crf, logits, list(s)) for s in sequences])


@pytest.mark.parametrize("row", range(len(MASKS) - 1), ids=list(MASKS)[:-1])
def test_against_all_sequences(crf, row):
    sequences, scores = enumerate_all(crf, row)
    real = MASK[row] > 0
    best = np.zeros(S, "int32")
    best[real] = sequences[scores.argmax()]
    np.testing.assert_array_equal(crf.decode(LOGITS, MASK)[row], best)

    probabilities = np.exp(scores - logsumexp(scores))
    expected = np.stack([probabilities @ (sequences == c) for c in range(C)], axis=-1)
    np.testing.assert_allclose(crf.marginals(LOGITS, MASK)[row][real], expected, atol=1e-5)

    for which in (0, len(sequences) // 2, scores.argmax()):
        labels = np.full((len(MASK), S), -100)
        labels[row, real] = sequences[which]
        actual = crf.log_likelihood(LOGITS, labels, MASK)[row]
        assert float(actual) == pytest.approx(scores[which] - logsumexp(scores), abs=1e-4)


def test_what_is_forbidden(crf):
    transitions, start, end = np.ones((C, C)), np.ones(C), np.ones(C)
    transitions[0, 1] = transitions[2, 1] = transitions[1, 1] = start[2] = end[0] = 0
    allowed = transitions, start, end
    for row in range(len(MASKS) - 1):
        sequences, scores = enumerate_all(crf, row)
        is_allowed = [
            start[s[0]] * end[s[-1]] > 0
            and all(transitions[a, b] > 0 for a, b in itertools.pairwise(s))
            for s in sequences
        ]
        sequences, scores = sequences[is_allowed], scores[is_allowed]
        real = MASK[row] > 0
        actual = np.asarray(crf.decode(LOGITS, MASK, allowed)[row])[real]
        np.testing.assert_array_equal(actual, sequences[scores.argmax()])
        probabilities = np.exp(scores - logsumexp(scores))
        expected = np.stack([probabilities @ (sequences == c) for c in range(C)], axis=-1)
        actual = crf.marginals(LOGITS, MASK, allowed)[row][real]
        np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_a_row_without_positions(crf):
    labels = np.full(MASK.shape, -100)
    assert float(crf.log_likelihood(LOGITS, labels, MASK)[-1]) == 0.0
    assert not np.asarray(crf.decode(LOGITS, MASK)[-1]).any()
    assert np.isfinite(crf.marginals(LOGITS, MASK)).all()


def test_gradients_are_those_of_the_likelihood():
    """Over many steps, the chain learns a rule that the logits do not hold."""
    keras.utils.set_random_seed(0)
    crf = CRF(2)
    inputs = keras.Input((None, 2))
    model = keras.Model(inputs, crf(inputs))
    labels = np.tile([[0, 1, 0, 1, 0, 1]], (4, 1))
    logits, mask = np.zeros((4, 6, 2), "float32"), np.ones((4, 6), "int32")
    optimizer = keras.optimizers.Adam(0.2)

    import tensorflow as tf

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            loss = -ops.mean(crf.log_likelihood(logits, labels, mask))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    optimizer.build(model.trainable_variables)
    losses = [float(step()) for _ in range(30)]
    assert losses[0] == pytest.approx(6 * np.log(2), rel=0.3)
    assert losses[-1] < 0.2
    np.testing.assert_array_equal(crf.decode(logits, mask), labels)
    again = CRF.from_config(crf.get_config())
    assert again.num_classes == 2
