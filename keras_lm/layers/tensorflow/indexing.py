"""What the steps of decoding look up: in a row, among rows, and how many candidates."""

from keras_lm.tensorflow import tf


def argmax(logits):
    """Return the place of the largest number in each row (B, V), (B,) int32."""
    return tf.argmax(logits, axis=-1, output_type=tf.int32)


def at_columns(x, columns):
    """Return what each row of `x` (B, T, …) has in its own columns, (B,) or (B, K)."""
    return tf.gather(x, columns, batch_dims=1)


def at_rows(x, rows):
    """Return rows of `x` (B, …), by their indices of any shape."""
    return tf.gather(x, rows)


def size_within(size, limit, most):
    """Return the size to compute where `size` is asked for: it, and at most `limit`.

    Where shapes are static, it is `limit`, and at most `most`, which no size exceeds.
    """
    return tf.minimum(size, limit)
