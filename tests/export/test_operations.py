"""What cannot be served is found before it is written, and named with its layer."""

import keras
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_lm import tasks
from keras_lm.export import operations


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
    """A regressor with one more layer at its end."""

    def __init__(self, backbone, layer, **arguments):
        self._make_odd = layer
        super().__init__(backbone, **arguments)

    def add_head(self, kind, **options):
        self.odd = self._make_odd(name="odd_layer")
        return super().add_head(kind, **options)

    def call(self, inputs, training=None):
        return self.odd(super().call(inputs, training=training))


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (Python, "operation EagerPyFunc in layer task/odd_layer: it calls Python"),
        (InnerPython, "operation PyFunc in layer task/odd_layer: it calls Python"),
        (Compiled, "jit_compile=True in layer task/odd_layer: it needs XLA"),
    ],
)
def test_custom_layers(layer, words, make_backbone, tokenizer, tmp_path):
    task = OddRegressor(make_backbone(), layer, tokenizer=tokenizer, name="task")
    with pytest.raises(ValueError) as error:
        task.export(tmp_path / "models")
    assert words in str(error.value)
    assert str(error.value).count("odd_layer") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def meta_graph(make_backbone, tokenizer, tmp_path_factory):
    task = tasks.TextClassifier(make_backbone(), num_classes=2, tokenizer=tokenizer, name="task")
    task.compile(jit_compile=True)  # means training; the export has its own graph
    folder = task.export(tmp_path_factory.mktemp("models"))
    data = (folder / "saved_model.pb").read_bytes()
    (graph,) = saved_model_pb2.SavedModel.FromString(data).meta_graphs
    return graph


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ("Foreign>Gelu", "neither TensorFlow's nor TensorFlow Text's"),
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
        operations.check(graph, {"task", "bert_backbone", "pooler"})
    assert f"operation {operation} in layer task/bert_backbone/pooler" in str(error.value)


def test_numbers_of_layers_are_kept():
    names = {"task", "block_1"}
    assert operations.layer_path(["task_1", "block_1"], names) == "layer task/block_1"
    assert operations.layer_path(["task", "block_1_1"], names) == "layer task/block_1"
    assert operations.layer_path([], names) == "the graph itself"


def test_recursive_functions_end(meta_graph):
    graph = type(meta_graph).FromString(meta_graph.SerializeToString())
    function = graph.graph_def.library.function.add()
    function.signature.name = "recursive"
    function.node_def.add(name="scope/again", op="recursive")
    function.node_def.add(name="scope/foreign", op="Foreign")
    with pytest.raises(ValueError, match="operation Foreign in layer scope/scope"):
        operations.check(graph)
