"""Writing into a cache, by copying and in place."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.layers.tensorflow import write_slots, writing_in_place


def write(old, new, indices):
    return write_slots(old, tf.reshape(new, (-1, 4)), tf.reshape(indices, (-1, 3)))


def write_in_place(old, new, indices):
    with writing_in_place():
        return write(old, new, indices)


WRITERS = [write, write_in_place]


def indices(slots):
    """For two rows with two heads each: (2, 2, 1, 3), from a slot a row."""
    results = [[[[row, head, slot]] for head in range(2)] for row, slot in enumerate(slots)]
    return tf.constant(results, tf.int32)


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_row_is_written_where_its_indices_say(write, dtype):
    old = tf.zeros((2, 2, 3, 4), dtype)
    new = tf.cast(tf.reshape(tf.range(1, 17), (2, 2, 1, 4)), dtype)
    written = write(old, new, indices([2, 0]))
    assert written.dtype == dtype
    expected = np.zeros((2, 2, 3, 4))
    expected[0, :, 2], expected[1, :, 0] = new[0, :, 0], new[1, :, 0]
    np.testing.assert_array_equal(tf.cast(written, "float64"), expected)
    assert not np.any(tf.cast(old, "float32"))


@pytest.mark.parametrize("write", WRITERS)
def test_a_slot_may_be_written_again(write):
    first, second = tf.fill((2, 2, 1, 4), 1 / 3), tf.fill((2, 2, 1, 4), -0.7)
    cache = write(tf.zeros((2, 2, 3, 4)), first, indices([1, 1]))
    cache = write(cache, second, indices([1, 1]))
    np.testing.assert_allclose(cache[:, :, 1:2], second, rtol=1e-6)


@pytest.mark.parametrize("write", WRITERS)
def test_a_cache_that_is_used_again_stays_as_it_was(write):
    @tf.function(autograph=False)
    def twice(old, new):
        old = old + 0.0
        return write(old, new, indices([0, 1])), write(old, 2 * new, indices([0, 1])), old

    once, other, old = twice(tf.zeros((2, 2, 3, 4)), tf.ones((2, 2, 1, 4)))
    assert np.sum(once) == 16
    assert np.sum(other) == 32
    assert not np.any(old)


@pytest.mark.parametrize("write", WRITERS)
def test_a_loop_copies_only_where_it_is_meant_to(write):
    """TensorFlow has no kernel for the CPU that does a scatter update in place."""

    @tf.function(autograph=False)
    def loop(slots):
        def body(i, cache):
            return i + 1, write(cache, tf.ones((2, 2, 1, 4)), indices([0, 1]) + [0, 0, 1] * i)

        return tf.while_loop(lambda i, _: i < 5, body, [0, tf.zeros((2, 2, slots, 4))])[1]

    np.testing.assert_array_equal(np.sum(loop(tf.constant(6)), axis=(1, 2, 3)), [40, 40])
    functions = loop.get_concrete_function(tf.constant(6)).graph.as_graph_def().library.function
    copies = any(node.op == "TensorScatterUpdate" for f in functions for node in f.node_def)
    assert copies == (write is not write_in_place)
