"""GPT-1's BPE with operations that LiteRT has."""

import numpy as np
import tensorflow as tf

from keras_lm.tokenizers.byte_pair.byte_pair_files import END
from keras_lm.tokenizers.byte_pair.byte_pair_lite_tables import (
    PairMerger,
    count_before,
    flags,
    places_of,
    value_after,
    value_before,
)
from keras_lm.tokenizers.lite_letters import Letters


class LiteGPT:
    """`GPTTokenizer` in integer operations; `last` is what `last_ranks` returns."""

    def __init__(self, letters, ids, merges, last, unknown_id, part_words):
        made = sorted((entry for entry in last if last[entry] >= 0), key=last.get)
        # Each letter, then an unknown one; the same at the ends of words; then what splits words.
        symbols = {letter: i for i, letter in enumerate(letters)}
        unknown = len(letters)
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
        self._letters = Letters(
            {letter: symbols[letter] for letter in letters} | {" ": self._space},
            unknown,
            # (No string of valid UTF-8 holds the byte that parts words there.)
            lambda texts: tf.constant(
                [t.replace(b"\xff", b" ") for t in part_words(texts).numpy()]
            ),
            lowercase=True,
        )

    def __call__(self, text):
        """Return the ids of (B,) texts as a ragged (B, S) int32 tensor."""
        symbols, row_splits = self._letters(text)
        size = tf.size(symbols)
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
