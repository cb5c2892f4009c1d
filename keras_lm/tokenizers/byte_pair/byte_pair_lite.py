"""Byte-level BPE with operations that LiteRT has, which are those of integers.

All texts are one long list of bytes, and flags say where texts and words begin. Most words are
entries of the vocabulary and found in a trie; the others are merged.
"""

import numpy as np
import tensorflow as tf

from keras_lm.tokenizers import ragged, unicode_ranges
from keras_lm.tokenizers.byte_pair import byte_pair_files
from keras_lm.tokenizers.byte_pair.byte_pair_lite_tables import (
    CodePointTable,
    PairMerger,
    Trie,
    count_before,
    flags,
    places_of,
    put,
    value_after,
    value_before,
)
from keras_lm.tokenizers.unicode_ranges import LETTERS, NUMBERS, WHITE_SPACE

# Kinds of characters. A space is one that words begin with; beyond an edge is another text.
OTHER, LETTER, NUMBER, WHITE, SPACE, EDGE = range(6)
REPLACEMENT = (0xEF, 0xBF, 0xBD)
TAIL = 4  # spaces after the last text: each byte has three after it, and no list is empty


class LiteBytePair:
    """`BytePairTokenizer` in integer operations; `last` is what `last_ranks` returns.

    `words` are the entries that a word may be as a whole.
    """

    def __init__(self, ids, merges, words, last, unknown_id, add_prefix_space):
        self._add_prefix_space = add_prefix_space
        made = sorted((entry for entry in last if last[entry] >= 0), key=last.get)
        symbols = {byte_pair_files.BYTES[byte]: byte for byte in range(256)}
        symbols |= {entry: len(symbols) + i for i, entry in enumerate(made)}
        pairs = [merges[last[entry]].split(" ") for entry in made]
        self._merge = PairMerger(256, [(symbols[a], symbols[b]) for a, b in pairs])
        # 0 for what has become part of another symbol.
        self._ids = tf.constant(
            [0, *(1 + (ids[t] if t in last else unknown_id or 0) for t in symbols)], tf.int32
        )
        self._words = Trie({byte_pair_files.spelling(entry): ids[entry] for entry in words})
        self._split = WordSplitter()

    def __call__(self, text):
        """Return the ids of (B,) texts as a ragged (B, S) int32 tensor."""
        data, row_splits = valid_utf8(text)
        is_first = flags(row_splits, tf.size(data))
        if self._add_prefix_space:
            data, places = insert_spaces(data, is_first & (data != 32))
            row_splits = tf.gather(places, row_splits)
            is_first = flags(row_splits, tf.size(data))
        begins = self._split(data, is_first)
        # Of the tail, one word of one byte stays.
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
        ids = tf.gather(found, places_of(is_there)) - 1
        row_splits = tf.gather(count_before(is_there), row_splits)
        return tf.RaggedTensor.from_row_splits(ids[:-1], row_splits, validate=False)


# === Bytes ===


def valid_utf8(text):
    """Return bytes of (B,) strings and `TAIL` spaces, U+FFFD for invalid UTF-8, and row splits."""
    texts = ragged.bytes_of(text)
    row_splits = tf.cast(texts.row_splits, tf.int32)
    data = tf.concat([tf.cast(texts.values, tf.int32), [32] * TAIL], 0)
    places, _, size, length, _ = characters(data, flags(row_splits, tf.size(data)))
    is_bad = size != length

    def replaced():
        # All three bytes take the place of the first bad one, and no byte that of the others.
        sizes = tf.ones_like(data)
        for n, more in enumerate((2, -1, -1)):
            more = tf.where(is_bad & (size > n), more, 0)
            sizes += put(more, places + n, tf.size(data))
        ends = tf.cumsum(sizes)
        begins = ends - sizes
        at, new = [begins], [tf.where(sizes == 1, data, 0)]
        for n, byte in enumerate(REPLACEMENT):
            at.append(tf.where(is_bad, tf.gather(begins, places) + n, 0))
            new.append(tf.where(is_bad, byte, 0))
        new = put(tf.concat(new, 0), tf.concat(at, 0), ends[-1])
        return new, tf.gather(begins, row_splits)

    return tf.cond(tf.reduce_any(is_bad), replaced, lambda: (data, row_splits))


