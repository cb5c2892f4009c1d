"""WordPiece with operations that LiteRT has, which are those of integers.

All texts are one long list of letters. Words are found in it, then the longest piece at each place
by a trie: pieces that begin words, and, where these are shorter than the word, pieces within.
"""

from keras_lm.tensorflow import tf
from keras_lm.tokenizers.lite_letters import Letters
from keras_lm.tokenizers.lite_operations import (
    Trie,
    count_before,
    flags,
    places_in_texts,
    places_of,
    put,
    value_before,
)

# Symbols: a space, letters that no piece has, and what pieces within words begin with.
SPACE, UNKNOWN, WITHIN = range(3)


class LiteWordPiece:
    """`WordPieceTokenizer` in integer operations.

    Args:
        ids: dict from each entry that text may become to its id.
        unknown_id: int, the id of words that the entries cannot spell.
        max_word_length: int, in letters.
        part_words: function from (N,) strings to clean ones with spaces where words are split.
        lowercase: bool. Whether cleaning lower-cases.
    """

    def __init__(self, ids, unknown_id, max_word_length, part_words, lowercase):
        letters = sorted(set("".join(ids)))
        symbols = {letter: i for i, letter in enumerate(letters, start=WITHIN + 1)}
        pieces = {(WITHIN,): -1}
        for entry, id in ids.items():
            is_within = entry.startswith("##")
            piece = tuple(symbols[letter] for letter in entry[2 * is_within :])
            pieces[(WITHIN,) * is_within + piece] = id
        self._pieces = Trie(pieces, num_symbols=len(symbols) + WITHIN + 1)
        self._within = self._pieces.node((WITHIN,))
        self._letters = Letters(symbols | {" ": SPACE}, UNKNOWN, part_words, lowercase)
        self._unknown_id, self._max_word_length = unknown_id, max_word_length

    def __call__(self, text):
        """Return ids, starts and ends of (B,) texts, (B, S) int32 each: places in characters."""
        # With spaces after the last text.
        symbols, row_splits, of_character, text_begins = self._letters(text)
        size = tf.size(symbols)
        is_space = symbols == SPACE
        is_first = ~is_space & (flags(row_splits, size) | value_before(is_space, 1, True))
        # An empty last word in no text: lists must not be empty.
        starts = places_of(is_first, [size - 1])  # (W,)
        bounds = places_of(is_space | is_first, [size - 1])
        ends = tf.gather(bounds, tf.gather(count_before(is_space | is_first), starts) + 1)
        word = tf.maximum(tf.cumsum(tf.cast(is_first, tf.int32)) - 1, 0)  # of each letter, (T,)

        nodes = self._pieces(symbols, starts, ends, whole=False)
        sizes = tf.gather(self._pieces.lengths, nodes)
        is_parted = starts + sizes < ends
        places = places_of(~is_space & ~is_first & tf.gather(is_parted, word), [size - 1])
        last = tf.gather(ends, tf.gather(word, places))
        within = self._pieces(symbols, places, last, whole=False, root=self._within)
        nodes = put(nodes, starts, size) + put(within, places, size)
        found = tf.gather(self._pieces.numbers, nodes)  # -1 if there is no piece
        sizes = tf.gather(self._pieces.lengths, nodes) - put(
            tf.cast(within > 0, tf.int32), places, size
        )

        taken = self._follow(starts, ends, sizes) & ~is_space
        is_bad = put(tf.cast(taken & (found < 0), tf.int32), word, tf.size(starts)) > 0
        is_bad |= ends - starts > self._max_word_length
        is_bad = tf.gather(is_bad, word)
        is_there = tf.where(is_bad, is_first, taken)
        found = tf.where(is_bad, self._unknown_id, found)
        at = places_of(is_there, [size - 1])
        ids = tf.gather(found, at)
        row_splits = tf.gather(count_before(is_there), row_splits)
        ids = tf.RaggedTensor.from_row_splits(ids[:-1], row_splits, validate=False)
        places = places_in_texts(at, ~is_space, of_character, ids, text_begins)
        return ids, *map(ids.with_values, places)

    def _follow(self, places, ends, sizes):
        """Flag where pieces begin, each after the one before, from (W,) places to ends."""

        def step(taken, places, ends):
            taken += put(tf.ones_like(places), places, tf.size(taken))
            size = tf.gather(sizes, places)
            places += size
            stays = places_of(((size > 0) & (places < ends))[:-1], [tf.size(places) - 1])
            return taken, tf.gather(places, stays), tf.gather(ends, stays)

        state = tf.zeros_like(sizes), places, ends
        shapes = (tf.TensorShape([None]),) * 3
        return tf.while_loop(lambda _, p, __: tf.size(p) > 1, step, state, shapes)[0] > 0
