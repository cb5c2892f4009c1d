"""Products in int8."""

import numpy as np

from keras_lm.layers.tensorflow.products import Products
from keras_lm.tensorflow import tf

LARGEST_INT8 = 127  # of an int8; activations are centred on 128, since oneDNN's are unsigned
# Without VNNI, oneDNN cuts the sum of two adjacent products to 16 bits. Two weights of the same
# sign with this sum are at most 128 together once rounded, and 255 · 128 fits.
LARGEST_PAIR = 127


class Int8Products(Products):
    """A context for tracing in which `Dense` multiplies in int8, with constants for its weights.

    Weights have a scale per output. Activations have a scale per row, computed in each call, so
    that a row's answer does not depend on other rows. The operation is oneDNN's: it is fast on
    processors with VNNI or AMX, and exact on others, too, see `LARGEST_PAIR`.

    Raises:
        ValueError: if oneDNN, which has the product, is off in this process.

    Source: https://arxiv.org/abs/1712.05877, section 2.2; scales by row and output,
    https://arxiv.org/abs/2208.07339, section 3.1.
    """

    def __init__(self):
        super().__init__()
        _require_onednn()

    def make_constants(self, dense):
        """Return weights, the offset of sums from centring activations on 128, and scales."""
        with tf.init_scope():
            values = tf.cast(dense.kernel, tf.float32).numpy()
        signs = np.maximum(values, 0), np.maximum(-values, 0)
        pair = np.max([(part[1:] + part[:-1]).max(axis=0, initial=0) for part in signs], axis=0)
        scales = np.maximum(np.abs(values).max(axis=0) / LARGEST_INT8, pair / LARGEST_PAIR)
        scales[scales == 0] = 1
        weights = np.round(values / scales).astype("int8")
        offset = 128 * weights.sum(axis=0, dtype="int32")
        return tf.constant(weights), tf.constant(offset), tf.constant(scales)

    def affine(self, x, dense):
        weights, offset, scales = self.constants(dense)
        x = tf.cast(x, tf.float32)
        largest = tf.reduce_max(tf.abs(x), axis=-1, keepdims=True)
        row_scales = tf.maximum(largest, 1e-20) / LARGEST_INT8
        rows = tf.cast(tf.round(x / row_scales) + 128, tf.uint8)
        x = tf.cast(
            _multiply_int8(rows, weights, offset) * row_scales * scales, dense.compute_dtype
        )
        return x if dense.bias is None else tf.add(x, tf.convert_to_tensor(dense.bias))


def _multiply_int8(rows, weights, offset):
    """Return rows · weights − offset, float32; if it fails, the operation's name is the remedy."""
    found, _, _ = tf.raw_ops.QuantizedMatMulWithBias(
        a=tf.bitcast(rows, tf.quint8),
        b=tf.bitcast(weights, tf.qint8),
        bias=tf.bitcast(-offset, tf.qint32),
        # The ranges do not matter, because the integer sums are used, not their float values.
        min_a=0.0,
        max_a=1.0,
        min_b=-1.0,
        max_b=1.0,
        Toutput=tf.qint32,
        input_quant_mode="SCALED",
        name="set_TF_ENABLE_ONEDNN_OPTS_to_1",
    )
    return tf.cast(tf.bitcast(found, tf.int32), tf.float32)


def _require_onednn():
    """Raise a ValueError if TensorFlow has no kernel for `_multiply_int8`: oneDNN is off."""
    ones, offset = np.ones((1, 1)), np.zeros(1)

    def multiply():
        weights = tf.constant(ones, tf.int8)
        return _multiply_int8(tf.constant(ones, tf.uint8), weights, tf.constant(offset, tf.int32))

    try:
        tf.function(multiply, autograph=False).get_concrete_function()()
    except tf.errors.OpError as error:
        raise ValueError(
            "freeze=True with weights='int8' multiplies in int8 by oneDNN, which is off in this "
            "process: set TF_ENABLE_ONEDNN_OPTS=1 in its environment, on an x86 processor."
        ) from error