def characters(data, is_first):
    """Find the characters that are not ASCII: `(places, codes, sizes, lengths, inside)`.

    The first four are (C,) int32: where they begin, their code points, how many bytes of them are
    there, and how many there must be. The last of the C is no such character. `inside` flags each
    byte that is not the first one of its character.
    """
    with tf.init_scope():  # constants, also where this is traced
        lengths, lowest, highest, bases = (tf.constant(x, tf.int32) for x in _first_bytes())
    rest = tf.where(is_first, 32, data)  # no character goes on in the next text
    places = places_of(data >= 0x80, tf.shape(data) - TAIL)
    first = tf.gather(data, places)
    length = tf.gather(lengths, first)
    low, high = tf.gather(lowest, first), tf.gather(highest, first)
    code, size, is_there = first, tf.ones_like(first), length > 1
    for n in (1, 2, 3):
        byte = tf.gather(rest, places + n)
        is_there &= (length > n) & (byte >= low) & (byte <= high)
        code = tf.where(is_there, code * 64 + byte, code)
        size += tf.cast(is_there, tf.int32)
        low, high = 0x80, 0xBF
    code -= tf.gather(bases, first)
    inside = tf.concat([size > 1, size > 2, size > 3], 0)
    inside = flags(tf.concat([places + 1, places + 2, places + 3], 0), tf.size(data), inside)
    begins = places_of(~tf.gather(inside, places))
    return *(tf.gather(x, begins) for x in (places, code, size, length)), inside


def _first_bytes():
    """Return tables (256,) for the first byte of a character.

    These are its length in bytes, 0 for a byte that begins none; the lowest and the highest second
    byte; and how much bytes summed up are above the code point.
    """
    lengths, lowest, highest, bases = np.zeros([4, 256], np.int32)
    for length, first, last, base in (
        *((1, 0x00, 0x7F, 0), (2, 0xC2, 0xDF, 0x3080)),
        *((3, 0xE0, 0xEF, 0xE2080), (4, 0xF0, 0xF4, 0x3C82080)),
    ):
        lengths[first : last + 1], bases[first : last + 1] = length, base
    lowest[:], highest[:] = 0x80, 0xBF
    lowest[0xE0], lowest[0xF0] = 0xA0, 0x90  # lower ones have a shorter form
    highest[0xED], highest[0xF4] = 0x9F, 0x8F  # surrogates; beyond Unicode
    return lengths, lowest, highest, bases


def insert_spaces(data, before):
    """Return bytes with spaces before the flagged ones, and the places of what stood there."""
    ends = tf.cumsum(1 + tf.cast(before, tf.int32))
    moved = put(data - 32, ends - 1, ends[-1]) + 32
    return moved, ends - 1 - tf.cast(before, tf.int32)


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
        """Flag where words begin; `data` ends in `TAIL` spaces, and `is_first` flags row splits."""
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
        # What comes after a white space of several bytes comes after its last one.
        ends = places + size - 1
        ends_at_word = (tf.gather(kind, places) == WHITE) & (size > 1)
        ends_at_word &= tf.gather(after, ends) < WHITE
        begins = (begins & ~inside) | flags(places, tf.size(data), ends_at_word)
        return self._part_contractions(data, is_first, begins)

    def _part_contractions(self, data, is_first, begins):
        """'s, 't, 'm, 'd, 're, 've and 'll are words wherever an apostrophe begins one."""
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
    """Whether a character begins a word, from its kind and those of its neighbours."""
    # A space goes with the word after it.
    in_word = (before == EDGE) | ((before != kind) & (before != SPACE))
    # Of several white spaces before a word, the last one is split from the others.
    white, white_before = ((x == WHITE) | (x == SPACE) for x in (kind, before))
    return np.where(white, ~white_before | (after < WHITE), in_word)
