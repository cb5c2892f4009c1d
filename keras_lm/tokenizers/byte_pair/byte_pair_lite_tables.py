"""Tables and steps of byte-pair encoding that LiteRT can run: gathers, sums and scatters.

Some of LiteRT's kernels crash on empty tensors, so lists end with what belongs to no text.
"""

import numpy as np
import tensorflow as tf

NONE = 2**31 - 1
WINDOW = 4096  # places that are tried at once


class CodePointTable:
    """A number for every code point, in blocks of 256 of which equal ones are stored once."""

    def __init__(self, values):
        blocks = {}  # bytes of a block → its number
        numbers = [blocks.setdefault(b.tobytes(), len(blocks)) for b in values.reshape(-1, 256)]
        # So that a code point plus the number of its block is its place.
        numbers = np.multiply(numbers, 256) - np.arange(0, len(values), 256)
        self._numbers = tf.constant(numbers, tf.int32)
        self._blocks = tf.constant(np.frombuffer(b"".join(blocks), values.dtype), tf.int32)

    def __call__(self, codes):
        numbers = tf.gather(self._numbers, tf.bitwise.right_shift(codes, 8))
        return tf.gather(self._blocks, codes + numbers)


class PairTable:
    """Numbers of (row, column) pairs: Tarjan and Yao 1979, "Storing a Sparse Table"."""

    def __init__(self, pairs, first, num_columns):
        pairs = np.asarray(pairs, np.int64).reshape(-1, 2)
        shifts, places = _displace(pairs, max(first + len(pairs), pairs[:, 0].max(initial=0) + 1))
        table = np.zeros(shifts.max() + num_columns, np.int32)
        table[places] = first + np.arange(len(pairs))
        self._shifts = tf.constant(shifts, tf.int32)
        self._table = tf.constant(table, tf.int32)
        self._rows = tf.constant([-1] * first + pairs[:, 0].tolist(), tf.int32)

    def __call__(self, row, column):
        """Return the numbers of (T,) pairs, NONE for those that have none."""
        number = tf.gather(self._table, tf.gather(self._shifts, row) + column)
        return tf.where(tf.gather(self._rows, number) == row, number, NONE)


def _displace(pairs, num_rows):
    """Return for each row the place of its column 0, and for each pair its place."""
    shifts, places = np.zeros(num_rows, np.int64), np.zeros(len(pairs), np.int64)
    order = np.argsort(pairs[:, 0], kind="stable")
    rows = np.split(order, np.flatnonzero(np.diff(pairs[order, 0])) + 1) if len(order) else []
    single = np.array([row[0] for row in rows if len(row) == 1], np.int64)
    rows = [row for row in rows if len(row) > 1]
    is_free = np.ones(2 * num_rows + WINDOW, bool)
    begins = {}  # size of rows → where the last one found room
    for row in sorted(rows, key=len, reverse=True):
        columns = np.sort(pairs[row, 1])
        found, begin = (), max(begins.get(len(row), 0) - columns[0], 0)
        while not len(found):
            if begin + columns[-1] + WINDOW > len(is_free):
                is_free = np.concatenate([is_free, np.ones_like(is_free)])
            found = begin + np.flatnonzero(is_free[begin + columns[0] :][:WINDOW])
            for column in columns[1:]:
                found = found[is_free[found + column]]
            begin += WINDOW
        shifts[pairs[row[0], 0]] = found[0]
        places[row] = found[0] + pairs[row, 1]
        is_free[places[row]] = False
        begins[len(row)] = found[0] + columns[0]
    # Any place will do for the rows of one column, and most rows are.
    first = pairs[:, 1].max(initial=0)
    is_free = np.concatenate([is_free[first:], np.ones(len(single), bool)])
    places[single] = first + np.flatnonzero(is_free)[: len(single)]
    shifts[pairs[single, 0]] = places[single] - pairs[single, 1]
    return shifts, places


