"""BPE with operations that LiteRT has, which are those of integers.

All texts are one long list of symbols, and flags say where texts and words begin. With bytes, most
words are entries of the vocabulary and found in a trie; the others are merged.
"""

import numpy as np

from keras_lm.tensorflow import tf
from keras_lm.tokenizers import byte_pair_files, unicode_ranges
from keras_lm.tokenizers.byte_pair_files import END
from keras_lm.tokenizers.lite_letters import Letters
from keras_lm.tokenizers.lite_operations import (
    TAIL,
    CodePointTable,
    PairMerger,
    Trie,
    characters,
    count_before,
    flags,
    insert_spaces,
    places_in_texts,
    places_of,
    put,
    valid_utf8,
    value_after,
    value_before,
)
from keras_lm.tokenizers.unicode_ranges import LETTERS, NUMBERS, WHITE_SPACE

# Kinds of characters. SPACE is one that words begin with; EDGE is beyond the text.
OTHER, LETTER, NUMBER, WHITE, SPACE, EDGE = range(6)
UNKNOWN = "\ufdd0"  # any letter that the vocabulary lacks


class LiteBytePair:
    """`BytePairTokenizer` in integer operations.

    Args:
        ids: dict from entry to id.
        merges: list of str.
        words: list of str, the entries that a whole word may be.
        last: dict, see `last_ranks`.
        unknown_id: int, the id of bytes without an entry; None if all have one.
        add_prefix_space: bool, see `BytePairTokenizer`.
    """

    def __init__(self, ids, merges, words, last, unknown_id, add_prefix_space):
        self._add_prefix_space = add_prefix_space
        first = [byte_pair_files.BYTES[byte] for byte in range(256)]
        symbols, self._merge = _symbols_and_merger(first, merges, last)
        self._ids = _id_table(symbols, ids, last, unknown_id)
        self._words = Trie({byte_pair_files.spelling(entry): ids[entry] for entry in words})
        self._split = WordSplitter()

    def __call__(self, text):
        """Return ids, starts and ends of (B,) texts, (B, S) int32 each: places in characters."""
        data, row_splits = valid_utf8(text)
        is_first = flags(row_splits, tf.size(data))
        is_added = tf.zeros_like(is_first)
        if self._add_prefix_space:
            is_added = is_first & (data != 32)
            data, places = insert_spaces(data, is_added)
            is_added = flags(places, tf.size(data), is_added)
            row_splits = tf.gather(places, row_splits)
            is_first = flags(row_splits, tf.size(data))
        characters = count_before(((data < 0x80) | (data >= 0xC0)) & ~is_added)
        text_begins = tf.gather(characters, row_splits)
        of_character = value_after(characters, 1, 0) - 1
        begins = self._split(data, is_first)
        # A word of one byte stays of the tail.
        data, begins = data[: 1 - TAIL], begins[: 1 - TAIL]
        size = tf.size(data)
        starts = places_of(begins)
        nodes = self._words(data, starts, tf.concat([starts[1:], [size]], 0))
        known = tf.gather(self._words.numbers, nodes) + 1
        found = put(known, starts, size)

        words = tf.cumsum(tf.cast(begins, tf.int32)) - 1
        rare = places_of(tf.gather(known, words) == 0, [size - 1])
        pieces = self._merge(tf.gather(data, rare), tf.gather(words, rare))
        found += put(tf.gather(self._ids, pieces + 1), rare, size)

        is_there = found > 0
        at = places_of(is_there)
        ids = tf.gather(found, at) - 1
        row_splits = tf.gather(count_before(is_there), row_splits)
        ids = tf.RaggedTensor.from_row_splits(ids[:-1], row_splits, validate=False)
        places = places_in_texts(at, tf.ones_like(is_there), of_character, ids, text_begins)
        return ids, *map(ids.with_values, places)


class LiteGPT:
    """`GPTTokenizer` in integer operations.

    Args:
        letters: str, all letters that the vocabulary has.
        ids, merges, last, unknown_id: see `LiteBytePair`.
        part_words: function from (N,) strings to clean ones with the byte 0xFF between words.
    """

    def __init__(self, letters, ids, merges, last, unknown_id, part_words):
        # The letters and an unknown one, the same at the ends of words, and what splits words.
        letters = [*letters, UNKNOWN]
        self._num_letters, self._space = len(letters), 2 * len(letters)
        first = [*letters, *(letter + END for letter in letters), " "]
        symbols, self._merge = _symbols_and_merger(first, merges, last)
        self._ids = _id_table(symbols, ids, last, unknown_id)
        numbers = {letter: symbols[letter] for letter in [*letters, " "]}
        self._letters = Letters(numbers, symbols[UNKNOWN], part_words, lowercase=True)

    def __call__(self, text):
        """Return ids, starts and ends of (B,) texts, (B, S) int32 each: places in characters."""
        symbols, row_splits, of_character, text_begins = self._letters(text)
        size = tf.size(symbols)
        is_space = symbols == self._space
        is_first = flags(row_splits, size) | is_space | value_before(is_space, 1, True)
        is_last = value_after(is_first, 1, True) & ~is_space
        symbols += tf.where(is_last, self._num_letters, 0)
        pieces = self._merge(symbols, tf.cumsum(tf.cast(is_first, tf.int32)) - 1)
        found = tf.where(is_space, 0, tf.gather(self._ids, pieces + 1))

        is_there = found > 0
        at = places_of(is_there, [size - 1])
        ids = tf.gather(found, at) - 1
        row_splits = tf.gather(count_before(is_there), row_splits)
        ids = tf.RaggedTensor.from_row_splits(ids[:-1], row_splits, validate=False)
        places = places_in_texts(at, ~is_space, of_character, ids, text_begins)
        return ids, *map(ids.with_values, places)


