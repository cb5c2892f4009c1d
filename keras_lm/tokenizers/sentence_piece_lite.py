"""Where SentencePiece's pieces are in a text, with operations that LiteRT has.

Shapes: W words of all texts, T pieces, C characters.
"""

import numpy as np

from keras_lm.tensorflow import tf
from keras_lm.tokenizers import splitting, strings
from keras_lm.tokenizers.lite_letters import CHANGEABLE, code_points
from keras_lm.tokenizers.lite_operations import (
    CodePointTable,
    flags,
    put,
    valid_utf8,
    value_before,
)
from keras_lm.tokenizers.sentence_piece_model import SPACE


class LitePlaces:
    """Finds pieces and their places.

    Text is split at white space, which no piece crosses. In a word, pieces cover its characters as
    they are normalised, whose lengths are in a table.

    Args:
        tokenizer: `SentencePieceTokenizer`.
        aligner: see `keras_lm.tokenizers.sentence_piece_steps.Aligner`.
    """

    def __init__(self, tokenizer, aligner):
        self._tokenizer, self._unknown_id = tokenizer, tokenizer.special_id("unknown")
        pieces = [piece.removeprefix(SPACE) for piece in tokenizer.vocabulary]
        self._sizes = tf.constant([len(piece.encode()) for piece in pieces], tf.int32)
        codes = np.array([code for codes in CHANGEABLE for code in codes], np.int32)
        texts = tf.strings.unicode_encode(tf.constant(codes)[:, tf.newaxis], "UTF-8")
        splits, characters = aligner.rows(texts)
        row = np.repeat(np.arange(len(codes)), np.diff(splits.numpy()))
        is_space = characters.pieces.numpy() == SPACE.encode()
        lengths, unknown = np.zeros([2, 0x110000], np.int32)
        lengths += 4  # of most others
        lengths[codes] = np.bincount(row, characters.lengths.numpy() * ~is_space, len(codes))
        unknown[codes] = np.bincount(row, characters.are_unknown.numpy(), len(codes)) > 0
        self._lengths, self._unknown = CodePointTable(lengths), CodePointTable(unknown)

    def __call__(self, text):
        """Return ids, starts and ends of (B,) texts, ragged (B, S) int32 each."""
        words, word_starts, _, _ = splitting.words_and_places_lite(text, "whitespace")
        pieces = self._tokenizer.tokenize_lite(words.values)  # ragged (W, S)
        codes, splits = code_points(*valid_utf8(words.values))  # (C,), and spaces after the last
        is_first = flags(splits, tf.size(codes))
        lengths = self._lengths(codes)
        is_unknown = self._unknown(codes) > 0

        # Each unknown piece is a run of unknown characters, in the same order.
        begins_run = is_unknown & (is_first | ~value_before(is_unknown, 1, False))
        run = tf.cumsum(tf.cast(begins_run, tf.int32))  # from 1
        runs = put(tf.where(is_unknown, lengths, 0), run, tf.size(codes) + 1)
        is_one = pieces.values == self._unknown_id
        number = tf.minimum(tf.cumsum(tf.cast(is_one, tf.int32)), tf.size(codes))
        sizes = tf.where(is_one, tf.gather(runs, number), tf.gather(self._sizes, pieces.values))

        # In words, pieces end after so many bytes, and no later than the word.
        word = strings.row_ids(pieces)  # (T,)
        bounds = tf.concat([[0], tf.cumsum(lengths)], 0)
        begins, limits = tf.gather(bounds, splits[:-1]), tf.gather(bounds, splits[1:])
        total = tf.concat([[0], tf.cumsum(sizes)], 0)
        before = tf.gather(total, tf.cast(pieces.row_splits, tf.int32)[:-1])
        shift = tf.gather(begins - before, word)
        limit = tf.gather(limits, word)
        starts, ends = (tf.minimum(x + shift, limit) for x in (total[:-1], total[1:]))

        # How many characters began and ended up to each byte.
        begun, ended = (
            tf.cumsum(put(tf.ones_like(lengths), places, bounds[-1] + 1))
            for places in (bounds[:-1], bounds[1:])
        )
        last = tf.minimum(tf.gather(begun, tf.maximum(ends - 1, 0)), tf.gather(ended, ends))
        first = tf.minimum(tf.gather(begun, starts) - 1, last)
        at = tf.gather(word_starts.values - splits[:-1], word)
        text_splits = tf.gather(pieces.row_splits, tf.cast(words.row_splits, tf.int32))
        ids = tf.RaggedTensor.from_row_splits(pieces.values, text_splits, validate=False)
        # A piece that is a space alone is before its word.
        begin = tf.gather(word_starts.values, word)
        first = tf.where(sizes > 0, first + at, tf.maximum(begin - 1, 0))
        last = tf.where(sizes > 0, last + at, begin)
        return ids, ids.with_values(first), ids.with_values(last)