class Trie:
    """Finds the keys of a dict, from bytes or tuples of symbols to numbers, among symbols."""

    def __init__(self, texts, num_symbols=256):
        nodes, pairs = {next(iter(texts))[:0]: 0}, []
        for text in texts:
            for end in range(1, len(text) + 1):
                if text[:end] not in nodes:
                    nodes[text[:end]] = len(nodes)
                    pairs.append((nodes[text[: end - 1]], text[end - 1]))
        self._nodes = nodes
        self._pairs = PairTable(pairs, 1, num_symbols)
        self.numbers = tf.constant([texts.get(text, -1) for text in nodes], tf.int32)
        self.lengths = tf.constant([len(text) for text in nodes], tf.int32)

    def node(self, text):
        """Return the node where the beginning of a key ends."""
        return self._nodes[text]

    def __call__(self, data, starts, ends, whole=True, root=0):
        """Return (W,) nodes of the longest keys that stand at `starts`, 0 if there is none.

        `whole` takes only keys that reach from the start to the end; `root` is the node of what
        keys begin with that `data` does not hold.
        """
        size = tf.size(starts)

        def step(found, which, places, ends, nodes):
            nodes = self._pairs(nodes, tf.gather(data, places))
            goes_on = nodes < NONE
            nodes = tf.where(goes_on, nodes, 0)
            places += 1
            at_end = places == ends
            is_text = tf.gather(self.numbers, nodes) >= 0
            # A longer text has a node of a higher number.
            more = tf.where(is_text & at_end if whole else is_text, nodes, 0)
            found = tf.maximum(found, put(more, which, tf.size(found)))
            stays = tf.where(tf.concat([(goes_on & ~at_end)[:-1], [True]], 0))[:, 0]
            which, places, ends, nodes = (tf.gather(x, stays) for x in (which, places, ends, nodes))
            return found, which, tf.minimum(places, tf.size(data) - 1), ends, nodes

        # The last one does not count.
        which = tf.range(size + 1)
        starts, ends = tf.concat([starts, [0]], 0), tf.concat([ends, [NONE]], 0)
        state = tf.zeros_like(which), which, starts, ends, tf.fill(tf.shape(which), root)
        return _loop(lambda found, which, *_: tf.size(which) > 1, step, state)[0][:-1]


class PairMerger:
    """Merges symbols by BPE: the pair that comes first in a list, then the next.

    Symbols are numbers: first the `num_symbols` that words begin with, then what pairs become, in
    the order in which BPE prefers them. Each symbol comes out of one pair only.
    """

    def __init__(self, num_symbols, pairs):
        self._pairs = PairTable(pairs, num_symbols, num_symbols + len(pairs))

    def __call__(self, symbols, words):
        """Merge (T,) symbols of words that are numbered in order; the last symbol does not count.

        In each round, every word does what BPE does next: it merges the first of its pairs, at all
        of its places. So there are fewer rounds than the longest word has symbols, and no more than
        there are pairs. Returns symbols in the place of their first one, and -1 in the others and
        the last.
        """
        num_words = words[-1] + 1

        def merge(done, places, symbols, words):
            made = self._pairs(symbols[:-1], symbols[1:])
            made = tf.where(words[1:] == words[:-1], made, NONE)
            made = tf.concat([made, [NONE]], 0)
            first = tf.gather(tf.math.unsorted_segment_min(made, words, num_words), words)
            is_busy = first < NONE
            is_left = every_second(is_busy & (made == first))
            done += put(tf.where(is_busy, 0, symbols + 1), places, tf.size(done))
            symbols = tf.where(is_left, made, symbols)
            stays = is_busy & ~value_before(is_left, 1, False)
            stays = tf.where(tf.concat([stays[:-1], [True]], 0))[:, 0]
            return done, *(tf.gather(x, stays) for x in (places, symbols, words))

        state = tf.zeros_like(symbols), tf.range(tf.size(symbols)), symbols, words
        done = _loop(lambda done, places, *_: tf.size(places) > 1, merge, state)[0]
        return tf.concat([done[:-1], [0]], 0) - 1


def _loop(condition, step, state):
    return tf.while_loop(condition, step, state, (tf.TensorShape([None]),) * len(state))


# === Lists and flags ===


def put(values, places, size):
    """Return (size,) int32 with values at their places, summed where they meet, and 0 elsewhere."""
    return tf.scatter_nd(places[:, tf.newaxis], values, tf.reshape(size, [1]))


def flags(places, size, values=None):
    """Return (size,) bool, True at these places (where the values there are True)."""
    ones = tf.ones_like(places) if values is None else tf.cast(values, tf.int32)
    return put(ones, places, size) > 0


def places_of(mask, *more):
    """Return where the flags are, and then more places."""
    return tf.concat([tf.cast(tf.where(mask)[:, 0], tf.int32), *more], 0)


def count_before(mask):
    """Return how many flags there are before each place."""
    return tf.cumsum(tf.cast(mask, tf.int32), exclusive=True)


def every_second(mask):
    """Keep the first, the third, ... of each run of flags."""
    begins = mask & ~value_before(mask, 1, False)
    places = tf.concat([[0], places_of(begins)], 0)
    offset = tf.range(tf.size(mask)) - tf.gather(places, tf.cumsum(tf.cast(begins, tf.int32)))
    return mask & (offset - tf.bitwise.right_shift(offset, 1) * 2 == 0)


def value_before(values, n, fill):
    """Return the value n places before each."""
    return tf.concat([tf.fill([n], tf.cast(fill, values.dtype)), values[:-n]], 0)


def value_after(values, n, fill):
    """Return the value n places after each."""
    return tf.concat([values[n:], tf.fill([n], tf.cast(fill, values.dtype))], 0)
