"""Windows of documents of words. Shapes: B batch, C windows, S sequence, W words of a document."""

import tensorflow as tf

from keras_lm.packers.overlapping_windows import parts_of_rows
from keras_lm.packers.words import Words
from keras_lm.tokenizers import ragged


class WordWindows(Words):
    """A document makes a row of windows, one after the other, in which each word has its place.

    No piece is in two windows, none is truncated, and a window may end within a word.

    Args:
        splitter: see `Words`.

    Packing returns the model's inputs, (B, C, S) each, where windows that a document does not have
    are all padding; and `word_positions` (B, W) int32: where among the C · S columns a word's first
    piece is, counted from 1, and 0 for words without pieces and in padding.

    Source: Joshi et al. 2019, https://arxiv.org/abs/1908.09091, section 3 ("independent").
    """

    several_for = "CoreferenceResolver"

    def __init__(self, splitter="conll"):
        super().__init__(splitter)

    def pack(self, packer, columns, tokenize=None):
        words, _ = self.words(columns["text"])
        return self.pack_windows(packer, words, self.pieces(packer, words.values, tokenize))

    def pack_windows(self, packer, words, pieces):
        """Return the packed dict of words, ragged (B, W), and of their pieces, ragged (N, None)."""
        room = packer.sequence_length - packer.number_of_special_tokens("single")
        splits = tf.cast(pieces.row_splits, tf.int32)  # of all words
        of_texts = tf.gather(splits, tf.cast(words.row_splits, tf.int32))  # (B + 1,)
        number = of_texts[1:] - of_texts[:-1]
        windows = tf.maximum((number + room - 1) // room, 1)  # (B,)
        most = tf.maximum(tf.reduce_max(windows), 1)  # C; 1 in an empty batch
        begin = tf.range(most) * room  # (C,)
        first = tf.reshape(of_texts[:-1, tf.newaxis] + begin, [-1])
        length = tf.clip_by_value(number[:, tf.newaxis] - begin, 0, room)
        texts = {"text": parts_of_rows(pieces, first, tf.reshape(length, [-1]))}
        packed = packer.pack(**texts)
        size = tf.shape(packed["padding_mask"])[1]
        there = tf.cast(tf.range(most) < windows[:, tf.newaxis], tf.int32)  # (B, C)
        shape = tf.shape(there)
        packed = {
            name: tf.reshape(value, tf.concat([shape, tf.shape(value)[1:]], axis=0))
            for name, value in packed.items()
        }
        packed["padding_mask"] *= there[:, :, tf.newaxis]

        row = tf.cast(ragged.row_ids(words), tf.int32)
        index = splits[:-1] - tf.gather(of_texts, row)  # of a word's first piece in its document
        window = row * most + index // room
        # Of a last word without pieces, the window may be none.
        column, _ = packer.spans(**texts)["text"]
        column = tf.gather(tf.concat([column, [0, 0]], axis=0), window)
        places = 1 + (index // room) * size + column + index % room
        places = words.with_values(tf.where(splits[1:] > splits[:-1], places, 0))
        places = places.to_tensor()
        missing = tf.maximum(1 - tf.shape(places)[1], 0)  # a column at least
        return packed | {"word_positions": tf.pad(places, [[0, 0], [0, missing]])}
