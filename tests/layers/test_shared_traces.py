"""Traces that layers share, beside plain calls of the layers."""

import keras
import numpy as np
import pytest

from keras_lm.layers.attention import AttentionContext, PreNormBlock
from keras_lm.layers.tensorflow import sharing_traces, traced_alike, traced_once
from keras_lm.tensorflow import tf

X = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")


def make_blocks(number=3, **options):
    keras.utils.set_random_seed(1)
    blocks = [PreNormBlock(num_heads=2, intermediate_dim=16, **options) for _ in range(number)]
    for block in blocks:
        block.build(X.shape)
        for v in block.trainable_variables:
            v.assign(v + 0.3 * keras.random.normal(v.shape))
    return blocks


def called(layers):
    """Return what layers make of X one after another in a graph, and how many functions it has."""

    def compute(x):
        context = AttentionContext()
        for layer in layers:
            is_block = isinstance(layer, PreNormBlock)
            x = traced_alike(layer, x, context)[0] if is_block else traced_alike(layer, x)
        return x

    with sharing_traces():
        traced = tf.function(compute, autograph=False).get_concrete_function(tf.constant(X))
    operations = traced.graph.get_operations()
    names = {op.get_attr("f").name for op in operations if "PartitionedCall" in op.type}
    return tf.cast(traced(tf.constant(X)), tf.float32).numpy(), len(names)


def plainly(layers):
    x = tf.constant(X)
    for layer in layers:
        x = layer(x)
    return tf.cast(x, tf.float32).numpy()


def test_blocks_share_a_trace_and_keep_their_own_weights():
    blocks = make_blocks()
    outputs, number = called(blocks)
    np.testing.assert_allclose(outputs, plainly(blocks), atol=1e-5)
    assert number == 1
    np.testing.assert_allclose(called(blocks[::-1])[0], plainly(blocks[::-1]), atol=1e-5)
    assert np.abs(plainly(blocks[::-1]) - outputs).max() > 1e-3  # so that their order counts


def test_weights_that_are_set_later_are_read():
    blocks = make_blocks()
    context = AttentionContext()

    def compute(x):
        for block in blocks:
            x = traced_alike(block, x, context)[0]
        return x

    with sharing_traces():
        traced = tf.function(compute, autograph=False).get_concrete_function(tf.constant(X))
    before = traced(tf.constant(X)).numpy()
    kernel = blocks[1].feedforward.weights[0]
    kernel.assign(kernel + 0.5)
    after = traced(tf.constant(X)).numpy()
    np.testing.assert_allclose(after, plainly(blocks), atol=1e-5)
    assert np.abs(after - before).max() > 1e-3


def change_number(block):
    block.feedforward_norm.epsilon = 2.0


def change_function(block):
    block.feedforward.intermediate.activation = keras.activations.tanh


def override_call(block):
    plain = block.attention_norm.call
    block.attention_norm.call = lambda x, training=None: 2 * plain(x)


def hold_an_array(block):
    block.attention_norm.factor = np.full([8], 3.0, "float32")
    block.attention_norm.call = scaled.__get__(block.attention_norm)


def scaled(norm, x, training=None):
    return norm.factor * x


def add_lora(block):
    block.attention.query_key_value.enable_lora(2)
    for v in block.attention.query_key_value.trainable_variables:
        v.assign(v + 0.3)


@pytest.mark.parametrize(
    "change", [change_number, change_function, override_call, hold_an_array, add_lora]
)
def test_a_block_that_differs_beyond_its_weights_has_a_trace_of_its_own(change):
    blocks = make_blocks()
    before = plainly(blocks)
    change(blocks[1])
    wanted = plainly(blocks)
    assert np.abs(wanted - before).max() > 1e-3
    outputs, number = called(blocks)
    np.testing.assert_allclose(outputs, wanted, atol=1e-4)
    assert number == 2


def test_mixed_precision_and_a_block_called_twice():
    (block,) = make_blocks(1, dtype="mixed_bfloat16")
    outputs, number = called([block] * 3)
    np.testing.assert_allclose(outputs, plainly([block] * 3), atol=0.1)
    assert number == 2  # of float32, and of bfloat16


class Noise(keras.layers.Layer):
    """Adds random numbers, also outside of training."""

    def __init__(self):
        super().__init__()
        self.seed = keras.random.SeedGenerator(3)

    def call(self, x, training=None):
        return x + keras.random.normal((2, 5, 8), seed=self.seed)


def test_a_layer_that_assigns_does_so_in_its_own_graph():
    layers = [Noise(), Noise()]
    states = [layer.seed.state.numpy().copy() for layer in layers]
    called(layers)
    for layer, state in zip(layers, states, strict=True):
        assert (layer.seed.state.numpy() != state).any()


def test_outside_of_the_context_and_in_training_layers_are_called_as_they_are():
    blocks = make_blocks()
    context = AttentionContext()
    outputs, _ = traced_alike(blocks[0], tf.constant(X), context)
    np.testing.assert_allclose(outputs, plainly(blocks[:1]), atol=1e-6)
    assert traced_once(lambda x: x, 3, "name") == 3
    (dropping,) = make_blocks(1, dropout=0.5)
    with sharing_traces():
        first, second = (
            traced_alike(dropping, tf.constant(X), context, training=True)[0] for _ in range(2)
        )
    assert np.abs(first - second).max() > 1e-3
