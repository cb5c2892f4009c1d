"""Rows for labels of words. Shapes: B batch, S sequence, W words, N words of all texts."""

import tensorflow as tf

from keras_lm.packers.rows import Texts
from keras_lm.tokenizers import ragged, splitting


class Words(Texts):
    """A text makes one row, which knows where each of its words begins.

    Args:
        splitter: how strings are split into words, see `keras_lm.tokenizers.splitting`. Lists of
            words are not split.
        predicate: bool. Whether one word of each text is marked: `predicate`, (B,) strings, is its
            place, in words of a list, in characters of a string. The word's pieces are in the
            second segment.
    """

    names = required = ("text",)

    def __init__(self, splitter="conll", predicate=False):
        super().__init__(text_pair=False, takes_words=True)
        self.splitter = splitter
        self.predicate = predicate
        if predicate:
            self.names = self.required = ("text", "predicate")
            self.word_names = ("text",)
            self.samples = {"predicate": "0"}

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
        words, places = self.words(columns["text"])
        pieces = self.pieces(packer, words.values, tokenize)
        return self.pack_words(packer, words, pieces, self.marked(columns, places))[0]

    def marked(self, columns, places):
        """Return which word is the predicate, (B,) int64, or None; `places` are the words'."""
        if not self.predicate:
            return None
        place = tf.strings.to_number(columns["predicate"], tf.int64)
        if not places:
            return place
        begun = tf.cast(tf.cast(places["start"], tf.int64) <= place[:, tf.newaxis], tf.int64)
        return tf.reduce_sum(begun, axis=1) - 1

    def pack_words(self, packer, words, pieces, marked=None):
        """Return the packed dict, and the index in (B · S) of each word's first piece, (N,) int64.

        The index is -1 for a word without pieces, and for one that was truncated. `marked` is the
        number of the word in the second segment, (B,) int64, of a text each; another marks none.
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
        if marked is not None:
            is_there = (marked >= 0) & (marked < words.row_lengths())
            word = words.row_starts() + tf.where(is_there, marked, 0)
            # One more, where the last text has no words.
            ends = tf.concat([splits, splits[-1:]], axis=0)
            first, end = (tf.gather(ends, word + n) - ids.row_starts() for n in (0, 1))
            end = tf.minimum(tf.where(is_there, end, first), tf.cast(length, tf.int64))
            place = tf.range(columns) - tf.cast(start, tf.int64)[:, tf.newaxis]  # (B, S)
            inside = (place >= first[:, tf.newaxis]) & (place < end[:, tf.newaxis])
            packed["segment_ids"] = tf.where(inside, 1, packed["segment_ids"])
        return packed, tf.where(has_place, places, -1)


class WordEnds(Words):
    """A row that also knows where each of its words ends: `word_positions`, (B, W) int32.

    A word's position is 1 + the column of its last piece, or of the last one before if it has none;
    it is 0 after the last word. Words without any piece inside of the row have none: the last ones
    of a text that was truncated.
    """

    def words(self, text):
        if not isinstance(text, tf.RaggedTensor) and text.shape.rank == 2:
            text = tf.RaggedTensor.from_tensor(text, padding="")
        return super().words(text)

    def pack_words(self, packer, words, pieces, marked=None):
        packed, places = super().pack_words(packer, words, pieces, marked)
        splits = tf.cast(pieces.row_splits, tf.int64)
        text_splits = tf.gather(splits, words.row_splits)
        ids = tf.RaggedTensor.from_row_splits(pieces.values, text_splits, validate=False)
        row = ragged.row_ids(words)
        start, length = (
            tf.gather(tf.cast(x, tf.int64), row) for x in packer.spans(text=ids)["text"]
        )
        first, end = (x - tf.gather(text_splits, row) for x in (splits[:-1], splits[1:]))
        is_seen = (first < length) | (end <= length)
        position = words.with_values(tf.maximum(start + tf.minimum(end, length), 1))
        position = tf.cast(tf.ragged.boolean_mask(position, words.with_values(is_seen)), tf.int32)
        is_fixed = packer.padding == "fixed"
        width = packer.sequence_length if is_fixed else tf.reduce_max(position.row_lengths())
        shape = tf.stack([position.nrows(), tf.maximum(tf.cast(width, tf.int64), 1)])
        packed["word_positions"] = position.to_tensor(shape=shape)
        return packed, places
