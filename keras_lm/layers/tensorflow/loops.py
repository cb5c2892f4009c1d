"""A loop over the columns of a batch, and computing for some of its rows."""

from keras_lm.layers.tensorflow.tracing import is_for_lite
from keras_lm.tensorflow import tf


def scan(step, init, xs, reverse=False):
    """Like `keras.ops.scan`, with less overhead per step, and also for zero steps.

    The carry stays in the loop's variables, while `keras.ops.scan` writes it into an array. Every
    step returns one output `y` with the shape and type of `carry[0]`, so that the result has a
    shape even without steps. `step(carry, x)` returns `(carry, y)`, where `carry` and `x` are
    tuples. With `reverse`, the slices of `xs` (S, …) are read from last to first; the outputs are
    in the order of the slices.
    """
    if is_for_lite():
        return _scan_for_lite(step, init, xs, reverse)
    length = tf.shape(xs[0])[0]
    # The static number of rows may only be known from the carry, or only from the slices.
    any_rows = [tf.TensorShape([None, *first.shape[1:]]) for first in init]
    arrays = [
        tf.TensorArray(x.dtype, size=length, element_shape=x.shape[1:]).unstack(x) for x in xs
    ]
    # At least one slot with a value, because an empty array has no number of rows.
    ys = tf.TensorArray(init[0].dtype, size=tf.maximum(length, 1), element_shape=any_rows[0]).write(
        0, tf.zeros_like(init[0])
    )

    def body(count, ys, *carry):
        i = length - 1 - count if reverse else count
        carry, y = step(carry, tuple(array.read(i) for array in arrays))
        return (count + 1, ys.write(i, y), *carry)

    _, ys, *carry = tf.while_loop(
        lambda count, *_: count < length,
        body,
        (0, ys, *init),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape(None), *any_rows),
        maximum_iterations=xs[0].shape[0],
    )
    ys = ys.stack()[:length]
    ys.set_shape([xs[0].shape[0], *init[0].shape])
    for last, first in zip(carry, init, strict=True):
        last.set_shape(first.shape)
    return tuple(carry), ys


def _scan_for_lite(step, init, xs, reverse):
    length = tf.shape(xs[0])[0]
    numbers = tf.range(length)
    ys = tf.zeros(tf.concat([[length], tf.shape(init[0])], axis=0), init[0].dtype)

    def body(count, ys, *carry):
        i = length - 1 - count if reverse else count
        carry, y = step(carry, tuple(tf.gather(x, i) for x in xs))
        is_here = tf.reshape(numbers == i, [-1] + [1] * len(y.shape))
        return (count + 1, tf.where(is_here, y, ys), *carry)

    _, ys, *carry = tf.while_loop(lambda count, *_: count < length, body, (0, ys, *init))
    ys.set_shape([xs[0].shape[0], *init[0].shape])
    return tuple(carry), ys


def in_some_rows(function, is_chosen, *tensors):
    """Return what a function makes of the chosen rows, (N,) with 0 in the others.

    Args:
        function: callable of tensors (n, …) that returns (n,) float32. n may be 0.
        is_chosen: (N,) bool.
        *tensors: (N, …) each.
    """
    places = tf.where(is_chosen)  # (n, 1)
    found = function(*(tf.gather_nd(tensor, places) for tensor in tensors))
    number = tf.shape(is_chosen, tf.int64)
    return tf.ensure_shape(tf.scatter_nd(places, found, number), is_chosen.shape)
