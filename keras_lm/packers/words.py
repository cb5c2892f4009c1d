"""Rows for labels of words. Shapes: B batch, S sequence, W words, N words of all texts."""

import tensorflow as tf

from keras_lm.packers.rows import Texts
from keras_lm.tokenizers import ragged, splitting


class Words(Texts):
    """A text makes one row, which knows where each of its words begins.

    Args:
        splitter: how strings are split into words, see `keras_lm.tokenizers.splitting`. Lists of
            words are not split.
    """

    names = required = ("text",)

    def __init__(self, splitter="conll"):
        super().__init__(text_pair=False, takes_words=True)
        self.splitter = splitter

    def takes_words_of(self, tokenizer):
        """Return True: a word may have several pieces here."""
        return True

    def words(self, text):
        """Return the words of strings (B,), or of words (B, W), ragged, and their places.

        Those are `start` and `end` in characters of the string, ragged (B, W) int64; none for
        words. In words (B, W) that are not ragged, empty strings are padding: they have no pieces.
        """
        if isinstance(text, tf.RaggedTensor):
            return text, {}
        if text.shape.rank == 2:
            return tf.RaggedTensor.from_tensor(text), {}
        words, starts, ends = splitting.words_and_places(text, self.splitter)
        return words, {"start": starts, "end": ends}

    def pieces(self, packer, words, tokenize=None):
        """Return the ids of the pieces of words (N,), ragged (N, pieces of a word)."""
        tokenizer = packer.tokenizer
        if not hasattr(tokenizer, "tokenize_words"):
            return (tokenize or tokenizer)(words)
        is_word = words != ""  # a tokenizer of words has one piece for each
        ids = tokenizer.tokenize_words(tf.boolean_mask(words, is_word))
        return tf.RaggedTensor.from_row_lengths(ids, tf.cast(is_word, tf.int64))

    def pack(self, packer, columns, tokenize=None):
        words, _ = self.words(columns["text"])
        return self.pack_words(packer, words, self.pieces(packer, words.values, tokenize))[0]

    def pack_words(self, packer, words, pieces):
        """Return the packed dict, and the index in (B · S) of each word's first piece, (N,) int64.

        The index is -1 for a word without pieces, and for one that was truncated.
        """
        splits = tf.cast(pieces.row_splits, tf.int64)
        ids = tf.RaggedTensor.from_row_splits(
            pieces.values, tf.gather(splits, words.row_splits), validate=False
        )
        packed = packer.pack(text=ids)
        start, length = packer.spans(text=ids)["text"]
        row = ragged.row_ids(words)
        index = splits[:-1] - tf.gather(ids.row_starts(), row)  # of the first piece in its text
        has_place = (splits[1:] > splits[:-1]) & (index < tf.cast(tf.gather(length, row), tf.int64))
        columns = tf.shape(packed["padding_mask"], tf.int64)[1]
        places = row * columns + tf.cast(tf.gather(start, row), tf.int64) + index
        return packed, tf.where(has_place, places, -1)
