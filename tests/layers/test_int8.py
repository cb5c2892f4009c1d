"""Products in int8 equal those of integers; what they differ by from `Dense` is bounded."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.layers.basic import Dense
from keras_lm.layers.tensorflow import products_for
from keras_lm.layers.tensorflow_products import Int8Products

pytestmark = pytest.mark.usefixtures("int8_products")


@pytest.fixture(scope="module")
def x():
    return keras.random.normal((7, 3, 96), seed=1) * np.array([[[1.0], [1e-3], [50.0]]], "float32")


def in_int8(layer, x):
    with Int8Products():
        return tf.function(layer, autograph=False)(tf.constant(x)).numpy()


def by_integers(x, kernel):
    """Return the product of rounded numbers: exact, whatever the processor."""
    row_scales = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
    same_sign = kernel[1:] * kernel[:-1] > 0
    pairs = (np.abs(kernel[1:] + kernel[:-1]) * same_sign).max(axis=0)
    scales = np.maximum(np.abs(kernel).max(axis=0), pairs) / np.float32(127)
    sums = np.round(x / row_scales).astype(int) @ np.round(kernel / scales).astype(int)
    return sums.astype("float32") * row_scales * scales


def test_products_are_those_of_rounded_numbers(dense, x):
    expected = by_integers(np.array(x).reshape(-1, 96), dense.kernel.numpy())
    actual = in_int8(dense, x)
    assert actual.shape == (7, 3, 64)
    np.testing.assert_allclose(
        actual.reshape(-1, 64), keras.activations.relu(expected + 1), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("width", [96, 385])  # of 385, neighbours are paired in either way
@pytest.mark.parametrize("others", [1.0, 0.3, 0.0])
def test_no_sum_is_cut(width, others):
    """All activations are as large as they can be, and so are neighbouring weights of a sign."""
    layer = Dense(64, use_bias=False)
    layer.build((None, width))
    kernel = np.where(np.arange(width)[:, None] % 2, others, 1.0)
    kernel = kernel * np.where(np.arange(64) % 2, 1.0, -1.0)
    layer.kernel.assign(kernel)
    x = (np.ones((2, width)) * [[1.0], [-1.0]]).astype("float32")
    np.testing.assert_allclose(
        in_int8(layer, x), by_integers(x, kernel.astype("float32")), rtol=1e-5
    )


def test_each_row_is_as_close_to_dense(dense, x):
    expected = dense(x).numpy()
    distance = np.abs(in_int8(dense, x) - expected).max(axis=-1)
    assert (distance < 0.02 * np.abs(expected).max(axis=-1)).all()  # rows of 0.001 and 50 alike
    assert distance.max() > 0
    np.testing.assert_array_equal(dense(x), expected)  # not outside of the context


def test_empty_batches_rows_of_zeros_and_small_layers(dense):
    assert in_int8(dense, np.zeros((0, 96), "float32")).shape == (0, 64)
    zeros = np.zeros((2, 96), "float32")
    np.testing.assert_allclose(in_int8(dense, zeros), dense(zeros), rtol=1e-6)
    small = Dense(2)
    small.build((None, 96))
    with Int8Products():
        assert products_for(dense)
        assert not products_for(small)


def test_updates_by_lora_and_adapters_are_in_it(dense, x):
    before = in_int8(dense, x)
    dense.add_adapter(4)
    dense.adapter.up.bias.assign(np.full(64, 3.0))
    np.testing.assert_allclose(in_int8(dense, x), before + 3, atol=0.02)
    dense.enable_lora(2)
    dense.lora_kernel_b.assign(np.full((2, 64), 0.5))
    after, kernel = in_int8(dense, x), np.array(dense.kernel)  # with the update
    product = by_integers(np.array(x).reshape(-1, 96), kernel)
    expected = dense.adapter(keras.activations.relu(product + 1))
    np.testing.assert_allclose(after.reshape(-1, 64), expected, rtol=1e-5, atol=1e-5)
    assert np.abs(after - before - 3).max() > 0.1


def test_a_layer_that_is_called_again_has_one_constant(dense, x):
    def twice(x):
        return dense(x) + dense(x + 1)

    with Int8Products():
        function = tf.function(twice, autograph=False).get_concrete_function(tf.constant(x))
    constants = [
        op.get_attr("dtype") for op in function.graph.get_operations() if op.type == "Const"
    ]
    assert constants.count(tf.int8) == 1
    np.testing.assert_allclose(
        function(tf.constant(x)), in_int8(dense, x) + in_int8(dense, x + 1), rtol=1e-6
    )


def test_half_precision(x):
    layer = Dense(64, dtype="mixed_bfloat16")
    layer.build((None, 96))
    actual = in_int8(layer, tf.cast(x, "bfloat16"))
    assert actual.dtype == tf.bfloat16.as_numpy_dtype
    expected = layer(x).numpy().astype("float32")
    assert np.abs(actual.astype("float32") - expected).max() < 0.03 * np.abs(expected).max()
