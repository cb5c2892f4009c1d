"""Positions under padding on either side, the padding bias, and the scalar mix."""

import math

import keras
import numpy as np
import pytest

from keras_lm.layers import (
    CountedPositionEmbedding,
    PaddingBias,
    PositionEmbedding,
    RelativePositionBias,
    ScalarMix,
    SelfAttention,
)


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


@pytest.mark.parametrize(
    "mask, expected",
    [
        ([1, 1, 1, 1], [0, 1, 2, 3]),
        ([1, 1, 0, 0], [0, 1, 2, 3]),
        ([0, 0, 1, 1], [0, 0, 0, 1]),
        ([0, 1, 1, 0], [0, 0, 1, 2]),
        ([0, 0, 0, 0], [0, 1, 2, 3]),
    ],
)
def test_positions_count_from_the_first_real_token(mask, expected):
    layer = PositionEmbedding(max_sequence_length=6, hidden_dim=3)
    vectors = layer(np.array([mask], "int32"))
    np.testing.assert_array_equal(vectors[0], layer.embeddings.numpy()[expected])


def test_positions_count_real_tokens():
    layer = CountedPositionEmbedding(max_sequence_length=3, hidden_dim=2)
    mask = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 1], [0, 0, 0]], "int32")
    rows = np.array([[2, 3, 4], [1, 2, 3], [2, 1, 3], [1, 1, 1]])
    np.testing.assert_array_equal(layer(mask), layer.embeddings.numpy()[rows])
    assert layer.embeddings.shape == (5, 2)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("number", "longest"), [(32, 128), (8, 12)])
def test_buckets_are_those_of_the_formula(bidirectional, number, longest):
    layer = RelativePositionBias(number, 1, longest, bidirectional)
    layer.build((None, None))
    layer.embeddings.assign(np.arange(number)[:, None])
    actual = np.asarray(layer(np.ones((1, 300), "int32")))[0, 0]

    def bucket(ahead):
        half = number // 2 if bidirectional else number
        distance = abs(ahead) if bidirectional else max(-ahead, 0)
        more = half if bidirectional and ahead > 0 else 0
        exact = half // 2
        if distance < exact:
            return more + distance
        share = math.log(distance / exact) / math.log(longest / exact)
        # Rounded: at the border of two buckets, the reference computes in float32.
        return more + min(exact + math.floor(round(share * (half - exact), 5)), half - 1)

    for query, column in [(0, 0), (5, 5), (9, 2), (2, 9), (299, 0), (0, 299), (100, 90), (150, 23)]:
        assert actual[query, column] == bucket(column - query), (query, column)


def test_position_config_round_trip():
    layer = PositionEmbedding(6, 3, name="positions", dtype="mixed_bfloat16")
    again = PositionEmbedding.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert layer(np.ones((1, 2), "int32")).dtype == "bfloat16"


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_padding_bias_shuts_padding_out(policy):
    mask = np.array([[1, 1, 0], [0, 0, 0]], "int32")
    bias = PaddingBias(dtype=policy)(mask)
    assert bias.shape == (2, 1, 1, 3)
    assert bias.dtype == "float32"
    attention = SelfAttention(num_heads=2, dtype=policy)
    x = keras.ops.cast(random(2, 3, 4), attention.compute_dtype)
    y = keras.ops.convert_to_numpy(keras.ops.cast(attention(x, bias=bias), "float32"))
    assert np.isfinite(y).all()
    probabilities = attention.probabilities(x, bias).numpy()
    assert probabilities.dtype == "float32"
    assert (probabilities[0, :, :, 2] == 0).all()  # no attention to padding, not even a little
    np.testing.assert_allclose(probabilities.sum(-1), 1.0, atol=1e-5)
    # A bias cast down to half precision must not overflow either.
    low = keras.ops.cast(bias, "float16")
    assert np.isfinite(keras.ops.convert_to_numpy(low + low)).all()


def test_padding_bias_in_a_functional_model():
    inputs = keras.Input((None,), dtype="int32")
    tensor = PaddingBias()(inputs)
    assert tensor.shape == (None, 1, 1, None)
    assert tensor.dtype == "float32"


def test_mix_starts_as_the_mean():
    states = [random(2, 3, 4, seed=s) for s in range(3)]
    np.testing.assert_allclose(ScalarMix()(states), np.mean(states, axis=0), atol=1e-6)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_mix_is_its_formula(layer_norm):
    states = [random(2, 3, 4, seed=s) * (s + 1) for s in range(3)]
    mix = ScalarMix(layer_norm=layer_norm)
    mix(states)
    s, gamma = np.array([0.5, -1.0, 2.0], "float32"), 1.7
    mix.scalars.assign(s)
    mix.gamma.assign(gamma)
    weights = np.exp(s) / np.exp(s).sum()
    if layer_norm:
        states = [
            (x - x[:, :2].mean()) / np.sqrt(x[:, :2].var())
            for x in states  # the third is padding
        ]
    expected = gamma * sum(w * x for w, x in zip(weights, states))
    mask = np.array([[1, 1, 0]] * 2, "int32")
    np.testing.assert_allclose(mix(states, mask), expected, atol=1e-5)


def test_mix_regularises_its_scalars():
    mix = ScalarMix(regularization=0.25)
    states = [random(1, 2, 4)] * 2
    mix(states)
    mix.scalars.assign([1.0, 2.0])
    assert float(sum(mix.losses)) == pytest.approx(0.25 * 5.0)
    free = ScalarMix()
    free(states)
    assert not free.losses


def test_mix_refuses_a_negative_regularisation():
    with pytest.raises(ValueError, match="regularization=-1"):
        ScalarMix(regularization=-1)


def test_mix_config_round_trip():
    mix = ScalarMix(regularization=0.5, layer_norm=True, name="mix")
    assert ScalarMix.from_config(mix.get_config()).get_config() == mix.get_config()


def test_mix_takes_as_many_layers_as_it_was_built_for():
    mix = ScalarMix()
    mix([random(1, 2, 4)] * 3)
    with pytest.raises(ValueError):
        mix([random(1, 2, 4)] * 2)
