"""Alignment of prompts of different lengths, so that all rows continue in the same column.

Shapes: B batch, S sequence.
"""

import tensorflow as tf

from keras_lm.tokenizers import strings


def align(token_ids, room):
    """Keep the last `room` (B,) tokens of each row of ragged (B, S), and pad on the left with 0.

    Returns `(token_ids, padding_mask)`, (B, P) with P at least 1.
    """
    length = tf.minimum(tf.cast(token_ids.row_lengths(), tf.int32), room)
    columns = tf.reduce_max(tf.concat([length, [1]], axis=0))
    back = columns - tf.range(columns)  # (P,): from 1 at the right edge on
    real = back <= length[:, tf.newaxis]  # (B, P)
    ends = tf.cast(token_ids.row_limits(), tf.int32)[:, tf.newaxis]
    values = tf.concat([token_ids.values, [0]], axis=0)  # never empty
    ids = tf.gather(values, tf.where(real, ends - back, 0))
    return tf.where(real, ids, 0), tf.cast(real, tf.int32)


def real_tokens(token_ids, padding_mask):
    """Return token ids (B, S) without padding, as a ragged tensor."""
    rows = tf.RaggedTensor.from_tensor(token_ids)
    return strings.keep(rows, tf.reshape(padding_mask, [-1]) > 0)
