"""Rows of ragged tensors, in memory that grows with their values alone.

TensorFlow's own `value_rowids`, `tf.ragged.boolean_mask` and `tf.strings.reduce_join` make a table
of rows × longest row on the way: gigabytes if one text among ten thousand is long.
"""

import tensorflow as tf
from tensorflow_text.python.ops.byte_splitter import gen_byte_splitter


def row_ids(ragged):
    """Return the row of each value of a ragged (B, S) tensor, (number of values,) int64."""
    # Of each place, how many rows end there: operations that LiteRT has, too.
    ends = tf.cast(ragged.row_splits, tf.int32)[1:-1]
    ends = tf.scatter_nd(ends[:, tf.newaxis], tf.ones_like(ends), [tf.size(ragged.values) + 1])
    return tf.cast(tf.cumsum(ends)[:-1], tf.int64)


def keep(ragged, mask):
    """Return a ragged (B, S) tensor of those values whose place in a flat mask is True."""
    kept = tf.concat([[0], tf.cumsum(tf.cast(mask, tf.int64))], 0)
    return tf.RaggedTensor.from_row_splits(
        tf.boolean_mask(ragged.values, mask), tf.gather(kept, ragged.row_splits), validate=False
    )


def join(ragged, separator=""):
    """Return the strings of each row of a ragged (B, S) tensor joined, (B,)."""
    return tf.strings.unsorted_segment_join(
        ragged.values, row_ids(ragged), ragged.nrows(), separator
    )


def split(text, separator):
    """Return the parts of (B,) strings between separators of a byte, (B, P), no empty ones."""
    found = tf.raw_ops.StringSplit(input=text, delimiter=separator, skip_empty=True)
    rows = tf.range(tf.size(text, tf.int64) + 1)
    splits = tf.searchsorted(found.indices[:, 0], rows, out_type=tf.int64)
    return tf.RaggedTensor.from_row_splits(found.values, splits, validate=False)


# The kernels of TensorFlow Text's ByteSplitter, which itself makes several ragged tensors of what
# they return and checks each: 200 operations more in every graph, none of which can fail.


def bytes_of(text):
    """Return the bytes of (B,) strings, ragged (B, bytes) uint8."""
    values, row_splits, *_ = gen_byte_splitter.tf_text_byte_split_with_offsets(text)
    return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)


def parts_of(text, starts, ends):
    """Return the parts of (B,) strings between ragged (B, P) places in bytes, ragged (B, P)."""
    values, row_splits = gen_byte_splitter.tf_text_byte_split_by_offsets(
        text, starts.values, ends.values, starts.row_splits
    )
    return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)
