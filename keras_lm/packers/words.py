"""Rows for labels of words.

Shapes: B batch, C windows, S sequence, T tokens of a text, W words of a text, N words of all texts.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras_lm.packers.packer import Packer, Texts
from keras_lm.tensorflow import require_installed, tf
from keras_lm.tokenizers import splitting, strings
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.utils.argument_types import Tensor


class Pieces(NamedTuple):
    """The tokens of texts, and which of them are each word's: `first` up to `end`, in its text.

    A word without any has an `end` that is not above `first`. Tokens need not be a word's, and two
    words may share one.
    """

    ids: Any  # ragged (B, T) int32
    first: Any  # (N,) int64
    end: Any  # (N,) int64


class Words(Texts):
    """A text makes one row, and each of its words has a position there.

    Strings are tokenized as a whole, and their words found by offsets. The words of a list are
    tokenized one by one, with a space before each if the tokenizer's pieces have it.

    Args:
        splitter: how strings are split into words, see `keras_lm.tokenizers.splitting`. Lists of
            words are not split.
        whole_texts: bool. If False, the words of strings are tokenized one by one, too, and none
            has a space before it; languages that are written without spaces are not split.
        predicate: bool. Whether one word of each text is marked: the column `predicate`, (B,)
            strings, is its index in a list of words, or its offset in characters in a string. The
            word's pieces are in the second segment.
    """

    names = required = ("text",)

    def __init__(self, splitter: str = "conll", predicate: bool = False, whole_texts: bool = True):
        super().__init__(text_pair=False, takes_words=True)
        self.splitter = splitter
        self.whole_texts = whole_texts
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

    def words(self, text: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the words of strings (B,), or of words (B, W), ragged, and their places.

        Places are `start` and `end`, ragged (B, W) int64, in characters of the string; words have
        none. In words (B, W) that are not ragged, empty strings are padding and have no pieces.
        """
        require_installed("Splitting texts into words")
        if isinstance(text, tf.RaggedTensor):
            return text, {}
        if text.shape.rank == 2:
            return tf.RaggedTensor.from_tensor(text), {}
        words, starts, ends = splitting.words_and_places(text, self.splitter, self.whole_texts)
        return words, {"start": starts, "end": ends}

    def read(
        self,
        packer: Packer,
        text: Tensor,
        tokenize: Callable[[Tensor], Tensor] | None = None,
        parse_special: Sequence[str] = (),
    ) -> tuple[Tensor, dict[str, Tensor], Pieces]:
        """Return the words of strings (B,) or words (B, W), their places, and their `Pieces`.

        Words and places are those of `words`. `tokenize` replaces the tokenizer, for words one by
        one; `parse_special` are the special tokens that strings may spell.
        """
        words, places = self.words(text)
        tokenizer = packer.tokenizer
        if not places or not self.whole_texts or not tokenizer.has_offsets(parse_special):
            return words, places, self.alone(packer, words, tokenize, parse_special)
        ids, *offsets = tokenizer.tokenize_with_offsets(text, "character", parse_special)
        return words, places, pieces_in_text(ids, *offsets, words, *places.values())

    def alone(
        self,
        packer: Packer,
        words: Tensor,
        tokenize: Callable[[Tensor], Tensor] | None = None,
        parse_special: Sequence[str] = (),
    ) -> Pieces:
        """Return the `Pieces` of words (B, W), tokenized one by one; see `read`."""
        tokenizer, is_word = packer.tokenizer, words.values != ""
        if hasattr(tokenizer, "tokenize_words"):  # one piece for each
            ids = tokenizer.tokenize_words(tf.boolean_mask(words.values, is_word))
            ids = tf.RaggedTensor.from_row_lengths(ids, tf.cast(is_word, tf.int64))
        elif self.whole_texts and tokenizer.with_space is not tokenizer:
            ids = tokenizer.with_space(words.values, parse_special)
        else:
            ids = (tokenize or tokenizer)(words.values)
        return pieces_of_words(words, ids)

    def pack(
        self,
        packer: Packer,
        columns: dict[str, Any],
        tokenize: Callable[..., Any] | None = None,
        parse_special: Sequence[str] = (),
    ) -> dict[str, Tensor]:
        words, places, pieces = self.read(packer, columns["text"], tokenize, parse_special)
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

    def pack_words(
        self, packer: Packer, words: Tensor, pieces: Pieces, marked: Tensor | None = None
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Return the packed dict, and the index in (B · S) of each word's first piece, (N,) int64.

        The index is -1 for words without pieces, and for truncated ones. `marked`, (B,) int64, is
        the index of the word in the second segment, if the text has it.
        """
        ids, first, end = pieces
        packed = packer.pack(text=ids)
        start, length = (tf.cast(x, tf.int64) for x in packer.spans(text=ids)["text"])
        row = strings.row_ids(words)
        cut = tf.cast(packer.cut_off(ids, packer.spans(text=ids)["text"][1]), tf.int64)
        first, end = (place - tf.gather(cut, row) for place in (first, end))  # in what is kept
        has_place = (end > first) & (first >= 0) & (first < tf.gather(length, row))
        columns = tf.shape(packed["padding_mask"], tf.int64)[1]
        places = row * columns + tf.gather(start, row) + first
        if marked is not None:
            is_there = (marked >= 0) & (marked < words.row_lengths())
            word = words.row_starts() + tf.where(is_there, marked, 0)
            # One more, in case the last text has no words.
            first, end = (tf.gather(tf.concat([x, [0]], axis=0), word) for x in (first, end))
            end = tf.minimum(tf.where(is_there, end, first), length)
            place = tf.range(columns) - start[:, tf.newaxis]  # (B, S)
            inside = (place >= first[:, tf.newaxis]) & (place < end[:, tf.newaxis])
            packed["segment_ids"] = tf.where(inside, 1, packed["segment_ids"])
        return packed, tf.where(has_place, places, -1)


class WordEnds(Words):
    """Adds where each word ends to the row: `word_positions`, (B, W) int32.

    A word's position is 1 + the column of its last piece, or of the last piece before it if it has
    none, and 0 in padding. Words whose pieces were all truncated are left out.
    """

    truncation_sides = ("right",)

    def words(self, text: Any) -> tuple[Tensor, dict[str, Tensor]]:
        if not isinstance(text, tf.RaggedTensor) and text.shape.rank == 2:
            text = tf.RaggedTensor.from_tensor(text, padding="")
        return super().words(text)

    def pack_words(
        self, packer: Packer, words: Tensor, pieces: Pieces, marked: Tensor | None = None
    ) -> tuple[dict[str, Tensor], Tensor]:
        packed, places = super().pack_words(packer, words, pieces, marked)
        ids, first, end = pieces
        row = strings.row_ids(words)
        start, length = (
            tf.gather(tf.cast(x, tf.int64), row) for x in packer.spans(text=ids)["text"]
        )
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
        splitter, whole_texts: see `Words`.

    Packing returns the model's inputs, (B, C, S) each, with all padding in windows that a document
    does not have; and `word_positions` (B, W) int32: the column of a word's first piece among the
    C · S, counted from 1, and 0 for words without pieces and in padding.

    Source: Joshi et al. 2019, https://arxiv.org/abs/1908.09091, section 3 ("independent").
    """

    several_for = "CoreferenceResolver"

    def __init__(self, splitter: str = "conll", whole_texts: bool = True):
        super().__init__(splitter, whole_texts=whole_texts)

    def pack(
        self,
        packer: Packer,
        columns: dict[str, Any],
        tokenize: Callable[..., Any] | None = None,
        parse_special: Sequence[str] = (),
    ) -> dict[str, Tensor]:
        words, _, pieces = self.read(packer, columns["text"], tokenize, parse_special)
        return self.pack_windows(packer, words, pieces)

    def pack_windows(self, packer: Packer, words: Tensor, pieces: Pieces) -> dict[str, Any]:
        """Return the packed dict for words, ragged (B, W), and their pieces."""
        room = packer.sequence_length - packer.number_of_special_tokens("single")
        of_texts = tf.cast(pieces.ids.row_splits, tf.int32)  # (B + 1,)
        number = of_texts[1:] - of_texts[:-1]
        windows = tf.maximum((number + room - 1) // room, 1)  # (B,)
        most = tf.maximum(tf.reduce_max(windows), 1)  # C; 1 in an empty batch
        begin = tf.range(most) * room  # (C,)
        first = tf.reshape(of_texts[:-1, tf.newaxis] + begin, [-1])
        length = tf.clip_by_value(number[:, tf.newaxis] - begin, 0, room)
        texts = {"text": strings.parts_of_rows(pieces.ids, first, tf.reshape(length, [-1]))}
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
        index = tf.cast(pieces.first, tf.int32)
        window = row * most + index // room
        # The window of a last word without pieces may not exist.
        column, _ = packer.spans(**texts)["text"]
        column = tf.gather(tf.concat([column, [0, 0]], axis=0), window)
        places = 1 + (index // room) * size + column + index % room
        places = words.with_values(tf.where(pieces.end > pieces.first, places, 0))
        places = places.to_tensor()
        missing = tf.maximum(1 - tf.shape(places)[1], 0)  # at least one column
        return packed | {"word_positions": tf.pad(places, [[0, 0], [0, missing]])}


def pieces_of_words(words: Tensor, ids: Tensor) -> Pieces:
    """Return the `Pieces` of words, ragged (B, W), given the ids of each, ragged (N, None)."""
    splits = tf.cast(ids.row_splits, tf.int64)
    of_texts = tf.gather(splits, words.row_splits)
    begin = tf.gather(of_texts, strings.row_ids(words))
    ids = tf.RaggedTensor.from_row_splits(ids.values, of_texts, validate=False)
    return Pieces(ids, splits[:-1] - begin, splits[1:] - begin)


def pieces_in_text(
    ids: Tensor, starts: Tensor, ends: Tensor, words: Tensor, begins: Tensor, stops: Tensor
) -> Pieces:
    """Return the `Pieces` of words by the places of tokens, with operations that LiteRT has.

    A word's first piece is that with its first character or, if that is the word's before, too, the
    next one, if there is one within the word. So the space before a word is not part of it.

    Args:
        ids, starts, ends: ragged (B, T), the tokens of texts and their places in characters.
        words, begins, stops: ragged (B, W), the words and their places.
    """
    token_splits, word_splits = (tf.cast(x.row_splits, tf.int32) for x in (ids, words))
    # All texts one after the other, each with room for its last character and one more.
    size = 1 + tf.maximum(_last(ends, token_splits), _last(stops, word_splits))  # (B,)
    text_begins = tf.cumsum(size, exclusive=True)
    of_words = tf.gather(text_begins, strings.row_ids(words))
    of_tokens = tf.gather(text_begins, strings.row_ids(ids))
    begins, stops = (tf.cast(x.values, tf.int32) + of_words for x in (begins, stops))
    starts, ends = (tf.cast(x.values, tf.int32) + of_tokens for x in (starts, ends))
    total = 1 + tf.reduce_sum(size)[tf.newaxis]

    def number(places, limits, inclusive):
        """Return how many of the places are below limits, or at them: (N,)."""
        counts = tf.scatter_nd(places[:, tf.newaxis], tf.ones_like(places), total)
        counts = tf.cumsum(counts, exclusive=not inclusive)
        return tf.gather(counts, limits)

    first, end = number(ends, begins, True), number(starts, stops, False)
    # A character that became several has tokens before the one that ends with it; the first token
    # of a text may be such a one, or a space that is not there.
    begin = tf.gather(token_splits, strings.row_ids(words))
    earlier = tf.minimum(first, number(starts, begins, False))
    first = tf.where(earlier > begin, earlier, first)
    # Two more, where there are no tokens.
    starts = tf.concat([starts, total, total], axis=0)
    before = tf.concat([[0], stops[:-1]], axis=0)  # where the word before ends
    is_shared = (tf.gather(starts, first) < before) & (before > of_words)
    first += tf.cast(is_shared & (tf.gather(starts, first + 1) < stops), tf.int32)
    return Pieces(ids, *(tf.cast(x - begin, tf.int64) for x in (first, end)))


def _last(ragged, splits):
    """Return the last value of each row, (B,) int32, 0 for rows without any."""
    values = tf.concat([[0], tf.cast(ragged.values, tf.int32)], axis=0)
    return tf.where(splits[1:] > splits[:-1], tf.gather(values, splits[1:]), 0)
