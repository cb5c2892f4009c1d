"""TensorFlow's additions to `keras.ops`, with fallbacks for Keras's other backends."""

import keras
from keras import ops

if keras.backend.backend() == "tensorflow":
    from keras_lm.layers.tensorflow import (
        Dropout,
        argmax,
        at_columns,
        at_rows,
        computed_again,
        draw_seed,
        dropout,
        fused_attention,
        gelu_in_training,
        in_blocks,
        in_some_rows,
        is_growing,
        is_long,
        keeps_axes,
        known_array,
        layer_norm_in_training,
        map_chunks,
        matmul,
        matmul_transposed,
        narrowed,
        normal,
        num_replicas,
        products_for,
        require,
        reversible,
        scan,
        size_within,
        sizes,
        softmax,
        split_seed,
        sum_over_replicas,
        traced_alike,
        traced_once,
        word_scores,
        write_slots,
    )

    takes_rules = is_long
    gelu = keras.activations.gelu
else:
    import jax
    import numpy as np
    from keras.ops import matmul, scan

    from keras_lm.layers.jax_attention import fused_attention, has_fused_kernel
    from keras_lm.layers.jax_elementwise import (
        Dropout,
        draw_seed,
        dropout,
        gelu,
        map_chunks,
        reversible,
        split_seed,
    )

    in_blocks = None  # never called
    gelu_in_training = gelu
    layer_norm_in_training = None  # XLA computes the plain form in one pass
    computed_again = keras.remat

    def known_array(value):
        """See `keras_lm.layers.tensorflow`."""
        is_traced = isinstance(value, (jax.core.Tracer, keras.KerasTensor))
        return None if is_traced else np.asarray(value)

    def argmax(logits):
        """See `keras_lm.layers.tensorflow`."""
        return ops.argmax(logits, axis=-1)

    def at_columns(x, columns):
        """See `keras_lm.layers.tensorflow`."""
        return jax.vmap(lambda row, places: row[places])(x, columns)

    def at_rows(x, rows):
        """See `keras_lm.layers.tensorflow`."""
        return x[rows]

    def traced_once(function, inputs, *key):
        """See `keras_lm.layers.tensorflow`."""
        return function(inputs)

    def traced_alike(layer, *inputs, training=None):
        """See `keras_lm.layers.tensorflow`."""
        return layer(*inputs, training=training)

    def sizes(x):
        """See `keras_lm.layers.tensorflow`."""
        return tuple(ops.shape(x))

    def size_within(size, limit, most):
        """See `keras_lm.layers.tensorflow`."""
        return min(limit, most)

    def normal(shape, seed):
        """See `keras_lm.layers.tensorflow.normal`."""
        return keras.random.normal(shape, seed=seed)

    def in_some_rows(function, is_chosen, *tensors):
        """See `keras_lm.layers.tensorflow`; computes all, as shapes are static."""
        return ops.where(is_chosen, function(*tensors), 0.0)

    def products_for(dense):
        """Return None, since only TensorFlow exports models."""

    def narrowed(x):
        """Return `x`, for the same reason."""
        return x

    def is_growing():
        """Return False, since only LiteRT's loops have such a cache."""
        return False

    def is_long(queries, columns):
        """Return False, since other backends compute attention as a whole."""
        return False

    def keeps_axes(x):
        """Return False, since only TensorFlow exports models."""
        return False

    def takes_rules(queries, columns):
        """Whether causal masks are given to attention as a `Visible`."""
        return has_fused_kernel()

    def matmul_transposed(x, y):
        """See `keras_lm.layers.tensorflow.matmul_transposed`."""
        return ops.matmul(x, ops.swapaxes(y, -1, -2))

    def word_scores(x, table):
        """See `keras_lm.layers.tensorflow`.

        Columns of zeros make the words of a vocabulary a multiple of 64: without them, a GPU's
        products are half as fast, which is more than writing the table anew for many vectors.
        """
        rows, words = ops.reshape(x, (-1, x.shape[-1])), table.shape[0]
        table, number = ops.cast(table, x.dtype), rows.shape[0]
        if words % 64 and words >= 4096 and isinstance(number, int) and number >= 4096:
            table = ops.pad(table, [(0, -words % 64), (0, 0)])
        scores = ops.cast(matmul_transposed(rows, table)[:, :words], "float32")
        return ops.reshape(scores, (*ops.shape(x)[:-1], words))

    def require(condition, message, *values):
        """Do nothing, since other backends cannot raise errors in compiled code."""

    def num_replicas():
        """Return the number of replicas, which here is 1."""
        return 1

    def softmax(x):
        """Return the softmax over the last axis, without Keras's warning for an axis of size 1."""
        return ops.ones_like(x) if x.shape[-1] == 1 else ops.softmax(x)

    def sum_over_replicas(value):
        """Return the sum of a scalar over all replicas, which here is the scalar."""
        return value

    def write_slots(old, new, indices):
        """See `keras_lm.layers.tensorflow.write_slots`."""
        return ops.scatter_update(old, indices, new)


__all__ = [
    "Dropout",
    "argmax",
    "at_columns",
    "at_rows",
    "computed_again",
    "draw_seed",
    "dropout",
    "fused_attention",
    "gelu",
    "gelu_in_training",
    "in_blocks",
    "in_some_rows",
    "is_growing",
    "is_long",
    "keeps_axes",
    "known_array",
    "layer_norm_in_training",
    "map_chunks",
    "matmul",
    "matmul_transposed",
    "narrowed",
    "normal",
    "num_replicas",
    "products_for",
    "require",
    "reversible",
    "scan",
    "size_within",
    "sizes",
    "softmax",
    "split_seed",
    "sum_over_replicas",
    "takes_rules",
    "traced_alike",
    "traced_once",
    "word_scores",
    "write_slots",
]
