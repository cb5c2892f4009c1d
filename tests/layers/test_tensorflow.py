"""Dropout, GELU and norms of training: Keras's functions, their gradients, and other draws."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.layers.basic import Dense, LayerNormalization, gelu_tanh
from keras_lm.layers.tensorflow import Dropout, dropout, gelu_in_training

SEED = tf.constant([3, 4])
X = tf.concat([tf.linspace(-7.0, 7.0, 1001), [0.0, -20.0, 20.0, -1e6, 1e6]], axis=0)


def value_slope_and_curve(function, x):
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = function(x)
        slope = inner.gradient(y, x)
    return y, slope, outer.gradient(slope, x)


@pytest.mark.parametrize("approximate", [False, True])
@pytest.mark.parametrize("call", [lambda f: f, lambda f: tf.function(f, autograph=False)])
def test_gelu_and_its_gradients_are_those_of_keras(approximate, call):
    x = X[:-2]
    of_ours = call(lambda x: value_slope_and_curve(lambda x: gelu_in_training(x, approximate), x))
    exact = tf.cast(x, "float64")
    of_keras = value_slope_and_curve(lambda x: keras.activations.gelu(x, approximate), exact)
    for a, b, atol in zip(of_ours(x), of_keras, [2e-6, 5e-6, 3e-5], strict=True):
        np.testing.assert_allclose(a, b, atol=atol)


@pytest.mark.parametrize("approximate", [False, True])
def test_gelu_of_large_numbers_is_finite(approximate):
    y, slope, _ = value_slope_and_curve(lambda x: gelu_in_training(x, approximate), X[-4:])
    np.testing.assert_allclose(y, tf.nn.relu(X[-4:]), atol=1e-6)
    np.testing.assert_allclose(slope, [0, 1, 0, 1], atol=1e-6)


@pytest.mark.parametrize("activation", ["gelu", gelu_tanh])
def test_dense_takes_it_in_training_alone(activation):
    dense = Dense(4, activation=activation)
    x = tf.random.stateless_normal([3, 5], SEED)
    dense.build(x.shape)

    def operations(training):
        graph = tf.function(lambda: dense(x, training=training), autograph=False)
        return {op.type for op in graph.get_concrete_function().graph.get_operations()}

    assert "IdentityN" in operations(True)  # a custom gradient, which would prevent fusing
    assert "IdentityN" not in operations(False)
    np.testing.assert_allclose(dense(x, training=True), dense(x), atol=1e-6)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_drops_its_share_and_keeps_the_mean(rate):
    y = dropout(tf.ones([301, 333]), rate, SEED).numpy()
    kept = y[y != 0]
    np.testing.assert_allclose(kept, 1 / (1 - rate), rtol=1e-6)
    np.testing.assert_allclose((y == 0).mean(), rate, atol=0.005)
    halves = (y.ravel()[:-1:2] != 0), (y.ravel()[1::2] != 0)  # of the same random number
    both = np.mean(halves[0] & halves[1])
    np.testing.assert_allclose(both, (1 - rate) ** 2, atol=0.007)


def test_dropout_is_by_its_seed():
    x = tf.ones([7, 9])
    first, again, other = (dropout(x, 0.5, seed) for seed in (SEED, SEED, SEED + 1))
    np.testing.assert_array_equal(first, again)
    assert (first.numpy() != other.numpy()).any()


def test_gradient_of_dropout_is_its_factors():
    x = tf.random.stateless_normal([5, 7], SEED)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = dropout(x, 0.3, SEED)
    np.testing.assert_allclose(tape.gradient(y, x) * x, y, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_dropout_of_other_types(dtype):
    x = tf.ones([50, 11], dtype)
    assert dropout(x, 0.5, SEED).dtype == dtype
    assert set(tf.cast(dropout(x, 0.5, SEED), "float32").numpy().ravel()) == {0.0, 2.0}


def test_layer_is_that_of_keras_but_for_the_draws():
    layer = Dropout(0.5, seed=1)
    x = tf.ones([8, 3, 5])
    assert layer(x) is x
    first, second = layer(x, training=True), layer(x, training=True)
    assert first.shape == x.shape and (first.numpy() != second.numpy()).any()
    traced = tf.function(lambda x: layer(x, training=True), autograph=False)
    spec = tf.TensorSpec([None, 3, 5])
    assert traced.get_concrete_function(spec).output_shapes.as_list() == [None, 3, 5]
    assert traced(x[:0]).shape == (0, 3, 5)
    by_rows = Dropout(0.5, noise_shape=(None, 1, 1), seed=1)(x, training=True).numpy()
    assert (by_rows == by_rows[:, :1, :1]).all()
    assert (Dropout(1.0)(x, training=True).numpy() == 0).all()


@pytest.mark.parametrize("shape", [(5, 6), (2, 3, 6), (2, 0, 6)])
@pytest.mark.parametrize("is_graph", [False, True])
def test_layer_norm_has_the_gradients_of_its_plain_form(shape, is_graph):
    norm = LayerNormalization(epsilon=1e-3)
    norm.build(shape)
    norm.gamma.assign(tf.random.stateless_normal([6], SEED))
    norm.beta.assign(tf.random.stateless_normal([6], SEED + 1))
    x, upstream = (tf.random.stateless_normal(shape, SEED + i) for i in (2, 3))

    def run(training):
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = norm(x, training=training)
            gradients = tape.gradient(y, [x, norm.gamma.value, norm.beta.value], upstream)
            length = tf.reduce_sum(gradients[0] ** 2)
        return y, gradients, outer.gradient(length, x)

    run = tf.function(run, autograph=False) if is_graph else run
    for a, b in zip(tf.nest.flatten(run(True)), tf.nest.flatten(run(False)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
