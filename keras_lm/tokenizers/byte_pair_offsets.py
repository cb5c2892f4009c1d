"""Where the tokens of byte-level BPE are in a text.

Shapes: B texts, P parts of them, S tokens of each, T all tokens.
"""

from keras_lm.tensorflow import tf
from keras_lm.tokenizers.strings import offsets_in_form, row_ids, size


def with_offsets(tokenizer, text, special=()):
    """Return ragged (B, S) ids, starts and ends, in bytes of valid UTF-8; see `Tokenizer`."""
    return offsets_in_form(
        text, tokenizer.normalization, lambda text: _in_normal_form(tokenizer, text, special)
    )


def _in_normal_form(tokenizer, text, special):
    tokens = [*tokenizer._rules.added_tokens, *special]
    parts = tokenizer._part_tokens(text, tokens)  # ragged (B, P)
    is_token = tokenizer._is_token(parts.values)  # (P,)
    length_of_part = size(parts.values) - tf.cast(is_token, tf.int64)
    spaced = tokenizer._prefix(parts.values)
    prefix = size(spaced) - size(parts.values)
    stripped = tokenizer._strip_tokens(spaced, tokens)
    ids = tokenizer._encode(stripped, with_tokens=True)  # ragged (P, S)
    # Pieces cover a part without gaps; a token also covers the white space that it includes.
    part = row_ids(ids)  # (T,)
    length = size(tf.gather(tokenizer._spellings, ids.values))
    if tokenizer._has_unknown:  # each stands for a byte
        length = tf.where(ids.values == tokenizer.special_id("unknown"), 1, length)
    length = tf.where(tf.gather(is_token, part), tf.gather(length_of_part, part), length)
    # Offsets in a part, without its prefix.
    before = tf.gather(tf.cumsum(length_of_part + prefix, exclusive=True) + prefix, part)
    ends = tf.cumsum(length) - before
    starts = tf.maximum(ends - length, 0)
    # Offsets in a text.
    of_text = parts.with_values(ids).merge_dims(1, 2)  # ragged (B, S)
    begin = tf.cumsum(length_of_part, exclusive=True)
    first = tf.gather(tf.concat([begin, [0]], 0), parts.row_starts())  # (B,)
    shift = tf.gather(begin, part) - tf.gather(first, row_ids(of_text))
    return of_text, of_text.with_values(starts + shift), of_text.with_values(ends + shift)
