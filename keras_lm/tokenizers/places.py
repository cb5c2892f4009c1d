"""Tokens of texts and their places in characters. Shapes: B batch, S tokens of a text, n spans."""

import tensorflow as tf

from keras_lm.tokenizers import ragged, splitting


def tokens_and_places(tokenizer, text):
    """Return `(ids, starts, ends)` of (B,) texts, ragged (B, S), in characters of the texts.

    Tokenizers of words have no offsets of their own: a token is there a word.
    """
    if not hasattr(tokenizer, "tokenize_words"):
        return tokenizer.tokenize_with_offsets(text, "character")
    words, starts, ends = splitting.words_and_places(text, tokenizer.splitter)
    return words.with_values(tokenizer.tokenize_words(words.values)), starts, ends


def tokens_and_places_lite(tokenizer, text):
    """Return what `tokens_and_places` does with operations that LiteRT has.

    A token's place is there that of its whole word, as `lone_word_splitter` splits a text.

    Raises:
        ValueError: if the tokenizer has no such splitter, as those of byte pairs.
    """
    if hasattr(tokenizer, "tokenize_words"):
        splitter, rule = tokenizer.splitter, {"splitter": "whitespace"}
    elif tokenizer.lone_word_splitter:
        splitter, rule = tokenizer.lone_word_splitter, {}
    else:
        raise ValueError(
            f"{type(tokenizer).__name__} has no places of tokens in LiteRT, which answers need: "
            "export as a SavedModel instead."
        )
    words, starts, ends, _ = splitting.words_and_places_lite(text, splitter)
    pieces = tokenizer.tokenize_lite(words.values, **rule)
    splits = tf.gather(tf.cast(pieces.row_splits, tf.int32), tf.cast(words.row_splits, tf.int32))
    ids = tf.RaggedTensor.from_row_splits(pieces.values, splits, validate=False)
    word = ragged.row_ids(pieces)
    return ids, *(ids.with_values(tf.gather(place.values, word)) for place in (starts, ends))


def substrings(text, starts, ends):
    """Return the parts of (B,) texts of valid UTF-8 between (B, n) places in characters: (B, n).

    By operations that LiteRT has.
    """
    texts = ragged.bytes_of(text)
    data = tf.cast(texts.values, tf.int32)
    is_first = (data < 0x80) | (data >= 0xC0)
    total = tf.cast(tf.shape(data), tf.int32)  # (1,)
    bytes_of = tf.concat([tf.cast(tf.where(is_first)[:, 0], tf.int32), total], axis=0)
    before = tf.concat([[0], tf.cumsum(tf.cast(is_first, tf.int32))], axis=0)
    first_byte = tf.cast(texts.row_starts(), tf.int32)[:, tf.newaxis]  # (B, 1)
    first = tf.gather(before, first_byte)
    last = tf.shape(bytes_of)[0] - 1

    def in_bytes(places):
        splits = tf.range(tf.shape(places)[0] + 1) * tf.shape(places)[1]
        flat = tf.gather(bytes_of, tf.minimum(first + places, last)) - first_byte
        flat = tf.reshape(tf.maximum(flat, 0), [-1])
        return tf.RaggedTensor.from_row_splits(flat, tf.cast(splits, tf.int64), validate=False)

    parts = ragged.parts_of(text, in_bytes(starts), in_bytes(ends))
    return tf.reshape(parts.values, tf.shape(starts))
