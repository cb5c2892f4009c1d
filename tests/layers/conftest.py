"""A layer that is large enough to be multiplied in int8 or bfloat16, and a process on JAX."""

import importlib.util
import os
import subprocess
import sys

import keras
import pytest

from keras_lm.layers.basic import Dense


@pytest.fixture
def dense():
    layer = Dense(64, activation="relu", bias_initializer="ones")
    layer.build((None, 96))
    layer.kernel.assign(keras.random.normal((96, 64), stddev=0.1, seed=2))
    return layer


@pytest.fixture
def on_jax(request):
    """A function that runs a test's file as a program, in a process whose backend is JAX."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("needs jax")

    def run():
        done = subprocess.run(
            [sys.executable, request.path],
            env=os.environ | {"KERAS_BACKEND": "jax"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]

    return run
