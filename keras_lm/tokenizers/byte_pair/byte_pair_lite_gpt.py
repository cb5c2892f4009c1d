"""GPT-1's BPE with operations that LiteRT has: each character becomes letters, by a table.

There is no kernel for lower-casing and Unicode normalisation. Both work character by character, but
for two things: a capital sigma at the end of a word, which has rules of its own here; and several
marks on a letter, whose order is not made canonical where they are marks that cleaning leaves.
"""

import numpy as np
import tensorflow as tf

from keras_lm.tokenizers import unicode_ranges
from keras_lm.tokenizers.byte_pair.byte_pair_files import END
from keras_lm.tokenizers.byte_pair.byte_pair_lite import characters, valid_utf8
from keras_lm.tokenizers.byte_pair.byte_pair_lite_tables import (
    CodePointTable,
    PairMerger,
    count_before,
    flags,
    places_of,
    put,
    value_after,
    value_before,
)

CAPITAL_SIGMA, FINAL_SIGMA = 0x3A3, 0x3C2
CASED, IGNORABLE = 1, 2  # what decides whether a sigma is final
# Beyond these, cleaning drops characters or leaves them as they are.
CHANGEABLE = (range(0xD800), range(0xE000, 0x32400), range(0xE0000, 0xE1000))


class LiteGPT:
    """`GPTTokenizer` in integer operations; `last` is what `last_ranks` returns."""

    def __init__(self, letters, ids, merges, last, unknown_id, part_words):
        made = sorted((entry for entry in last if last[entry] >= 0), key=last.get)
        # Each letter, then an unknown one; the same at the ends of words; then what splits words.
        symbols = {letter: i for i, letter in enumerate(letters)}
        self._unknown = len(letters)
        self._num_letters = len(letters) + 1
        symbols |= {t + END: i + self._num_letters for t, i in symbols.items()}
        self._space = 2 * self._num_letters
        symbols |= {entry: self._space + 1 + i for i, entry in enumerate(made)}
        pairs = [merges[last[entry]].split(" ") for entry in made]
        self._merge = PairMerger(self._space + 1, [(symbols[a], symbols[b]) for a, b in pairs])
        # 0 for what has become part of another symbol, and for what splits words.
        numbers = np.full(2 + self._space + len(made), unknown_id + 1)
        numbers[[0, 1 + self._space]] = 0
        for entry, symbol in symbols.items():
            if entry in last:
                numbers[1 + symbol] = ids[entry] + 1
        self._ids = tf.constant(numbers, tf.int32)
        self._make_tables({t: symbols[t] for t in letters}, part_words)

    def _make_tables(self, letters, part_words):
        dropped = unicode_ranges.characters(unicode_ranges.BERT_DROPPED + " FDD0-FDEF")
        dropped = {ord(character) for character in dropped}
        codes = [code for codes in CHANGEABLE for code in codes if code not in dropped]
        texts = tf.strings.unicode_encode(tf.constant(codes)[:, tf.newaxis], "UTF-8")
        starts, lengths, of_sigma = np.zeros([3, 0x110000], np.int32)
        lengths += 1
        spelled, known = [self._unknown], {(self._unknown,): 0}
        for code, word in zip(codes, part_words(texts).numpy()):
            word = word.replace(b"\xff", b" ").decode()
            word = tuple(self._space if c == " " else letters.get(c, self._unknown) for c in word)
            if word not in known:
                known[word] = len(spelled)
                spelled += word
            starts[code], lengths[code] = known[word], len(word)
        lengths[[*dropped]] = 0
        self._most = lengths.max()
        # Whether a sigma is final tells what came before it: a letter, or what does not count.
        of_sigma[codes] = np.where(_ends_final(texts), CASED, 0)
        of_sigma[codes] = np.where(
            (of_sigma[codes] != CASED) & _ends_final("a" + texts), IGNORABLE, of_sigma[codes]
        )
        of_sigma[[*dropped]] = IGNORABLE
        self._spelled = tf.constant(spelled, tf.int32)
        self._starts, self._lengths, self._of_sigma = map(
            CodePointTable, (starts, lengths, of_sigma)
        )

    def __call__(self, text):
        """Return the ids of (B,) texts as a ragged (B, S) int32 tensor."""
        codes, row_splits = _code_points(*valid_utf8(text))
        codes = self._finish_words(codes, flags(row_splits, tf.size(codes)))
        starts, lengths = self._starts(codes), self._lengths(codes)
        ends = tf.cumsum(lengths)
        begins, size = ends - lengths, ends[-1]
        symbols = tf.zeros([size], tf.int32)
        for n in range(self._most):
            places = places_of(lengths > n, [0])  # the last of these adds nothing
            symbol = tf.gather(self._spelled, tf.gather(starts, places) + n)
            at = tf.gather(begins, places) + n
            symbols += put(*(tf.concat([x[:-1], [0]], 0) for x in (symbol, at)), size)
        row_splits = tf.gather(begins, row_splits)

        is_space = symbols == self._space
        is_first = flags(row_splits, size) | is_space | value_before(is_space, 1, True)
        is_last = value_after(is_first, 1, True) & ~is_space
        symbols += tf.where(is_last, self._num_letters, 0)
        pieces = self._merge(symbols, tf.cumsum(tf.cast(is_first, tf.int32)) - 1)
        found = tf.gather(self._ids, pieces + 1)

        is_there = found > 0
        ids = tf.gather(found, places_of(is_there, [size - 1])) - 1
        row_splits = tf.gather(count_before(is_there), row_splits)
        return tf.RaggedTensor.from_row_splits(ids[:-1], row_splits, validate=False)

    def _finish_words(self, codes, is_first):
        """Put a final sigma in place of capital ones at the ends of words."""
        kinds = self._of_sigma(codes)
        counts = kinds != IGNORABLE
        places = places_of(codes == CAPITAL_SIGMA, [0])
        # What counts before and after each of them, if it belongs to the same text.
        here, others = tf.gather(count_before(counts), places), places_of(counts)
        row = tf.cumsum(tf.cast(is_first, tf.int32))
        is_cased = []
        for n in (-1, 1):
            other = tf.gather(others, tf.clip_by_value(here + n, 0, tf.size(others) - 1))
            is_same = (other != places) & (tf.gather(row, other) == tf.gather(row, places))
            is_cased.append(is_same & (tf.gather(kinds, other) == CASED))
        is_final = is_cased[0] & ~is_cased[1] & (tf.gather(codes, places) == CAPITAL_SIGMA)
        return tf.where(flags(places, tf.size(codes), is_final), FINAL_SIGMA, codes)


def _code_points(data, row_splits):
    """Return the code points of bytes, with the same spaces after the last."""
    size = tf.size(data)
    places, codes, _, _, inside = characters(data, flags(row_splits, size))
    codes = tf.where(data < 0x80, data, put(codes, places, size))
    row_splits = tf.gather(count_before(~inside), row_splits)
    return tf.gather(codes, places_of(~inside)), row_splits


def _ends_final(texts):
    text = tf.strings.lower(texts + chr(CAPITAL_SIGMA), encoding="utf-8")
    last = tf.strings.substr(text, -2, 2)
    return (last == chr(FINAL_SIGMA)).numpy()
