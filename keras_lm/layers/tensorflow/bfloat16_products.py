"""Products in bfloat16 while a graph is traced whose other operations are in float32."""

import contextlib

from keras_lm.layers.tensorflow.tracing import BFLOAT16_CONSTANTS
from keras_lm.tensorflow import tf


@contextlib.contextmanager
def multiplying_in_bfloat16():
    """A context for tracing in which `Dense`, with constants, and attention use bfloat16.

    Products have both factors and their result in bfloat16 and sum in float32, as oneDNN's kernels
    do. What is between them, such as residual sums and normalization, stays in float32.

    Processors without AMX or AVX512-BF16 compute the same, many times slower.

    Source: what to keep in float32, https://arxiv.org/abs/1710.03740, section 3.3.
    """
    token = BFLOAT16_CONSTANTS.set({})
    try:
        yield
    finally:
        BFLOAT16_CONSTANTS.reset(token)


def narrowed(x):
    """Return floats in bfloat16 within `multiplying_in_bfloat16`, and `x` elsewhere."""
    if BFLOAT16_CONSTANTS.get() is None or not x.dtype.is_floating:
        return x
    # What was widened for a layer of float32 is taken as it was: TensorFlow would run both casts.
    source = getattr(x, "op", None)  # eager tensors have none
    if source is not None and source.type == "Cast" and source.inputs[0].dtype == tf.bfloat16:
        return source.inputs[0]
    return tf.cast(x, tf.bfloat16)


def bfloat16_weights(dense):
    """Return the kernel and the bias, or None, of a layer as constants of the graph, bfloat16."""
    known, here = BFLOAT16_CONSTANTS.get(), (id(dense), id(tf.compat.v1.get_default_graph()))
    if here not in known:  # a layer may be called several times, as in ALBERT
        with tf.init_scope():  # the kernel with LoRA's update
            values = [tf.convert_to_tensor(dense.kernel).numpy()]
            values += [] if dense.bias is None else [tf.convert_to_tensor(dense.bias).numpy()]
        known[here] = [tf.constant(value, tf.bfloat16) for value in values] + [None]
    return known[here][:2]
