"""Rows for labels of words.

Shapes: B batch, C windows, S sequence, W words of a text, N words of all texts.
"""

from collections.abc import Callable
from typing import Any

from keras_lm.argument_types import Tensor
from keras_lm.packers.overlapping_windows import parts_of_rows
from keras_lm.packers.packer import Packer, Texts
from keras_lm.tensorflow import require_installed, tf
from keras_lm.tokenizers import splitting, strings
from keras_lm.tokenizers.tokenizer import Tokenizer


class Words(Texts):
    """A text makes one row, and each of its words has a position there.

    Args:
        splitter: how strings are split into words, see `keras_lm.tokenizers.splitting`. Lists of
            words are not split.
        predicate: bool. Whether one word of each text is marked: the column `predicate`, (B,)
            strings, is its index in a list of words, or its offset in characters in a string. The
            word's pieces are in the second segment.
    """

    names = required = ("text",)

    def __init__(self, splitter: str = "conll", predicate: bool = False):
        super().__init__(text_pair=False, takes_words=True)
        self.splitter = splitter
        self.predicate = predicate
        if predicate:
            self.names = self.required = ("text", "predicate")
            self.word_names = ("text",)
            self.samples = {"predicate": "0"}

    def takes_words_of(self, tokenizer: Tokenizer) -> bool:
        """Return True: words may have several pieces here."""
        return True

    def are_words(self, columns: dict[str, Any]) -> bool:
        """Whether texts, lists without TensorFlow, are words already, and none of them is marked.

        Splitting strings, and what marks a word, is TensorFlow's.
        """
        return not self.predicate and not any(isinstance(text, bytes) for text in columns["text"])

    def words(self, text: Tensor) -> Any:
        """Return the words of strings (B,), or of words (B, W), ragged, and their places.

        Places are `start` and `end`, ragged (B, W) int64, in characters of the string; words have
        none. In words (B, W) that are not ragged, empty strings are padding and have no pieces.
        """
        require_installed("Splitting texts into words")
        if isinstance(text, tf.RaggedTensor):
            return text, {}
        if text.shape.rank == 2:
            return tf.RaggedTensor.from_tensor(text), {}
        words, starts, ends = splitting.words_and_places(text, self.splitter)
        return words, {"start": starts, "end": ends}

    def pieces(
        self, packer: Packer, words: Tensor, tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> Any:
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

    def marked(self, columns: dict[str, Tensor], places: Any) -> Tensor | None:
        """Return the index of the predicate, (B,) int64, or None; `places` are the words'."""
        if not self.predicate:
            return None
        place = tf.strings.to_number(columns["predicate"], tf.int64)
        if not places:
            return place
        begun = tf.cast(tf.cast(places["start"], tf.int64) <= place[:, tf.newaxis], tf.int64)
        return tf.reduce_sum(begun, axis=1) - 1

    def pack_words(self, packer: Packer, words: Tensor, pieces: Any, marked: Tensor = None) -> Any:
        """Return the packed dict, and the index in (B · S) of each word's first piece, (N,) int64.

        The index is -1 for words without pieces, and for truncated ones. `marked`, (B,) int64, is
        the index of the word in the second segment, if the text has it.
        """
        splits = tf.cast(pieces.row_splits, tf.int64)
        ids = tf.RaggedTensor.from_row_splits(
            pieces.values, tf.gather(splits, words.row_splits), validate=False
        )
        packed = packer.pack(text=ids)
        start, length = packer.spans(text=ids)["text"]
        row = strings.row_ids(words)
        index = splits[:-1] - tf.gather(ids.row_starts(), row)  # of the first piece in its text
        has_place = (splits[1:] > splits[:-1]) & (index < tf.cast(tf.gather(length, row), tf.int64))
        columns = tf.shape(packed["padding_mask"], tf.int64)[1]
        places = row * columns + tf.cast(tf.gather(start, row), tf.int64) + index
        if marked is not None:
            is_there = (marked >= 0) & (marked < words.row_lengths())
            word = words.row_starts() + tf.where(is_there, marked, 0)
            # One more, in case the last text has no words.
            ends = tf.concat([splits, splits[-1:]], axis=0)
            first, end = (tf.gather(ends, word + n) - ids.row_starts() for n in (0, 1))
            end = tf.minimum(tf.where(is_there, end, first), tf.cast(length, tf.int64))
            place = tf.range(columns) - tf.cast(start, tf.int64)[:, tf.newaxis]  # (B, S)
            inside = (place >= first[:, tf.newaxis]) & (place < end[:, tf.newaxis])
            packed["segment_ids"] = tf.where(inside, 1, packed["segment_ids"])
        return packed, tf.where(has_place, places, -1)


class WordEnds(Words):
    """Adds where each word ends to the row: `word_positions`, (B, W) int32.

    A word's position is 1 + the column of its last piece, or of the last piece before it if it has
    none, and 0 in padding. Words whose pieces were all truncated are left out.
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
        row = strings.row_ids(words)
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


class WordWindows(Words):
    """A document makes a row of consecutive windows, in which each word has a position.

    Every piece is in exactly one window, and a window may end within a word.

    Args:
        splitter: see `Words`.

    Packing returns the model's inputs, (B, C, S) each, with all padding in windows that a document
    does not have; and `word_positions` (B, W) int32: the column of a word's first piece among the
    C · S, counted from 1, and 0 for words without pieces and in padding.

    Source: Joshi et al. 2019, https://arxiv.org/abs/1908.09091, section 3 ("independent").
    """

    several_for = "CoreferenceResolver"

    def __init__(self, splitter: str = "conll"):
        super().__init__(splitter)

    def pack(self, packer, columns, tokenize=None):
        words, _ = self.words(columns["text"])
        return self.pack_windows(packer, words, self.pieces(packer, words.values, tokenize))

    def pack_windows(self, packer: Packer, words: Tensor, pieces: Any) -> dict[str, Any]:
        """Return the packed dict for words, ragged (B, W), and their pieces, ragged (N, None)."""
        room = packer.sequence_length - packer.number_of_special_tokens("single")
        splits = tf.cast(pieces.row_splits, tf.int32)  # (N + 1,)
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

        row = tf.cast(strings.row_ids(words), tf.int32)  # (N,)
        index = splits[:-1] - tf.gather(of_texts, row)  # of the first piece in its document
        window = row * most + index // room
        # The window of a last word without pieces may not exist.
        column, _ = packer.spans(**texts)["text"]
        column = tf.gather(tf.concat([column, [0, 0]], axis=0), window)
        places = 1 + (index // room) * size + column + index % room
        places = words.with_values(tf.where(splits[1:] > splits[:-1], places, 0))
        places = places.to_tensor()
        missing = tf.maximum(1 - tf.shape(places)[1], 0)  # at least one column
        return packed | {"word_positions": tf.pad(places, [[0, 0], [0, missing]])}
