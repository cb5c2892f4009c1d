"""Where tokens are in a text. Shapes: B texts, S tokens of each, T all tokens, N characters."""

from keras_lm.tensorflow import tf
from keras_lm.tokenizers.strings import bytes_of, parts_of, row_ids, size


def in_original(text, starts, ends, unit):
    """Turn ragged (B, S) byte offsets in `valid_utf8(text)` into offsets in the text as given.

    Counted in characters, a span that begins or ends within a character includes all of it.
    """
    codes, offsets = tf.strings.unicode_decode_with_offsets(text, "UTF-8")
    rows = codes.with_row_splits_dtype(tf.int64).row_splits
    widths = 1 + sum(tf.cast(codes.values >= first, tf.int64) for first in (0x80, 0x800, 0x10000))
    # One text after the other, so that a single search is enough.
    bounds = tf.concat([[tf.constant(0, tf.int64)], tf.cumsum(widths)], 0)  # (N + 1,)
    begins = bounds[:-1]
    rows_of_spans = row_ids(starts)  # (T,)
    shift = tf.gather(tf.gather(bounds, rows), rows_of_spans)
    starts_here, ends_here = starts.values + shift, ends.values + shift
    first = tf.searchsorted(begins, starts_here, "right", tf.int64) - 1  # characters, (T,)
    last = tf.searchsorted(begins, ends_here - 1, "right", tf.int64) - 1
    is_empty = starts_here == ends_here  # a piece that stands for nothing in the text
    if unit == "character":
        before = tf.gather(rows, rows_of_spans)
        last = tf.where(is_empty, first - 1, last)
        return starts.with_values(first - before), ends.with_values(last + 1 - before)
    last = tf.where(is_empty, first, last)
    # A character ends where the next one of its text begins, the last one with the text.
    has_any = tf.where(rows[1:] > rows[:-1])
    ends_of_characters = tf.tensor_scatter_nd_update(
        tf.concat([offsets.values[1:], offsets.values[:1]], 0),
        tf.gather_nd(rows[1:], has_any)[:, tf.newaxis] - 1,
        tf.gather_nd(size(text), has_any),
    )

    def place(characters, positions):
        begin = tf.gather(offsets.values, characters)
        within = positions - tf.gather(begins, characters)
        return tf.minimum(begin + within, tf.gather(ends_of_characters, characters))

    return starts.with_values(place(first, starts_here)), ends.with_values(place(last, ends_here))


def covering(sizes, characters, left):
    """Return byte offsets `(starts, ends)` of tokens that cover all that is left of a text.

    Args:
        sizes: ragged (B, S) int64, how much of what is left each token covers.
        characters: ragged (B, N) strings of one character each.
        left: int64, how much is left of each character, all texts in one dimension.
    """
    # One text after the other, so that a single search is enough.
    left_ends, token_ends = tf.cumsum(left), tf.cumsum(sizes.values)
    first = tf.searchsorted(left_ends, token_ends - sizes.values, "right", tf.int64)  # (T,)
    last = tf.searchsorted(left_ends, token_ends, "left", tf.int64)
    widths = size(characters.values)
    ends = tf.cumsum(widths)
    begins = ends - widths
    row_begins = tf.gather(tf.concat([begins, [0]], axis=0), characters.row_starts())
    shift = tf.gather(row_begins, row_ids(sizes))
    return (
        sizes.with_values(tf.gather(begins, first) - shift),
        sizes.with_values(tf.gather(ends, last) - shift),
    )


def substrings(text, starts, ends):
    """Return the parts of (B,) texts of valid UTF-8 between (B, S) character offsets, (B, S).

    Uses only operations that LiteRT has.
    """
    texts = bytes_of(text)
    data = tf.cast(texts.values, tf.int32)
    is_first = (data < 0x80) | (data >= 0xC0)  # of a character
    total = tf.cast(tf.shape(data), tf.int32)  # (1,)
    first_bytes = tf.concat([tf.cast(tf.where(is_first)[:, 0], tf.int32), total], axis=0)
    before = tf.concat([[0], tf.cumsum(tf.cast(is_first, tf.int32))], axis=0)
    begins = tf.cast(texts.row_starts(), tf.int32)[:, tf.newaxis]  # (B, 1)
    first = tf.gather(before, begins)
    last = tf.shape(first_bytes)[0] - 1

    def in_bytes(places):
        splits = tf.range(tf.shape(places)[0] + 1) * tf.shape(places)[1]
        flat = tf.gather(first_bytes, tf.minimum(first + places, last)) - begins
        flat = tf.reshape(tf.maximum(flat, 0), [-1])
        return tf.RaggedTensor.from_row_splits(flat, tf.cast(splits, tf.int64), validate=False)

    parts = parts_of(text, in_bytes(starts), in_bytes(ends))
    return tf.reshape(parts.values, tf.shape(starts))
