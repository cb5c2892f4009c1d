"""Clean text as numbers, with operations that LiteRT has: a table of what characters become.

LiteRT has no kernel for lower-casing and Unicode normalisation. Both work character by character,
with two exceptions: a capital sigma at the end of a word, for which there are rules here, and
several marks on a letter: if cleaning leaves them, they keep their order, canonical or not.
"""

import numpy as np

from keras_lm.tensorflow import tf
from keras_lm.tokenizers import unicode_ranges
from keras_lm.tokenizers.lite_operations import (
    CodePointTable,
    characters,
    count_before,
    flags,
    places_of,
    put,
    valid_utf8,
)

CAPITAL_SIGMA, FINAL_SIGMA = 0x3A3, 0x3C2
CASED, IGNORABLE = 1, 2  # what decides whether a sigma is final
# Beyond these, cleaning drops characters or leaves them as they are.
CHANGEABLE = (range(0xD800), range(0xE000, 0x32400), range(0xE0000, 0xE1000))


class Letters:
    """Turns texts into the numbers of their letters.

    Args:
        numbers: dict from each letter, and `" "` for what separates words, to its number.
        unknown: int, the number of all other letters.
        clean: function from (N,) strings of one character each to what they become; the byte 0xFF
            stands for a space.
        lowercase: bool. Whether cleaning turns a sigma that ends a word into a final one.
    """

    def __init__(self, numbers, unknown, clean, lowercase):
        dropped = unicode_ranges.characters(unicode_ranges.BERT_DROPPED + " FDD0-FDEF")
        dropped = {ord(character) for character in dropped}
        codes = [code for codes in CHANGEABLE for code in codes if code not in dropped]
        texts = tf.strings.unicode_encode(tf.constant(codes)[:, tf.newaxis], "UTF-8")
        starts, lengths, of_sigma = np.zeros([3, 0x110000], np.int32)
        lengths += 1
        spelled, known, words = [unknown], {(unknown,): 0}, []
        for text in clean(texts).numpy():
            text = text.replace(b"\xff", b" ").decode()
            word = tuple(numbers.get(letter, unknown) for letter in text)
            if word not in known:
                known[word] = len(spelled)
                spelled += word
            words.append((known[word], len(word)))
        starts[codes], lengths[codes] = np.transpose(words)
        lengths[[*dropped]] = 0
        self._most = lengths.max()
        self._spelled = tf.constant(spelled, tf.int32)
        self._starts, self._lengths = CodePointTable(starts), CodePointTable(lengths)
        self._of_sigma = None
        if lowercase:
            # A sigma after a cased letter is final; some characters between them do not count.
            cased = _ends_final(texts)
            ignorable = ~cased & _ends_final("a" + texts)
            of_sigma[codes] = np.where(cased, CASED, np.where(ignorable, IGNORABLE, 0))
            of_sigma[[*dropped]] = IGNORABLE
            self._of_sigma = CodePointTable(of_sigma)

    def __call__(self, text):
        """Return the numbers of (B,) texts and of spaces after the last one, and row splits.

        Then the character, of all texts, that each letter comes from, and the splits of these.
        """
        codes, row_splits = code_points(*valid_utf8(text))
        if self._of_sigma is not None:
            codes = self._finish_words(codes, flags(row_splits, tf.size(codes)))
        starts, lengths = self._starts(codes), self._lengths(codes)
        ends = tf.cumsum(lengths)
        begins, size = ends - lengths, ends[-1]
        numbers = tf.zeros([size], tf.int32)
        for n in range(self._most):
            places = places_of(lengths > n, [0])  # the last of these adds nothing
            number = tf.gather(self._spelled, tf.gather(starts, places) + n)
            at = tf.gather(begins, places) + n
            numbers += put(*(tf.concat([x[:-1], [0]], 0) for x in (number, at)), size)
        of_character = tf.cumsum(put(tf.ones_like(begins), begins, size)) - 1
        return numbers, tf.gather(begins, row_splits), of_character, row_splits

    def _finish_words(self, codes, is_first):
        """Replace capital sigmas at the ends of words by final ones."""
        kinds = self._of_sigma(codes)
        counts = kinds != IGNORABLE
        places = places_of(codes == CAPITAL_SIGMA, [0])
        # The nearest character that counts before and after each, if it is in the same text.
        here, others = tf.gather(count_before(counts), places), places_of(counts)
        row = tf.cumsum(tf.cast(is_first, tf.int32))
        is_cased = []
        for n in (-1, 1):
            other = tf.gather(others, tf.clip_by_value(here + n, 0, tf.size(others) - 1))
            is_same = (other != places) & (tf.gather(row, other) == tf.gather(row, places))
            is_cased.append(is_same & (tf.gather(kinds, other) == CASED))
        is_final = is_cased[0] & ~is_cased[1] & (tf.gather(codes, places) == CAPITAL_SIGMA)
        return tf.where(flags(places, tf.size(codes), is_final), FINAL_SIGMA, codes)


def code_points(data, row_splits):
    """Return the code points of bytes and of the spaces after them, and row splits."""
    size = tf.size(data)
    places, codes, _, _, inside = characters(data, flags(row_splits, size))
    codes = tf.where(data < 0x80, data, put(codes, places, size))
    row_splits = tf.gather(count_before(~inside), row_splits)
    return tf.gather(codes, places_of(~inside)), row_splits


def _ends_final(texts):
    text = tf.strings.lower(texts + chr(CAPITAL_SIGMA), encoding="utf-8")
    last = tf.strings.substr(text, -2, 2)
    return (last == chr(FINAL_SIGMA)).numpy()
