"""Drawing a token × a slow reference for each row."""

import numpy as np
import pytest

from keras_lm.generation import jax_decoding
from keras_lm.generation import logits as samplers
from keras_lm.generation.logits import BANNED
from keras_lm.generation.options import FRESH_SEED

ROWS, VOCABULARY = 40, 30


def reference(logits, temperature, top_k, top_p, noise):
    """The token that a row draws, in double precision and plain words."""
    if temperature == 0:
        return int(np.argmax(logits))
    scaled = logits.astype("float64") / temperature
    order = np.argsort(-scaled, kind="stable")[: top_k or None]
    probabilities = np.exp(scaled[order] - scaled[order][0])
    probabilities /= probabilities.sum()
    before = np.concatenate([[0], np.cumsum(probabilities)[:-1]])
    order, probabilities = order[before < top_p], probabilities[before < top_p]
    sums = np.cumsum(probabilities / probabilities.sum())
    return int(order[np.searchsorted(sums, noise, side="right")])


def row_options(seed):
    random = np.random.default_rng(seed)
    return {
        "logits": (3 * random.normal(size=(ROWS, VOCABULARY))).astype("float32"),
        "temperature": random.choice([0, 0.3, 1, 2], size=ROWS).astype("float32"),
        "top_k": random.choice([0, 1, 3, 12, 100], size=ROWS).astype("int32"),
        "top_p": random.choice([1, 0.9, 0.5, 1e-6], size=ROWS).astype("float32"),
        "noise": random.uniform(size=ROWS).astype("float32"),
    }


@pytest.mark.parametrize("first_candidates", [5, 1024])
@pytest.mark.parametrize("seed", range(5))
def test_every_row_draws_what_the_reference_draws(monkeypatch, seed, first_candidates):
    monkeypatch.setattr(samplers, "FIRST_CANDIDATES", first_candidates)
    rows = row_options(seed)
    expected = [reference(*(value[i] for value in rows.values())) for i in range(ROWS)]
    np.testing.assert_array_equal(samplers.pick(**rows), expected)
    for i in range(0, ROWS, 7):  # whatever stands beside it
        alone = {name: value[i : i + 1] for name, value in rows.items()}
        assert samplers.pick(**alone).numpy() == [expected[i]]


def test_draws_follow_the_probabilities():
    logits = np.log(np.array([[0.5, 0.3, 0.15, 0.05]], "float32"))
    noise = (np.arange(1000, dtype="float32") + 0.5) / 1000
    rows = np.ones(1000, "float32")
    tokens = samplers.pick(np.repeat(logits, 1000, 0), rows, np.int32(0 * rows), rows, noise)
    np.testing.assert_allclose(np.bincount(tokens) / 1000, [0.5, 0.3, 0.15, 0.05], atol=2e-3)


@pytest.mark.parametrize("noise", [0.0, 1 - 2**-24])
def test_banned_tokens_are_never_drawn(noise):
    logits = np.array([[BANNED, 0.0, BANNED, 1.0, BANNED]], "float32")
    ones = np.ones(1, "float32")
    token = samplers.pick(logits, ones, np.zeros(1, "int32"), ones, noise * ones)
    assert int(token[0]) == (3 if noise == 0 else 1)


def test_tiny_temperature_is_greedy_and_finite():
    logits = np.array([[100.0, 99.0, -100.0]], "float32")
    temperature = np.array([1e-38], "float32")
    token = samplers.pick(
        logits,
        temperature,
        np.zeros(1, "int32"),
        np.ones(1, "float32"),
        np.array([0.99], "float32"),
    )
    assert int(token[0]) == 0


def test_noise_depends_on_seed_and_sequence_alone():
    seed, sequence = np.array([3, 4, 3, 3]), np.array([0, 0, 1, 0])
    noise = samplers.uniform_noise(seed, sequence, 8).numpy()
    np.testing.assert_array_equal(noise[0], noise[3])
    assert len(np.unique(noise[:3])) == 24
    # Other backends than TensorFlow draw the same on the host.
    np.testing.assert_array_equal(jax_decoding.uniform_noise(seed, sequence, 8), noise)
    longer = samplers.uniform_noise(seed[1:2], sequence[1:2], 100).numpy()
    np.testing.assert_array_equal(longer[0, :8], noise[1])
    assert noise.min() >= 0 and noise.max() < 1


def test_a_fresh_seed_is_another_each_time():
    seed = np.full(3, FRESH_SEED)
    noise = [samplers.uniform_noise(seed, np.zeros(3, "int64"), 4).numpy() for _ in range(2)]
    assert len(np.unique(noise)) == 24
