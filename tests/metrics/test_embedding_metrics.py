"""Metrics of vectors: against counts by hand, in `fit`, and on what they cannot compare."""

import keras
import numpy as np
import pytest
from scipy.stats import spearmanr

from keras_lm.metrics import CosineSpearman, InBatchRecall

RANDOM = np.random.default_rng(0)
PAIRS = RANDOM.normal(size=(6, 3, 8)).astype("float32")
PAIRS[:4, 1] = PAIRS[:4, 0] + 0.1 * PAIRS[:4, 1]  # near, except the last two


def cosines(vectors):
    vectors = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors[:, 0] @ vectors[:, 1].T


def test_spearman_of_cosines_over_batches():
    scores = RANDOM.random(6)
    metric = CosineSpearman()
    metric.update_state(scores[:4], PAIRS[:4, :2])
    metric.update_state(scores[4:, np.newaxis], PAIRS[4:, :2])
    expected = spearmanr(np.diag(cosines(PAIRS)), scores).statistic
    np.testing.assert_allclose(float(metric.result()), expected, atol=1e-6)


@pytest.mark.parametrize("k", [1, 3])
def test_recall_in_a_batch(k):
    expected = [row in np.argsort(-of_row)[:k] for row, of_row in enumerate(cosines(PAIRS))]
    metric = InBatchRecall(k)
    metric.update_state(None, PAIRS)
    np.testing.assert_allclose(float(metric.result()), np.mean(expected))
    metric.reset_state()
    metric.update_state(None, PAIRS, [1, 0, 0, 0, 0, 3])
    np.testing.assert_allclose(float(metric.result()), (expected[0] + 3 * expected[5]) / 4)


def test_a_positive_that_stands_twice_is_found():
    pairs = PAIRS.copy()
    pairs[1, 1] = pairs[0, 1]
    metric = InBatchRecall()
    metric.update_state(None, pairs[:1])
    metric.update_state(None, pairs[[0, 1]][:, [1, 1]])
    assert float(metric.result()) == 1


def test_settings_come_back():
    for metric in (InBatchRecall(5), CosineSpearman(7)):
        again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
        assert again.get_config() == metric.get_config()


@pytest.mark.parametrize("metric", [InBatchRecall(), CosineSpearman()])
def test_single_texts_are_refused(metric):
    with pytest.raises(ValueError, match="compares the vectors of pairs"):
        metric.update_state([0.0] * 6, PAIRS[:, 0])