def _symbols_and_merger(first, merges, last):
    """Return a dict from symbol, those of words `first`, to its number, and their `PairMerger`."""
    made = sorted((entry for entry in last if last[entry] >= 0), key=last.get)
    symbols = {symbol: number for number, symbol in enumerate([*first, *made])}
    pairs = [merges[last[entry]].split(" ") for entry in made]
    return symbols, PairMerger(len(first), [(symbols[a], symbols[b]) for a, b in pairs])


def _id_table(symbols, ids, last, unknown_id):
    """Return 1 + the id of each symbol; first 0, for what became part of another symbol."""
    found = [ids[symbol] if symbol in last else unknown_id or 0 for symbol in symbols]
    return tf.constant([0, *(1 + id for id in found)], tf.int32)


# === Words ===


class WordSplitter:
    """Finds where words begin, by the rules of GPT-2's regular expression."""

    def __init__(self):
        kinds = np.zeros(0x110000, np.int32)
        for kind, ranges in ((LETTER, LETTERS), (NUMBER, NUMBERS), (WHITE, WHITE_SPACE)):
            kinds[[ord(character) for character in unicode_ranges.characters(ranges)]] = kind
        kinds[32] = SPACE
        self._of_ascii = tf.constant(np.where(np.arange(256) < 0x80, kinds[:256], 0), tf.int32)
        self._kinds = CodePointTable(kinds)
        self._rules = tf.constant(_begins_word(*np.indices([6, 6, 6])).reshape(-1))

    def __call__(self, data, is_first):
        """Flag where words begin; `data` ends with `TAIL` spaces, `is_first` flags row splits."""
        places, code, size, _, inside = characters(data, is_first)
        kind = tf.gather(self._of_ascii, data)
        # All bytes of a character are of its kind.
        of_code = tf.where(size > 1, self._kinds(code), 0)
        at = tf.concat([places, places + 1, places + 2, places + 3], 0)
        of_code = tf.concat([of_code, *(tf.where(size > n, of_code, 0) for n in (1, 2, 3))], 0)
        kind += put(of_code, at, tf.size(data))
        before = tf.where(is_first, EDGE, value_before(kind, 1, EDGE))
        after = tf.where(value_after(is_first, 1, True), EDGE, value_after(kind, 1, EDGE))
        begins = tf.gather(self._rules, before * 36 + kind * 6 + after)
        # What follows a white space of several bytes follows its last byte.
        ends = places + size - 1
        ends_at_word = (tf.gather(kind, places) == WHITE) & (size > 1)
        ends_at_word &= tf.gather(after, ends) < WHITE
        begins = (begins & ~inside) | flags(places, tf.size(data), ends_at_word)
        return self._part_contractions(data, is_first, begins)

    def _part_contractions(self, data, is_first, begins):
        """Make 's, 't, 'm, 'd, 're, 've and 'll words if an apostrophe begins one."""
        size = tf.size(data)
        places = places_of(begins & (data == ord("'")), size[tf.newaxis] - TAIL)
        first, second = (
            tf.where(tf.gather(is_first, places + n), 0, tf.gather(data, places + n))
            for n in (1, 2)
        )
        short = (
            (first == ord("s")) | (first == ord("t")) | (first == ord("m")) | (first == ord("d"))
        )
        long = (second == ord("e")) & ((first == ord("r")) | (first == ord("v")))
        long |= (second == ord("l")) & (first == ord("l"))
        length = tf.where(short, 2, tf.where(long & (first > 0), 3, 0))
        begins &= ~flags(places + 1, size, length > 0)
        return begins | flags(places + length, size, length > 0)


def _begins_word(before, kind, after):
    """Return whether a character begins a word, given its kind and those of its neighbours."""
    # A space goes with the word after it.
    in_word = (before == EDGE) | ((before != kind) & (before != SPACE))
    # The last of several white spaces before a word is split from the others.
    white, white_before = ((x == WHITE) | (x == SPACE) for x in (kind, before))
    return np.where(white, ~white_before | (after < WHITE), in_word)
