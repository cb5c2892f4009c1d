"""Names of earlier releases say what to use, and do what they did."""

import keras
import numpy as np
import pytest

from keras_lm import layers

X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")


@pytest.mark.parametrize("name", ["SelfAttention", "PostNormBlock", "PreNormBlock"])
def test_causal_layers_return_what_they_keep(name):
    arguments = (2,) if name == "SelfAttention" else (2, 16)
    with pytest.warns(DeprecationWarning, match=f"Causal{name} is deprecated: use {name}"):
        old = getattr(layers, f"Causal{name}")(*arguments)
    new = getattr(layers, name)(*arguments)
    bias = layers.CausalBias()(np.ones((2, 5), "int32"))
    output, keys, values = old(X, bias=bias)
    expected = new(X, bias=bias)
    for own, other in zip(new.weights, old.weights, strict=True):
        own.assign(other)
    expected = new(X, bias=bias)
    np.testing.assert_allclose(output, expected, atol=1e-6)
    assert keys.shape == values.shape


def test_embedding_layers():
    with pytest.warns(DeprecationWarning, match="embedding_layers is deprecated"):
        made = layers.embedding_layers(7, 8, 5, 2, 1e-12, "float32")
    names = ["token_embedding", "position_embedding", "segment_embedding", "embedding_norm"]
    assert [layer.name for layer in made] == names
    assert all(isinstance(layer, keras.layers.Layer) for layer in made)
