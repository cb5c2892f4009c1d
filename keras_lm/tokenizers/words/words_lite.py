"""Looking words up with operations that LiteRT has: no strings, no hash tables.

A word is the sum of its bytes, each times a number that depends on its place. These sums are
sorted, and a word's is found among them by halving. They are so wide that no two words of a list
share one. Shapes: W words, L bytes of a word, V entries.
"""

import numpy as np
import tensorflow as tf

from keras_lm.tokenizers import splitting

LONGEST = 64  # bytes; a longer word is unknown
FACTOR_BITS = 48  # 64 products with 9 bits more stay below 2 ** 63


class WordFinder:
    """A dict from words, as bytes, to ids; `lowercase` knows the letters of ASCII alone."""

    def __init__(self, words, unknown_id, lowercase):
        words = {word: id for word, id in words.items() if 0 < len(word) <= LONGEST}
        self.lowercase = lowercase
        seed = 0
        while True:  # once, but for a chance of one in a hundred with two million words
            factors = np.random.default_rng(seed).integers(1, 2**FACTOR_BITS, LONGEST)
            sums = _sums(list(words), factors)
            if len(np.unique(sums)) == len(sums):
                break
            seed += 1
        order = np.argsort(sums)
        ids = np.fromiter(words.values(), "int32", len(words))[order]
        self.steps = max(len(words), 1).bit_length()
        with tf.init_scope():
            self.factors = tf.constant(factors)
            # The last one is larger than any, and stands for all that is not there.
            self.sums = tf.constant(np.append(sums[order], np.iinfo("int64").max))
            self.ids = tf.constant(np.append(ids, unknown_id).astype("int32"))
        self.unknown_id = unknown_id

    def tokenize(self, text, splitter):
        """Return the ids of the words of (B,) texts, ragged (B, S) int32."""
        data, starts, ends, row_splits = splitting.split_bytes(text, splitter)
        place = tf.range(LONGEST)[tf.newaxis, :]
        is_byte = place < (ends - starts)[:, tf.newaxis]  # (W, L)
        letters = tf.gather(data, tf.where(is_byte, starts[:, tf.newaxis] + place, 0))
        sums = self._sums(tf.where(is_byte, letters + 1, 0))
        sums = tf.where(ends - starts > LONGEST, tf.constant(-1, tf.int64), sums)
        ids = self._find(sums)[:-1]  # split_bytes gives one too many, so that none is empty
        return tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)

    def find(self, letters):
        """Return the ids of words of (…, L) bytes, each one more than it is, 0 after the last."""
        is_long = tf.reduce_any(letters[..., LONGEST:] > 0, axis=-1)
        sums = self._sums(letters[..., :LONGEST])
        return self._find(tf.where(is_long, tf.constant(-1, tf.int64), sums))

    def _sums(self, letters):
        if self.lowercase:
            is_upper = (letters > ord("A")) & (letters <= ord("Z") + 1)
            letters = tf.where(is_upper, letters + 32, letters)
        return tf.reduce_sum(
            tf.cast(letters, tf.int64) * self.factors[: letters.shape[-1]], axis=-1
        )

    def _find(self, sums):
        low = tf.zeros_like(sums, tf.int32)
        high = tf.fill(tf.shape(sums), self.sums.shape[0] - 1)
        for _ in range(self.steps):
            middle = (low + high) // 2
            is_before = tf.gather(self.sums, middle) < sums
            low, high = tf.where(is_before, middle + 1, low), tf.where(is_before, high, middle)
        return tf.where(
            tf.equal(tf.gather(self.sums, low), sums), tf.gather(self.ids, low), self.unknown_id
        )


def _sums(words, factors):
    """The sums of words (V,), by blocks: a table of all bytes would be large."""
    sums = np.zeros(len(words), "int64")
    for start in range(0, len(words), 2**16):
        block = words[start : start + 2**16]
        table = np.zeros((len(block), LONGEST), "int64")
        for row, word in enumerate(block):
            table[row, : len(word)] = np.frombuffer(word, "uint8").astype("int64") + 1
        sums[start : start + len(block)] = (table * factors).sum(axis=1)
    return sums
