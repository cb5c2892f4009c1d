"""Weights that take less room in the file of a SavedModel.

They are widened once, when the model is loaded, and not in each call: a call then reads the same
float32 variables as that of any export, and takes as long. Functions are not traced anew for it:
what stands for the variables that they read is replaced as they are saved.
"""

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import UninitializedVariable

SMALLEST = 2**12  # values; biases, norms and small heads take no room worth the loss
BLOCK = 64  # values that share a scale


def shrink(module, weights):
    """Replace what a module of `task_parts.module_of` saves of its variables, by `weights`.

    Matrices become `"float16"`, or `"int8"` with a float32 scale for each block of 64 values in the
    order of memory, which is closer to them than a scale for each output of a layer. Vectors, small
    matrices and those with values that half precision cannot hold stay as they are.

    Source of blocks: https://arxiv.org/abs/2110.02861, section 2.1.
    """
    module.stored, widened = {}, {}
    for name, variable in module.weights.items():
        stored = _stored(variable, weights)
        if stored:
            widened[name] = WidenedVariable(variable)
            module.stored[name] = [tf.Variable(values, trainable=False) for values in stored]
    module.weights = dict(module.weights) | widened
    if widened:
        module.widening = Widening([(widened[name], module.stored[name]) for name in widened])


def _stored(variable, weights):
    """Return the arrays to save instead, values and perhaps scales; or () to leave it alone."""
    is_matrix = variable.shape.rank > 1 and variable.shape.num_elements() >= SMALLEST
    if weights == "float32" or not is_matrix or not variable.dtype.is_floating:
        return ()
    values = variable.numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        halves = values.astype("float16")
    if not np.isfinite(halves).all():
        return ()
    if weights == "int8":
        return _quantised(values.astype("float32"))
    return (halves,) if values.itemsize > halves.itemsize else ()


def _quantised(values):
    """Return int8 (blocks, 64) and float32 scales (blocks, 1)."""
    flat = values.ravel()
    blocks = np.pad(flat, (0, -flat.size % BLOCK)).reshape(-1, BLOCK)
    scales = np.abs(blocks).max(axis=1, keepdims=True) / 127
    scales[scales == 0] = 1
    return np.round(blocks / scales).astype("int8"), scales


def _widen(shape, dtype, values, scales=None):
    if scales is not None:
        values = tf.reshape(tf.cast(values, tf.float32) * scales, [-1])
        values = tf.reshape(values[: shape.num_elements()], shape)
    return tf.cast(values, dtype)


class WidenedVariable(UninitializedVariable):
    """What stands for `variable` in a SavedModel, without a value in the file.

    Functions that read `variable` read this one, once they are saved.
    """

    def __init__(self, variable):
        name = variable.name.partition(":")[0]
        super().__init__(trainable=False, shape=variable.shape, dtype=variable.dtype, name=name)
        self.original = variable

    def _serialize_to_tensors(self):
        return {}

    def _export_to_saved_model_graph(self, object_map, tensor_map, options, **kwargs):
        handles = super()._export_to_saved_model_graph(object_map, tensor_map, options, **kwargs)
        object_map[self]._serialize_to_tensors = self._serialize_to_tensors
        tensor_map[self.original.handle] = tensor_map[self.handle]
        return [*handles, self.original.handle]


class Widening(tf.saved_model.experimental.TrackableResource):
    """Fills variables from stored ones after these have been read from the file.

    Args:
        pairs: list of (`WidenedVariable`, list of its stored variables), which a module tracks.
    """

    def __init__(self, pairs):
        super().__init__()
        self.pairs = pairs

    def _create_resource(self):
        # It holds nothing: TensorFlow initialises resources before a model is used.
        return tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=[], shared_name="widening")

    def _initialize(self):
        for widened, stored in self.pairs:
            value = _widen(widened.shape, widened.dtype, *stored)
            tf.raw_ops.AssignVariableOp(resource=widened.handle, value=value)
