"""Weights as constants of a graph, for frozen exports."""

import math

import keras

from keras_lm.layers.tensorflow.int8_products import Int8Products
from keras_lm.layers.tensorflow.products import BFloat16Products
from keras_lm.tensorflow import tf

LARGEST_GRAPH = 2_000_000_000  # bytes of weights; a protocol buffer holds 2**31 in all


def constants(task, weights):
    """Return a context for tracing a task, in which its weights are constants.

    With `weights` of `"int8"` or `"bfloat16"`, these are the matrices of `Int8Products` or
    `BFloat16Products`; what is not multiplied stays a variable.
    """
    if weights == "int8":
        return Int8Products()
    return BFloat16Products() if weights == "bfloat16" else Constants(task.variables)


def checked(function):
    """Return a `ConcreteFunction`; raise a ValueError if its constants are too large."""
    found = [op for op in function.graph.get_operations() if op.type == "Const"]
    _check_size([op.outputs[0] for op in found])
    return function


class Constants(keras.StatelessScope):
    """A scope for tracing, in which variables are constants of the graph that reads them."""

    def __init__(self, variables):
        super().__init__()
        self.variables = {id(variable): variable.value for variable in variables}
        self.known = {}

    def get_current_value(self, variable):
        key = (id(variable), id(tf.compat.v1.get_default_graph()))
        if key not in self.known:
            _check_size([*self.known.values(), variable])
            with tf.init_scope():
                value = self.variables[id(variable)].numpy()
            self.known[key] = tf.constant(value)
        return self.known[key]


def _check_size(tensors):
    """Raise a ValueError if a graph cannot hold constants with the values of these."""
    size = sum(tf.as_dtype(one.dtype).size * math.prod(one.shape) for one in tensors)
    if size > LARGEST_GRAPH:
        raise ValueError(
            f"freeze=True puts the weights into the graph, which may have 2 GB, and these take "
            f"{size / 1e9:.1f} GB: leave it out."
        )
