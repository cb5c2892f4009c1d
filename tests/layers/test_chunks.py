"""Rows in chunks: outputs and gradients are those of all rows at once."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.layers.chunks import in_chunks

RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 3)).astype("float32")
LABELS = np.arange(7, dtype="int32") % 4


def computed(most, shape):
    keras.utils.set_random_seed(0)
    dense = keras.layers.Dense(4)
    dense.build((None, 3))

    def losses(x, labels):
        return keras.losses.sparse_categorical_crossentropy(labels, dense(x), from_logits=True)

    @tf.function(input_signature=[tf.TensorSpec(shape)], autograph=False)
    def run(x):
        labels = tf.constant(LABELS)[: tf.shape(x)[0]]
        weights = [variable.value for variable in dense.variables]
        with tf.GradientTape() as tape:
            tape.watch(x)
            results = in_chunks(losses, dense.variables, most, x, labels)
        return results, tape.gradient(results, [x, *weights], tf.range(1.0, 8.0))

    return run(X)


@pytest.mark.parametrize("most", [1, 3, 7])
@pytest.mark.parametrize("shape", [(7, 3), (None, 3)])
def test_equal_to_all_rows_at_once(most, shape):
    (whole, gradients), (actual, others) = computed(100, (7, 3)), computed(most, shape)
    np.testing.assert_allclose(actual, whole, atol=1e-6)
    for a, b in zip(others, gradients, strict=True):
        assert np.abs(b).max() > 0
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_no_more_than_some_rows_at_once():
    seen = []

    def function(x):
        seen.append(int(x.shape[0]))
        return x

    assert in_chunks(function, [], 3, tf.constant(X)).shape == (7, 3)
    assert set(seen) == {3}
