"""Causal language modelling: which token is whose label, and what the metric counts."""

import math

import numpy as np
import pytest
from keras import ops

from keras_lm.objectives import IGNORED, CausalLanguageModel, Perplexity

X = IGNORED


@pytest.mark.parametrize(
    "mask, expected",
    [
        (None, [6, 7, 8, X]),
        ([1, 1, 1, 1], [6, 7, 8, X]),
        ([1, 1, 1, 0], [6, 7, X, X]),  # nothing follows the last real token
        ([0, 1, 1, 1], [X, 7, 8, X]),  # padding predicts nothing
        ([0, 0, 0, 0], [X, X, X, X]),
    ],
)
def test_labels(mask, expected):
    inputs = {"token_ids": np.array([[5, 6, 7, 8]], "int32")}
    if mask is not None:
        inputs["padding_mask"] = np.array([mask], "int32")
    same, labels = CausalLanguageModel().corrupt(inputs)
    assert same is inputs
    assert ops.convert_to_numpy(labels).tolist() == [expected]


def test_loss_is_the_mean_over_known_labels_in_float32():
    logits = np.array([[[0.0, 2.0], [3.0, 0.0], [9.0, 9.0]]], "float32")
    labels = np.array([[1, 1, X]])
    expected = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(3))) / 2
    loss = CausalLanguageModel().loss()
    assert float(loss(labels, logits)) == pytest.approx(expected, rel=1e-6)
    half = loss(labels, ops.cast(logits, "bfloat16"))
    assert ops.dtype(half) == "float32"
    assert float(half) == pytest.approx(expected, rel=1e-6)


def test_perplexity_is_over_tokens_however_they_are_cut_into_batches():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(6, 5, 11)).astype("float32")
    labels = rng.integers(0, 11, (6, 5))
    labels[3, 1:] = X
    labels[4:] = X
    known = labels != X
    shares = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    scores = np.take_along_axis(shares, np.where(known, labels, 0)[..., None], -1)[..., 0]
    weights = rng.uniform(size=6).astype("float32")
    spread = weights[:, None] * known

    metric = Perplexity()
    for rows in ([0, 1, 2], [3], [4, 5]):
        metric.update_state(labels[rows], logits[rows])
    assert float(metric.result()) == pytest.approx(np.exp(-scores[known].mean()), rel=1e-5)
    metric.reset_state()
    for rows in ([0, 1], [2, 3, 4, 5]):
        metric.update_state(labels[rows], logits[rows], sample_weight=weights[rows])
    expected = np.exp(-(scores * spread).sum() / spread.sum())
    assert float(metric.result()) == pytest.approx(expected, rel=1e-5)
