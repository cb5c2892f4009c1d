"""How much of a source a target has read, by the decoder's attention: GNMT's coverage penalty.

Shapes: B targets, N heads, T target tokens, S source tokens.

Source: https://arxiv.org/abs/1609.08144, equation 14.
"""

import tensorflow as tf

# What a token is read at least: the logarithm of 0 would rule a text out, whatever its likelihood.
TINIEST = 1e-30


def coverage(probabilities, target_mask, source_mask):
    """Return the sum over source tokens of log(min(what the target read of them, 1)), (B,) float32.

    It is 0 if each source token was read with weights that sum to 1 or more, and else negative.
    `probabilities` are a list of (B, N, T, S), of which the mean over blocks and heads counts;
    `target_mask` (B, T) is 1 where a token of the target was written, `source_mask` (B, S) where
    the source has one.
    """
    mean = tf.add_n([tf.reduce_mean(tf.cast(each, tf.float32), axis=1) for each in probabilities])
    mean /= len(probabilities)
    read = tf.einsum("bts,bt->bs", mean, tf.cast(target_mask, tf.float32))
    logarithms = tf.math.log(tf.clip_by_value(read, TINIEST, 1.0))
    return tf.reduce_sum(logarithms * tf.cast(source_mask, tf.float32), axis=1)
