"""How layers multiply while an export is traced: in another form, bfloat16 or int8."""

import numpy as np

from keras_lm.layers.tensorflow import PRODUCTS
from keras_lm.tensorflow import tf


class Products:
    """How layers multiply while an export is traced, as a context; subclasses say in what.

    Constants for their weights are kept, as a layer may be called several times (ALBERT).
    """

    def __init__(self):
        self._constants = {}

    def __enter__(self):
        self._token = PRODUCTS.set(self)

    def __exit__(self, *error):
        PRODUCTS.reset(self._token)

    def constants(self, dense):
        """Return what `make_constants` returns for a layer, once in each graph."""
        here = (id(dense), id(tf.compat.v1.get_default_graph()))
        if here not in self._constants:
            self._constants[here] = self.make_constants(dense)
        return self._constants[here]

    def make_constants(self, dense):
        """Return a layer's weights, including LoRA's update, as constants of the current graph."""
        raise NotImplementedError(f"{type(self).__name__} must define make_constants.")

    def narrowed(self, x):
        """Return an input in the type in which it is multiplied."""
        return x

    def affine(self, x, dense):
        """Return the product of `x` (rows, D) and a layer's kernel, and its bias: (rows, units)."""
        raise NotImplementedError(f"{type(self).__name__} must define affine.")


class BFloat16Products(Products):
    """A context for tracing in which `Dense`, with constants, and attention use bfloat16.

    Products have both factors and their result in bfloat16 and sum in float32, as oneDNN's kernels
    do. What is between them, such as residual sums and normalization, stays in float32.

    Processors without AMX or AVX512-BF16 compute the same, many times slower.

    Source: what to keep in float32, https://arxiv.org/abs/1710.03740, section 3.3.
    """

    def narrowed(self, x):
        if not x.dtype.is_floating:
            return x
        # What was widened for a layer of float32 is taken as it was: TensorFlow would run both.
        source = getattr(x, "op", None)  # eager tensors have none
        if source is not None and source.type == "Cast" and source.inputs[0].dtype == tf.bfloat16:
            return source.inputs[0]
        return tf.cast(x, tf.bfloat16)

    def make_constants(self, dense):
        with tf.init_scope():
            weights = [w for w in (dense.kernel, dense.bias) if w is not None]
            values = [tf.convert_to_tensor(weight).numpy() for weight in weights]
        return [tf.constant(value, tf.bfloat16) for value in values]

    def affine(self, x, dense):
        kernel, *bias = self.constants(dense)
        x = tf.matmul(x, kernel)
        # Not `tf.add`, after which TensorFlow does not fuse the exact GELU in bfloat16.
        return tf.nn.bias_add(x, *bias) if bias else x


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
    products, _, _ = tf.raw_ops.QuantizedMatMulWithBias(
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
    return tf.cast(tf.bitcast(products, tf.int32), tf.float32)


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
