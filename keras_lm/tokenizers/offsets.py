"""Places of tokens: in the valid form of a text, and from there in the text as it was given."""

import tensorflow as tf

from keras_lm.tokenizers import ragged

UNITS = ("byte", "character")


def valid_utf8(text):
    """Return (B,) strings with U+FFFD in place of invalid UTF-8."""
    # Most rows are valid, and telling so costs a tenth of converting them.
    is_valid = tf.strings.regex_full_match(text, r"[\x{0}-\x{D7FF}\x{E000}-\x{10FFFF}]*")
    rows = tf.where(tf.logical_not(is_valid))
    valid = tf.strings.unicode_transcode(tf.gather_nd(text, rows), "UTF-8", "UTF-8")
    return tf.tensor_scatter_nd_update(text, rows, valid)


def drop_unfinished(text):
    """Drop the bytes of a character that the end of (B,) strings cuts off."""
    length = tf.strings.length(text)
    tail = tf.strings.substr(text, tf.maximum(length - 3, 0), tf.fill(tf.shape(text), 3))
    tail = tf.cast(tf.io.decode_raw(tail, tf.uint8, fixed_length=3), tf.int32)  # (B, 3)
    # How many bytes the character has that begins here; 0 where none does, or one of ASCII.
    begins = tf.cast((tail >= 0xC2) & (tail < 0xF5), tf.int32)
    needs = begins * (2 + tf.cast(tail >= 0xE0, tf.int32) + tf.cast(tail >= 0xF0, tf.int32))
    rest = tf.minimum(length, 3)[:, tf.newaxis] - tf.range(3)  # bytes from here to the end
    unfinished = tf.where((needs > rest) & (rest > 0), rest, 0)
    return tf.strings.substr(text, tf.zeros_like(length), length - tf.reduce_max(unfinished, 1))


def in_original(text, starts, ends, unit):
    """Turn ragged (B, S) spans of bytes in `valid_utf8(text)` into spans in the text as given.

    A span that begins or ends within a character includes all of it when counted in characters.
    """
    codes, places = tf.strings.unicode_decode_with_offsets(text, "UTF-8")
    rows = codes.with_row_splits_dtype(tf.int64).row_splits
    widths = 1 + sum(tf.cast(codes.values >= first, tf.int64) for first in (0x80, 0x800, 0x10000))
    # All texts one after the other, so that one search does for all.
    bounds = tf.concat([[tf.constant(0, tf.int64)], tf.cumsum(widths)], 0)
    begins = bounds[:-1]
    rows_of_spans = ragged.row_ids(starts)
    shift = tf.gather(tf.gather(bounds, rows), rows_of_spans)
    starts_here, ends_here = starts.values + shift, ends.values + shift
    first = tf.searchsorted(begins, starts_here, "right", tf.int64) - 1
    last = tf.searchsorted(begins, ends_here - 1, "right", tf.int64) - 1
    is_empty = starts_here == ends_here  # of a piece that stands for nothing in the text
    if unit == "character":
        before = tf.gather(rows, rows_of_spans)
        last = tf.where(is_empty, first - 1, last)
        return starts.with_values(first - before), ends.with_values(last + 1 - before)
    last = tf.where(is_empty, first, last)
    # A character ends where the next one of its text begins, the last one with the text.
    has_any = tf.where(rows[1:] > rows[:-1])
    ends_of_characters = tf.tensor_scatter_nd_update(
        tf.concat([places.values[1:], places.values[:1]], 0),
        tf.gather_nd(rows[1:], has_any)[:, tf.newaxis] - 1,
        tf.cast(tf.gather_nd(tf.strings.length(text), has_any), tf.int64),
    )

    def place(characters, positions):
        begin = tf.gather(places.values, characters)
        within = positions - tf.gather(begins, characters)
        return tf.minimum(begin + within, tf.gather(ends_of_characters, characters))

    return starts.with_values(place(first, starts_here)), ends.with_values(place(last, ends_here))


def covering(sizes, characters, left):
    """Return `(starts, ends)` of tokens that cover all that is left of a text, in its bytes.

    `characters` are ragged (B, N) strings of a character each, `left` is how much is left of each,
    and ragged (B, S) `sizes` is how much of what is left each token covers; numbers are int64.
    """
    # All texts one after the other, so that one search does for all.
    left_ends, token_ends = tf.cumsum(left), tf.cumsum(sizes.values)
    first = tf.searchsorted(left_ends, token_ends - sizes.values, "right", tf.int64)
    last = tf.searchsorted(left_ends, token_ends, "left", tf.int64)
    widths = tf.cast(tf.strings.length(characters.values), tf.int64)
    ends = tf.cumsum(widths)
    begins = ends - widths
    row_begins = tf.gather(tf.concat([begins, [0]], axis=0), characters.row_starts())
    shift = tf.gather(row_begins, ragged.row_ids(sizes))
    return (
        sizes.with_values(tf.gather(begins, first) - shift),
        sizes.with_values(tf.gather(ends, last) - shift),
    )
