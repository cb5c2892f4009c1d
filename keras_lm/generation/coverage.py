"""GNMT's coverage penalty: how much of a source the decoder's attention has covered.

Shapes: B targets, N heads, T target tokens, S source tokens.

Source: https://arxiv.org/abs/1609.08144, equation 14.
"""

from keras_lm.tensorflow import tf

# The least attention to a token, since log(0) would rule a text out, whatever its likelihood.
TINIEST = 1e-30


def coverage(probabilities, target_mask, source_mask):
    """Return the sum over source tokens of log(min(attention to the token, 1)), (B,) float32.

    It is 0 if the attention to every source token sums to 1 or more, and negative otherwise.
    `probabilities` is a list of (B, N, T, S), which is averaged over blocks and heads;
    `target_mask` (B, T) and `source_mask` (B, S) are 1 for real tokens.
    """
    mean = tf.add_n([tf.reduce_mean(tf.cast(each, tf.float32), axis=1) for each in probabilities])
    mean /= len(probabilities)
    read = tf.einsum("bts,bt->bs", mean, tf.cast(target_mask, tf.float32))
    logarithms = tf.math.log(tf.clip_by_value(read, TINIEST, 1.0))
    return tf.reduce_sum(logarithms * tf.cast(source_mask, tf.float32), axis=1)
