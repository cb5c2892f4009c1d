"""Parts of a network that a graph, or several graphs, hold once, as functions that they call.

TensorFlow puts a function in the place of each call before it runs a graph.
"""

import collections
import contextlib
import contextvars
import types

import keras
import numpy as np

from keras_lm.layers.tensorflow import PRODUCTS, is_for_lite, is_growing, is_in_place
from keras_lm.tensorflow import tf
from keras_lm.utils.input_files import without_collecting

_TRACES = contextvars.ContextVar("traces", default=None)


@contextlib.contextmanager
def sharing_traces():
    """A context for tracing: `traced_once` and `traced_alike` trace what is the same once."""
    token = _TRACES.set({})
    try:
        with without_collecting():
            yield
    finally:
        _TRACES.reset(token)


def traced_once(function, inputs, *key):
    """Return `function(inputs)`, nested tensors; where traces are shared, by a call of its trace.

    `key` has a name of the function, and all that it depends on except its inputs and their shapes.
    """
    traces = _TRACES.get()
    if traces is None:
        return function(inputs)
    if key not in traces:
        traces[key] = tf.function(function, autograph=False)
    return traces[key](inputs)


def traced_alike(layer, *inputs, training=None):
    """Return `layer(*inputs, training=training)`, nested tensors.

    Where traces are shared, and it is not training, layers that differ in the values of their
    weights alone have one trace, which takes these values as inputs.
    """
    traces = _TRACES.get()
    if traces is None or training:
        return layer(*inputs, training=training)
    if layer not in traces:
        traces[layer] = _Trace.key(layer), layer.weights
    key, weights = traces[layer]
    # TensorFlow would take a trace for any size where there are operations for a size of 1.
    shapes = [str(getattr(x, "shape", x)) for x in tf.nest.flatten(inputs)]
    key = key, *shapes, is_for_lite(), is_growing(), is_in_place(), id(PRODUCTS.get())
    if key not in traces:
        traces[key] = _Trace(layer)
    trace = traces[key]
    outputs = trace.call([v.value for v in weights], inputs)
    # What a layer assigns, such as the state of random numbers, is its own.
    return layer(*inputs, training=training) if trace.assigns else outputs


class _Trace:
    """The trace of a layer as a function of the values of its weights, and of its inputs."""

    def __init__(self, layer):
        self.assigns = False

        def compute(values, inputs):
            mapping = zip(layer.weights, values, strict=True)
            with keras.StatelessScope(mapping) as scope:
                before = [scope.get_current_value(v) for v in layer.variables]
                outputs = layer(*inputs, training=False)
                after = [scope.get_current_value(v) for v in layer.variables]
            self.assigns |= any(x is not y for x, y in zip(before, after, strict=True))
            return outputs

        self.call = tf.function(compute, autograph=False)

    # Attributes of every layer that say how Keras keeps it, not what it computes.
    KEPT = frozenset(vars(keras.layers.Layer())) - {"_dtype_policy", "autocast"}

    @classmethod
    def _is_of_result(cls, name):
        """Whether a layer's attribute is no bookkeeping, and used after the layer is built."""
        return not (name in cls.KEPT or name.startswith("_self_") or name.endswith("_initializer"))

    @classmethod
    def key(cls, layer):
        """Return what a layer depends on beyond the values of its weights, hashable.

        It has all attributes of the layer and of those in it. What is no number, string, function
        or layer, nor made of such, is the same for two layers only if it is the same object.
        """
        numbers = {id(v): number for number, v in enumerate(layer.weights)}
        plain = bool, int, float, str, bytes, type, type(None), np.dtype, types.FunctionType

        def described(value):
            kind = type(value)
            if isinstance(value, plain):
                return kind, value
            if id(value) in numbers:  # a layer or a variable may be there twice
                return kind, numbers[id(value)]
            if isinstance(value, (list, tuple)):
                return kind, *map(described, value)
            if isinstance(value, dict):
                return kind, *((name, described(value[name])) for name in value)
            if isinstance(value, keras.random.SeedGenerator):
                return kind  # a layer that draws assigns its state
            if isinstance(value, keras.layers.Layer):
                own = {name: x for name, x in vars(value).items() if cls._is_of_result(name)}
            elif isinstance(value, keras.dtype_policies.DTypePolicy):
                own = vars(value)
            else:
                return "the same", id(value)
            numbers[id(value)] = len(numbers)
            return kind, *((name, described(own[name])) for name in sorted(own))

        return described(layer), *((v.shape, v.dtype) for v in layer.weights)


class GraphCache(collections.UserDict):
    """Graphs of functions of named strings, each traced once for texts of all sizes.

    It is no dict, which TensorFlow would save with a module that holds it.
    """

    def call(self, name, function, columns, *more):
        """Call a function by its graph, which is kept under its name, the form of texts and more.

        Args:
            name: str.
            function: dict of tensors → tensors.
            columns: dict of string tensors, dense or ragged.
            *more: what else the graph depends on.
        """
        specs = {name: _spec_of_any_size(value) for name, value in columns.items()}
        key = (name, *more, str(sorted(specs.items())))
        if key not in self:
            traced = tf.function(lambda columns: function(columns), autograph=False)
            with sharing_traces():
                self[key] = traced.get_concrete_function(specs)
        return self[key](columns)


def _spec_of_any_size(value):
    """Return the spec of a string tensor, dense or ragged, with all sizes unknown."""
    if isinstance(value, tf.RaggedTensor):
        return tf.RaggedTensorSpec([None] * value.shape.rank, value.dtype)
    return tf.TensorSpec([None] * value.shape.rank, value.dtype)
