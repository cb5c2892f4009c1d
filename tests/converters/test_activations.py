"""The name of an activation means what it means in the library that states it."""

import math

import keras
import numpy as np
import pytest

from keras_lm.converters.converter import ACTIVATIONS, Activation, Refused, own_activation
from keras_lm.layers.basic import get_activation

X = np.linspace(-8, 8, 65, dtype="float32")
TANH = 0.5 * X * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3)))
ERF = np.array([0.5 * x * (1 + math.erf(x / math.sqrt(2))) for x in X])
SWISH = X / (1 + np.exp(-X))
THEIRS = {
    "gelu": ERF,
    "gelu_python": ERF,
    "gelu_new": TANH,
    "gelu_pytorch_tanh": TANH,
    "gelu_python_tanh": TANH,
    "gelu_fast": TANH,
    "gelu_accurate": TANH,
    "swish": SWISH,
    "silu": SWISH,
    "hardswish": X * np.clip(X + 3, 0, 6) / 6,
    "relu": np.maximum(X, 0),
    "relu6": np.clip(X, 0, 6),
    "mish": X * np.tanh(np.log1p(np.exp(X))),
    "sigmoid": 1 / (1 + np.exp(-X)),
    "tanh": np.tanh(X),
    "linear": X,
}
# Of transformers, with another meaning in Keras, or none.
OTHERS = ["leaky_relu", "quick_gelu", "relu2", "gelu_10", "laplace", "prelu", "xielu"]


@pytest.mark.parametrize("name", sorted(THEIRS))
def test_values_are_theirs(name):
    ours = get_activation(Activation("hidden_act").read({"hidden_act": name}))
    np.testing.assert_allclose(ours(keras.ops.convert_to_tensor(X)), THEIRS[name], atol=2e-6)


def test_every_name_of_the_table_is_tried():
    assert {*ACTIVATIONS} < {*THEIRS}


@pytest.mark.parametrize("name", OTHERS)
def test_names_without_a_counterpart_are_refused(name):
    with pytest.raises(ValueError, match=f"hidden_act='{name}'; supported: gelu, "):
        Activation("hidden_act").read({"hidden_act": name})
    with pytest.raises(Refused, match=f"activation='{name}'"):
        Activation("hidden_act").write("activation", {"activation": name})


def test_names_of_other_libraries():
    assert own_activation("gelu", {"gelu": "gelu_tanh"}) == "gelu_tanh"
    assert own_activation("relu", {"gelu": "gelu_tanh"}) == "relu"
    with pytest.raises(ValueError, match="activation='gelu_new'; supported: gelu, linear"):
        own_activation("gelu_new", {"gelu": "gelu_tanh"})
    assert own_activation(TANH) is TANH


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu", "hard_silu", "relu6", "linear"])
def test_what_is_written_reads_back(name):
    rule = Activation("hidden_act")
    assert rule.read(rule.write("activation", {"activation": name})) == name
