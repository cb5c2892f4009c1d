"""Products in bfloat16 equal those of rounded numbers, and what is between them is not rounded."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.grappler import tf_optimizer

from keras_lm.layers.attention import SelfAttention
from keras_lm.layers.basic import Dense, get_activation
from keras_lm.layers.tensorflow_products import BFloat16Products


def rounded(x):
    return tf.cast(tf.cast(x, tf.bfloat16), tf.float32).numpy()


def traced(function, *inputs):
    with BFloat16Products():
        traced = tf.function(function, autograph=False).get_concrete_function(*inputs)
    return traced, traced(*inputs).numpy()


@pytest.fixture(scope="module")
def x():
    return tf.constant(keras.random.normal((3, 5, 96), seed=1))


def test_products_are_those_of_rounded_numbers(dense, x):
    _, actual = traced(dense, x)
    expected = np.maximum(rounded(x) @ rounded(dense.kernel) + 1, 0)
    assert actual.dtype == "float32"
    np.testing.assert_allclose(actual, expected, rtol=2**-7, atol=2**-7)  # of its own rounding
    np.testing.assert_array_equal(actual, rounded(actual))
    exact = dense(x).numpy()
    assert np.abs(actual - exact).max() > 0
    np.testing.assert_array_equal(dense(x), exact)  # not outside of the context


def test_two_in_a_row_have_nothing_between_them_and_one_constant_each(dense, x):
    second = Dense(96)
    second.build((None, 64))
    function, _ = traced(lambda x: x + second(dense(x)) + second(dense(x + 1)), x)
    operations = function.graph.get_operations()
    kernels = [
        op.outputs[0].shape
        for op in operations
        if op.type == "Const" and op.outputs[0].dtype == tf.bfloat16
    ]
    assert sorted(map(tuple, kernels)) == [(64,), (64, 96), (96,), (96, 64)]
    narrowing = [
        op for op in operations if op.type == "Cast" and op.outputs[0].dtype == tf.bfloat16
    ]
    assert len(narrowing) == 2  # of x and of x + 1


def test_updates_by_lora_and_adapters_are_in_it(dense, x):
    _, before = traced(dense, x)
    dense.add_adapter(4)
    dense.adapter.up.bias.assign(np.full(64, 3.0))
    np.testing.assert_allclose(traced(dense, x)[1], before + 3, atol=0.03)
    dense.enable_lora(2)
    dense.lora_kernel_b.assign(np.full((2, 64), 0.5))
    _, actual = traced(dense, x)
    np.testing.assert_allclose(actual, dense(x), atol=0.05)
    assert np.abs(actual - before - 3).max() > 0.1


def test_attention_multiplies_in_it_and_small_layers_do_not(x):
    attention, small = SelfAttention(4), Dense(2)
    mask = tf.constant(np.triu(np.full((5, 5), -3e4, "float32"), 1)[None, None])
    expected = small(attention(x, bias=mask))
    function, actual = traced(lambda x: small(attention(x, bias=mask)), x)
    assert 0 < np.abs(actual - expected).max() < 0.02
    products = [
        op.outputs[0].dtype.name
        for op in function.graph.get_operations()
        if op.type in ("MatMul", "BatchMatMulV2")
    ]
    assert sorted(products) == ["bfloat16"] * 4 + ["float32"]


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_gelu_is_part_of_the_product(activation, x):
    """By TensorFlow's optimiser; its own kernel takes longer than the product in bfloat16."""
    dense = Dense(64, activation=get_activation(activation))
    dense.build((None, 96))
    dense.bias.assign(np.linspace(-3, 3, 64))
    function, actual = traced(dense, x)
    np.testing.assert_allclose(actual, dense(x), atol=0.02)

    def fused(graph):
        meta = tf.compat.v1.train.export_meta_graph(graph_def=graph.as_graph_def(), graph=graph)
        for node in meta.graph_def.node:
            node.device = "/device:CPU:0"
        meta.collection_def["train_op"].node_list.value.append(graph.outputs[0].op.name)
        nodes = tf_optimizer.OptimizeGraph(config_pb2.ConfigProto(), meta).node
        return [op.decode() for node in nodes for op in node.attr["fused_ops"].list.s]

    plain = tf.function(lambda x: tf.nn.bias_add(tf.matmul(x, x), x[0]), autograph=False)
    if not fused(plain.get_concrete_function(tf.zeros((96, 96), tf.bfloat16)).graph):
        pytest.skip("oneDNN is off, or has no products in bfloat16 for this processor")
    kinds = {"gelu": "GeluExact", "gelu_tanh": "GeluApproximate"}
    assert fused(function.graph) == ["BiasAdd", kinds[activation]]
