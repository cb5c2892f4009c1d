"""What cannot be served is found before it is written, and named with its layer."""

import keras
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_lm import tasks
from keras_lm.export import saved_model


class Python(keras.layers.Layer):
    def call(self, x):
        return tf.ensure_shape(tf.py_function(lambda x: x + 1, [x], tf.float32), x.shape)


class Compiled(keras.layers.Layer):
    @tf.function(jit_compile=True)
    def _double(self, x):
        return 2 * x

    def call(self, x):
        return self._double(x)


class InnerPython(keras.layers.Layer):
    """Calls Python inside a function of its own, whose nodes have no layer in their names."""

    @tf.function
    def _call(self, x):
        return tf.ensure_shape(tf.numpy_function(lambda x: x, [x], tf.float32), [None, 1])

    def call(self, x):
        return self._call(x)


class OddRegressor(tasks.TextRegressor):
    """A regressor with more layers at its end, none of which can be served."""

    def add_head(self, kind, **options):
        self.odd = [
            Python(name="python_layer"),
            InnerPython(name="inner_layer"),
            Compiled(name="compiled_layer"),
        ]
        return super().add_head(kind, **options)

    def call(self, inputs, training=None):
        outputs = super().call(inputs, training=training)
        for layer in self.odd:
            outputs = layer(outputs)
        return outputs


def test_custom_layers(make_backbone, tokenizer, tmp_path):
    task = OddRegressor(make_backbone(), tokenizer=tokenizer, name="task")
    with pytest.raises(ValueError) as error:
        task.export(tmp_path / "models")
    for words, layer in [
        ("operation EagerPyFunc in layer task/python_layer: it calls Python", "python_layer"),
        ("operation PyFunc in layer task/inner_layer: it calls Python", "inner_layer"),
        ("jit_compile=True in layer task/compiled_layer: it needs XLA", "compiled_layer"),
    ]:
        assert words in str(error.value)
        assert str(error.value).count(layer) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def meta_graph(exported_as):
    data = (exported_as("classifier of pairs").folder / "saved_model.pb").read_bytes()
    (graph,) = saved_model_pb2.SavedModel.FromString(data).meta_graphs
    return graph


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ("Foreign>Gelu", "only has the operations of TensorFlow and TensorFlow Text"),
        ("TFText>RoundRobinTrim", "only has the operations of TensorFlow and TensorFlow Text 2.12"),
        ("ResourceApplyAdam", "part of training"),
        ("XlaCallModule", "XLA, which is off"),
        ("TPUExecute", "TPUs only"),
    ],
)
def test_operations_that_are_not_there(operation, words, meta_graph):
    graph = type(meta_graph).FromString(meta_graph.SerializeToString())
    for function in graph.graph_def.library.function:
        for node in function.node_def:
            if node.name.endswith("pooler_1/Tanh"):
                node.op = operation
    with pytest.raises(ValueError, match=words) as error:
        saved_model.check_operations(graph, {"task", "bert_backbone", "pooler"})
    assert f"operation {operation} in layer task/bert_backbone/pooler" in str(error.value)


def test_numbers_of_layers_are_kept():
    names = {"task", "block_1"}
    assert saved_model.layer_path(["task_1", "block_1"], names) == "layer task/block_1"
    assert saved_model.layer_path(["task", "block_1_1"], names) == "layer task/block_1"
    assert saved_model.layer_path([], names) == "the graph itself"


def test_recursive_functions_end(meta_graph):
    graph = type(meta_graph).FromString(meta_graph.SerializeToString())
    function = graph.graph_def.library.function.add()
    function.signature.name = "recursive"
    function.node_def.add(name="scope/again", op="recursive")
    function.node_def.add(name="scope/foreign", op="Foreign")
    with pytest.raises(ValueError, match="operation Foreign in layer scope/scope"):
        saved_model.check_operations(graph)


def test_a_layer_is_named_as_the_user_named_it():
    """TensorFlow appends a number to a scope that it knows; layers may have one, too."""
    names = {"bert", "block", "block_0"}
    assert saved_model.layer_path(["bert_2", "block_0"], names) == "layer bert/block_0"
    assert saved_model.layer_path(["block_0_1", "block_1"], names) == "layer block_0/block"
    assert saved_model.layer_path(["other_3"], names) == "layer other_3"
    assert saved_model.layer_path([], names) == "the graph itself"
