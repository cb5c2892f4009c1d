"""Computing for some rows of a batch only. Shapes: N rows, n of them chosen."""

from keras_lm.tensorflow import tf


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
