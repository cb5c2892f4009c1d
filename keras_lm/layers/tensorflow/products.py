"""How layers multiply while an export is traced: in another form, such as bfloat16."""

from keras_lm.layers.tensorflow.tracing import PRODUCTS
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
        return tf.add(x, *bias) if bias else x
