"""A layer that is large enough to be multiplied in int8 or bfloat16."""

import keras
import pytest

from keras_lm.layers.basic import Dense


@pytest.fixture
def dense():
    layer = Dense(64, activation="relu", bias_initializer="ones")
    layer.build((None, 96))
    layer.kernel.assign(keras.random.normal((96, 64), stddev=0.1, seed=2))
    return layer
