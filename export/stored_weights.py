"""Smaller weights in the files of a SavedModel.

They are widened to float32 variables once, when the model is loaded, so that calls take as long as
those of other exports. Functions need not be traced again: the variables that they read are
replaced when they are saved.
"""

import numpy as np
from tensorflow.python.ops.resource_variable_ops import UninitializedVariable

from keras_lm.tensorflow import tf

SMALLEST = 2**12  # values; for biases, norms and small heads the loss is not worth the room
BLOCK = 64  # values that share a scale


def shrink(module, weights, parts):
    """Change the format in which a module saves its variables; see `saved_model.module_of`.

    Matrices become `"float16"`, also for `"bfloat16"`, which has fewer digits; or `"int8"` with a
    float32 scale for each block of 64 adjacent values, which is more precise than a scale for each
    output of a layer. Variables in `parts`, see `saved_model.stored_parts`, are saved as these,
    with any `weights`. Vectors, small matrices and those with values outside of float16's range
    stay as they are.

    Source of blocks: https://arxiv.org/abs/2110.02861, section 2.1.
    """
    module.stored, widened = {}, {}
    for name, variable in module.weights.items():
        stored = parts.get(name) or [
            tf.Variable(values, trainable=False) for values in _stored(variable, weights)
        ]
        if stored:
            widened[name] = WidenedVariable(variable)
            module.stored[name] = stored
    module.weights = dict(module.weights) | widened
    if widened:
        module.widening = Widening([(widened[name], module.stored[name]) for name in widened])


def _stored(variable, weights):
    """Return the arrays to save instead of a variable: (), (values,) or (values, scales)."""
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
    """Replaces `variable` in a SavedModel, without a value in the file.

    Once they are saved, functions that read `variable` read this one.
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
    """Fills variables from their stored ones, once those have been read from the file.

    Args:
        pairs: list of (`WidenedVariable`, list of its stored variables), all tracked by a module.
    """

    def __init__(self, pairs):
        super().__init__()
        self.pairs = pairs

    def _create_resource(self):
        # The resource is empty. It exists because TensorFlow initialises resources on loading.
        return tf.raw_ops.VarHandleOp(dtype=tf.bool, shape=[], shared_name="widening")

    def _initialize(self):
        for widened, stored in self.pairs:
            value = _widen(widened.shape, widened.dtype, *stored)
            tf.raw_ops.AssignVariableOp(resource=widened.handle, value=value)
