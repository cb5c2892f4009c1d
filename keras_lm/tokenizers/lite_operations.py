"""What tokenizers in LiteRT share: lists, UTF-8, tables and letters, in integer operations.

LiteRT has no regular expressions, hash tables or ragged tensors, but gathers, sums and scatters.
Some of its kernels crash on empty tensors, so lists end with something that belongs to no text.
Shapes: B batch, T values, C characters, W words.
"""

import functools
import operator

import numpy as np

from keras_lm.tensorflow import tf
from keras_lm.tokenizers import strings, unicode_ranges
from keras_lm.tokenizers.strings import bytes_of

NONE = 2**31 - 1
WINDOW = 4096  # places that are tried at once
STEPS = 4  # of a loop in one round, which costs as much as several of them
REPLACEMENT = (0xEF, 0xBF, 0xBD)  # U+FFFD
TAIL = 4  # spaces after the last text: each byte has three after it, and no list is empty

# === Lists and flags ===


def put(values, places, size):
    """Return (size,) int32 with values at their places, added up if these repeat, 0 elsewhere."""
    return tf.scatter_nd(tf.expand_dims(places, 1), values, tf.reshape(size, [1]))


def flags(places, size, values=None):
    """Return (size,) bool, True at these places, or at those of them where `values` is True."""
    ones = tf.ones_like(places) if values is None else tf.cast(values, tf.int32)
    return put(ones, places, size) > 0


def places_of(mask, *more):
    """Return the places of the flags, then more places, int32."""
    return tf.concat([tf.cast(tf.where(mask)[:, 0], tf.int32), *more], 0)


def count_before(mask):
    """Return the number of flags before each place."""
    return tf.cumsum(tf.cast(mask, tf.int32), exclusive=True)


def every_second(mask):
    """Keep the first, third, fifth, ... of each run of flags."""
    begins = mask & ~value_before(mask, 1, False)
    places = tf.concat([[0], places_of(begins)], 0)
    offset = tf.range(tf.size(mask)) - tf.gather(places, tf.cumsum(tf.cast(begins, tf.int32)))
    return mask & (offset - tf.bitwise.right_shift(offset, 1) * 2 == 0)


def follow(sizes, places, ends):
    """Flag where parts of these sizes begin, each after the one before, from places to ends."""

    def step(taken, places, ends):
        taken += put(tf.ones_like(places), places, tf.size(taken))
        size = tf.gather(sizes, places)
        places += size
        stays = places_of((size > 0) & (places < ends))
        return taken, tf.gather(places, stays), tf.gather(ends, stays)

    state = tf.zeros_like(sizes), places, ends
    return loop(lambda _, places, __: tf.size(places) > 0, step, state)[0] > 0


def value_before(values, n, fill):
    """Return the value n places before each."""
    return tf.concat([tf.fill([n], tf.cast(fill, values.dtype)), values[:-n]], 0)


def value_after(values, n, fill):
    """Return the value n places after each."""
    return tf.concat([values[n:], tf.fill([n], tf.cast(fill, values.dtype))], 0)


# === Bytes and characters ===


def bytes_with_tail(text):
    """Return the bytes of (B,) strings, then `TAIL` spaces, and the row splits, int32."""
    texts = bytes_of(text)
    data = tf.concat([tf.cast(texts.values, tf.int32), [32] * TAIL], 0)
    return data, tf.cast(texts.row_splits, tf.int32)


def valid_bytes(text):
    """Return what `bytes_with_tail` does, in valid UTF-8."""
    data, row_splits = bytes_with_tail(text)
    places, _, size, length, _ = characters(data, flags(row_splits, tf.size(data)))
    is_bad = size != length

    def replaced():
        # U+FFFD, of three bytes, replaces the first bad one; the others vanish.
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


def valid_texts(texts):
    """Return (B,) texts as bytes, ragged uint8, in valid UTF-8."""
    data, row_splits = valid_bytes(texts)
    data = tf.cast(data[: row_splits[-1]], tf.uint8)
    return tf.RaggedTensor.from_row_splits(data, row_splits, validate=False)


def characters(data, is_first):
    """Find the characters that are not ASCII; return `(places, codes, sizes, lengths, inside)`.

    The first four are (C,) int32: where they begin, their code points, how many of their bytes are
    there, and how many there should be. The last of the C is not a character. `inside` flags all
    bytes but the first of each character.
    """
    with tf.init_scope():  # constants, also if this is traced
        lengths, lowest, highest, bases = (tf.constant(x, tf.int32) for x in _first_bytes())
    rest = tf.where(is_first, 32, data)  # no character continues in the next text
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


def utf8_sizes(codes):
    """Return how many bytes of UTF-8 characters have."""
    return 1 + sum(tf.cast(codes >= first, tf.int32) for first in (0x80, 0x800, 0x10000))


def utf8_bytes(codes, sizes, place):
    """Return one byte of each character, that at a place in its UTF-8 of this size, int32."""
    shifted = tf.bitwise.right_shift(codes, 6 * (sizes - 1 - place))
    low = shifted - tf.bitwise.right_shift(shifted, 6) * 64
    first = shifted + tf.gather(tf.constant([0, 0, 0xC0, 0xE0, 0xF0]), sizes)
    return tf.where(place > 0, 0x80 + low, first)


def _first_bytes():
    """Return tables (256,) by the first byte of a character.

    These are its length in bytes, 0 for a byte that cannot be the first; the lowest and the highest
    second byte; and what to subtract from the bytes read as base-64 digits to get the code point.
    """
    lengths, lowest, highest, bases = np.zeros([4, 256], np.int32)
    for length, first, last, base in (
        *((1, 0x00, 0x7F, 0), (2, 0xC2, 0xDF, 0x3080)),
        *((3, 0xE0, 0xEF, 0xE2080), (4, 0xF0, 0xF4, 0x3C82080)),
    ):
        lengths[first : last + 1], bases[first : last + 1] = length, base
    lowest[:], highest[:] = 0x80, 0xBF
    lowest[0xE0], lowest[0xF0] = 0xA0, 0x90  # lower ones have a shorter form
    highest[0xED], highest[0xF4] = 0x9F, 0x8F  # higher ones: surrogates; beyond Unicode
    return lengths, lowest, highest, bases


class Speller:
    """Ids → texts as bytes, where each token has the same bytes wherever it is.

    Args:
        spellings: list of bytes, those of each token.
        *changes: functions of what tokens make together, applied in turn: from the bytes of texts,
            (N,) int32 with `TEXT_END` after each, to such bytes.

    Call: `speller(ids)` with ragged (B, S) ids returns ragged (B, N) uint8. Ids beyond the
    spellings have no bytes.
    """

    def __init__(self, spellings, *changes):
        self._changes = changes
        ends = np.cumsum([0, *map(len, spellings)])
        with tf.init_scope():
            self._starts = tf.constant([*ends, ends[-1]], tf.int32)
            self._bytes = tf.constant([*b"".join(spellings), 0], tf.uint8)

    def __call__(self, ids):
        number = tf.size(self._starts) - 2
        values = tf.minimum(tf.cast(ids.values, tf.int32), number)
        first = tf.gather(self._starts, values)
        lengths = tf.gather(self._starts, values + 1) - first
        row, place = strings.places_in_rows(lengths)
        data = tf.gather(self._bytes, tf.gather(first, row) + place)
        ends = tf.concat([[0], tf.cumsum(lengths)], 0)
        row_splits = tf.gather(ends, tf.cast(ids.row_splits, tf.int32))
        texts = tf.RaggedTensor.from_row_splits(data, row_splits, validate=False)
        if not self._changes:
            return texts
        data, number = _with_ends(texts), tf.size(row_splits) - 1
        for change in self._changes:
            data = change(data)
        return _without_ends(data, number)


# === What texts become once their tokens are joined ===

TEXT_END = 256  # after the bytes of each text, and `TAIL` more times after the last


def _with_ends(texts):
    row_splits = tf.cast(texts.row_splits, tf.int32)
    row, size = tf.cast(strings.row_ids(texts), tf.int32), row_splits[-1]
    total = size + tf.size(row_splits) - 1 + TAIL
    # (One more, so that the lists are not empty.)
    values = tf.concat([tf.cast(texts.values, tf.int32) - TEXT_END, [0]], 0)
    places = tf.concat([tf.range(size) + row, [total - 1]], 0)
    return put(values, places, total) + TEXT_END


def _without_ends(data, number):
    ends = places_of(data == TEXT_END)[:number]
    row_splits = tf.concat([[0], ends - tf.range(number)], 0)
    values = tf.cast(tf.gather(data, places_of(data != TEXT_END)), tf.uint8)
    return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)


def without_first_space(data):
    """Leave out the first byte of texts if it is a space."""
    return _without(data, (data == 32) & (value_before(data, 1, TEXT_END) == TEXT_END))


def without_outer_spaces(data):
    """Leave out all spaces at both ends of texts."""
    return _stripped(data, data == 32)


def without_outer_white_space(data):
    """Leave out the white space of ASCII at both ends of texts, as `tf.strings.strip`."""
    return _stripped(data, (data == 32) | ((data >= 9) & (data <= 13)))


def joined_pieces(data):
    """Leave out each `" ##"`."""
    is_mark = _spells(data, b" ##")
    for _ in range(2):
        is_mark |= value_before(is_mark, 1, False)
    return _without(data, is_mark)


def cleaning(clean_up):
    """Return the changes that `strings.cleaned_up` makes with this setting, a tuple."""
    changes = (_without_space_before_punctuation, _close_quotes, _without_space_before_clitics)
    return changes[: 1 if clean_up == strings.PUNCTUATION_ALONE else 3 * bool(clean_up)]


def _without_space_before_punctuation(data):
    return _without(data, _spells_one_of(data, [b" .", b" ?", b" !", b" ,"]))


def _close_quotes(data):
    # One that ends another begins none, so of some in a row every second one counts.
    places = places_of(_spells(data, b" ' "), [tf.size(data) - 1])
    is_apart = places - value_before(places, 1, -TAIL) != 2
    order = tf.range(tf.size(places)) + tf.cumsum(tf.cast(is_apart, tf.int32))
    counts = tf.gather(every_second(flags(order, 2 * tf.size(places) + 1)), order)
    counts &= tf.gather(data, places) == 32
    at = tf.concat([places, tf.where(counts, places + 2, 0)], 0)
    return _without(data, flags(at, tf.size(data), tf.concat([counts, counts], 0)))


def _without_space_before_clitics(data):
    return _without(data, _spells_one_of(data, [b" n't", b" 'm", b" 's", b" 've", b" 're"]))


def _spells(data, text):
    """Flag where bytes are those of a text of up to `TAIL`."""
    is_it = data == text[0]
    for n, byte in enumerate(text[1:], 1):
        is_it &= value_after(data, n, TEXT_END) == byte
    return is_it


def _spells_one_of(data, texts):
    return functools.reduce(operator.or_, [_spells(data, text) for text in texts])


def _stripped(data, is_space):
    is_end = data == TEXT_END
    is_text = tf.cast(~(is_space | is_end), tf.int32)
    before = tf.cumsum(is_text)
    of_texts, row = tf.gather(before, places_of(is_end)), count_before(is_end)
    begins, ends = tf.gather(tf.concat([[0], of_texts], 0), row), tf.gather(of_texts, row)
    return tf.gather(data, places_of(is_end | ((before > begins) & (before - is_text < ends))))


def _without(data, mask):
    return tf.gather(data, places_of(~mask))


def insert_spaces(data, before):
    """Insert spaces before flagged bytes; return the bytes, and where each old one is now."""
    ends = tf.cumsum(1 + tf.cast(before, tf.int32))
    moved = put(data - 32, ends - 1, ends[-1]) + 32
    return moved, ends - 1 - tf.cast(before, tf.int32)


def places_in_texts(at, is_covered, of_character, ids, text_begins):
    """Return where tokens start and end in characters of their texts, (T,) int32 each.

    Args:
        at: (T + 1,), where tokens begin among the symbols of all texts, and the end of these.
        is_covered: which symbols are of a token; all others follow the symbols of one.
        of_character: the character, of all texts, that each symbol comes from.
        ids: ragged (B, S), the tokens.
        text_begins: (B + 1,), the number of the first character of each text.
    """
    before = tf.gather(count_before(is_covered), at)
    last = tf.maximum(at[:-1] + before[1:] - before[:-1] - 1, 0)
    begin = tf.gather(text_begins, strings.row_ids(ids))
    starts = tf.gather(of_character, at[:-1]) - begin
    return tf.maximum(starts, 0), tf.maximum(tf.gather(of_character, last) + 1 - begin, 0)


# === Tables ===


def stored(values, small=False):
    """Return numbers as a constant, int32, or `small` in as few bytes as they need."""
    values = np.asarray(values)
    sizes = [np.iinfo(t) for t in (np.int8, np.int16)] if small else []
    low, high = values.min(initial=0), values.max(initial=0)
    fitting = [size.dtype for size in sizes if size.min <= low and high <= size.max]
    return tf.constant(values, fitting[0] if fitting else tf.int32)


def read(table, places):
    """Return the numbers at some places of a table that was `stored`, int32."""
    numbers = tf.gather(table, places)
    return numbers if numbers.dtype == tf.int32 else tf.cast(numbers, tf.int32)


class CodePointTable:
    """A number for every code point, in blocks of 256; equal blocks are stored once."""

    def __init__(self, values, small=False):
        blocks = {}  # bytes of a block → its number
        numbers = [blocks.setdefault(b.tobytes(), len(blocks)) for b in values.reshape(-1, 256)]
        # A code point plus the number of its block is its place.
        numbers = np.multiply(numbers, 256) - np.arange(0, len(values), 256)
        self._numbers = tf.constant(numbers, tf.int32)
        self._blocks = stored(np.frombuffer(b"".join(blocks), values.dtype), small)

    def __call__(self, codes):
        numbers = tf.gather(self._numbers, tf.bitwise.right_shift(codes, 8))
        return read(self._blocks, codes + numbers)


class PairTable:
    """Numbers of (row, column) pairs, as in Tarjan and Yao 1979, "Storing a Sparse Table"."""

    def __init__(self, pairs, first, num_columns, num_rows=0, small=False):
        pairs = np.asarray(pairs, np.int64).reshape(-1, 2)
        num_rows = max(num_rows, first + len(pairs), pairs[:, 0].max(initial=0) + 1)
        shifts, places = _displace(pairs, num_rows)
        table = np.zeros(shifts.max() + num_columns, np.int32)
        table[places] = first + np.arange(len(pairs))
        self._shifts, self._table = stored(shifts, small), stored(table, small)
        self._rows = stored([-1] * first + pairs[:, 0].tolist(), small)

    def __call__(self, row, column, missing=NONE):
        """Return the numbers of (T,) pairs; `missing` for a pair that is not in the table."""
        number = read(self._table, read(self._shifts, row) + column)
        return tf.where(read(self._rows, number) == row, number, missing)


def _displace(pairs, num_rows):
    """Return the place of column 0 of each row, and the place of each pair."""
    shifts, places = np.zeros(num_rows, np.int64), np.zeros(len(pairs), np.int64)
    order = np.argsort(pairs[:, 0], kind="stable")
    rows = np.split(order, np.flatnonzero(np.diff(pairs[order, 0])) + 1) if len(order) else []
    single = np.array([row[0] for row in rows if len(row) == 1], np.int64)
    rows = [row for row in rows if len(row) > 1]
    is_free = np.ones(2 * num_rows + WINDOW, bool)
    begins = {}  # size of rows → where the last one was placed
    for row in sorted(rows, key=len, reverse=True):
        columns = np.sort(pairs[row, 1])
        candidates, begin = (), max(begins.get(len(row), 0) - columns[0], 0)
        while not len(candidates):
            while begin + columns[-1] + WINDOW > len(is_free):
                is_free = np.concatenate([is_free, np.ones_like(is_free)])
            candidates = begin + np.flatnonzero(is_free[begin + columns[0] :][:WINDOW])
            for column in columns[1:]:
                candidates = candidates[is_free[candidates + column]]
            begin += WINDOW
        shifts[pairs[row[0], 0]] = candidates[0]
        places[row] = candidates[0] + pairs[row, 1]
        is_free[places[row]] = False
        begins[len(row)] = candidates[0] + columns[0]
    # Most rows have a single column, and fit anywhere.
    first = pairs[:, 1].max(initial=0)
    is_free = np.concatenate([is_free[first:], np.ones(len(single), bool)])
    places[single] = first + np.flatnonzero(is_free)[: len(single)]
    shifts[pairs[single, 0]] = places[single] - pairs[single, 1]
    return shifts, places


class Trie:
    """Finds keys of a dict among symbols; keys are bytes or tuples of symbols, values numbers."""

    def __init__(self, texts, num_symbols=256, small=False):
        nodes, pairs = {next(iter(texts))[:0]: 0}, []
        for text in texts:
            for end in range(1, len(text) + 1):
                if text[:end] not in nodes:
                    nodes[text[:end]] = len(nodes)
                    pairs.append((nodes[text[: end - 1]], text[end - 1]))
        self._nodes, self.nowhere = nodes, len(nodes)
        self._pairs = PairTable(pairs, 1, num_symbols, len(nodes) + 1, small=small)
        self.numbers = stored([*(texts.get(text, -1) for text in nodes), -1], small)
        self.lengths = stored([len(text) for text in nodes], small)

    def node(self, text):
        """Return the node of the beginning of a key."""
        return self._nodes[text]

    def after(self, nodes, symbols):
        """Return the nodes after one more symbol each; `nowhere` where no key goes on so."""
        return self._pairs(nodes, symbols, self.nowhere)

    def __call__(self, data, starts, ends, whole=True, root=0):
        """Return (W,) nodes of the longest keys at `starts`, 0 where there is none.

        With `whole`, keys must reach from the start to the end. `root` is the node of the symbols
        that keys begin with but `data` does not have.
        """
        # Lists keep their length, which takes less time than to drop places that are done. The last
        # one is there so that no list is empty.
        starts, ends = tf.concat([starts, [0]], 0), tf.concat([ends, [0]], 0)
        last = tf.size(data) - 1

        def step(longest, places, nodes):
            for _ in range(STEPS):
                nodes = self.after(nodes, tf.gather(data, tf.minimum(places, last)))
                places += 1
                # A longer key has a node of a higher number.
                is_key = read(self.numbers, nodes) >= 0
                if whole:
                    is_key &= places == ends
                longest = tf.maximum(longest, tf.where(is_key, nodes, 0))
                nodes = tf.where(places < ends, nodes, self.nowhere)
            return longest, places, nodes

        state = tf.zeros_like(starts), starts, tf.fill(tf.shape(starts), root)
        return loop(lambda _, __, nodes: tf.reduce_min(nodes) < self.nowhere, step, state)[0][:-1]


class SpelledTokens:
    """Tokenizes texts between tokens that they spell: leftmost first, then longest.

    Args:
        ids: dict from each token to its id.
        lstrip, rstrip: tokens that include the white space before them, or after them.
    """

    def __init__(self, ids, lstrip=(), rstrip=()):
        keys = {token.encode(): number for number, token in enumerate(ids)}
        self._longest = max(map(len, keys))
        spaces = [c.encode() for c in unicode_ranges.characters(unicode_ranges.WHITE_SPACE)]
        # One more, for the last place, which is no token.
        blank = [token for token in ids if not token.strip()]
        sides = [[t in tokens for t in ids] + [False] for tokens in (lstrip, rstrip, blank)]
        self._strips = any(map(any, sides[:2]))
        with tf.init_scope():
            self._trie, self._spaces = Trie(keys), Trie(dict.fromkeys(spaces, 1))
            self._ids = tf.constant([*ids.values(), 0], tf.int32)
            self._before, self._after, self._are_blank = map(tf.constant, sides)

    def __call__(self, text, tokenize):
        """Return ragged (B, S) ids of (B,) texts; `tokenize` takes (P,) parts, as bytes."""
        data, splits = valid_bytes(text)
        size = tf.size(data)
        row = tf.cumsum(put(tf.ones_like(splits), splits, size)) - 1
        limits = tf.gather(tf.concat([splits[1:], [size]], 0), row)
        begins, ends, ids = self._found(data, tf.gather(splits, row), limits)
        one, last = tf.ones_like(begins), tf.size(begins) - 1  # which is of no text
        inside = tf.cumsum(put(one, begins, size + 1) - put(one, ends, size + 1))
        kept = places_of(inside[:-1] == 0)
        # There is a part before each token, and one at the end of each text.
        before = count_before(put(one, begins, size) > 0)
        tokens_before = tf.gather(before, splits)
        first = tf.range(tf.size(splits)) + tokens_before
        number = first[-1]
        part = tf.gather(row + tf.cumsum(put(one, begins, size)), kept)
        counts = put(tf.ones_like(part), part, number + 2)[:number]
        bounds = tf.concat([[0], tf.cumsum(counts)], 0)
        parts = tf.cast(tf.gather(data, kept)[: bounds[-1]], tf.uint8)
        between = tokenize(tf.RaggedTensor.from_row_splits(parts, bounds, validate=False))

        of_parts = tf.cast(between.row_splits, tf.int32)
        of_row = tf.cumsum(put(tf.ones_like(first), first, number + 1)) - 1
        in_part = tf.cast(strings.row_ids(between), tf.int32)
        at = tf.range(tf.size(in_part)) + in_part - tf.gather(of_row, in_part)
        token = tf.range(last + 1)
        after = tf.gather(row, begins) + token + 1
        place = tf.gather(tf.concat([of_parts, of_parts[-1:]], 0), after) + token
        total = of_parts[-1] + last
        values = put(tf.concat([between.values, ids], 0), tf.concat([at, place], 0), total + 1)
        row_splits = tf.cast(tf.gather(of_parts, first) + tokens_before, tf.int64)
        return tf.RaggedTensor.from_row_splits(values[:total], row_splits, validate=False)

    def _found(self, data, floors, limits):
        """Return where tokens begin and end, and their ids; the last place is one more.

        Texts begin and end at `floors` and `limits`.
        """
        size = tf.size(data)
        nodes = self._trie(data, tf.range(size), limits, whole=False)
        is_match = read(self._trie.numbers, nodes) >= 0
        at = places_of(is_match, [size - 1])
        nodes = tf.gather(nodes, at)
        ends = at + tf.maximum(read(self._trie.lengths, nodes), 1)
        # Those that may overlap are followed from the first of them.
        count = tf.size(at)
        following = tf.gather(tf.concat([count_before(is_match), [count]], 0), ends)
        begins = places_of(at - value_before(at, 1, -self._longest) >= self._longest)
        stops = tf.concat([begins[1:], [count]], 0)
        taken = places_of(follow(following - tf.range(count), begins, stops))
        begins, ends, nodes = (tf.gather(x, taken) for x in (at, ends, nodes))
        number = read(self._trie.numbers, nodes)
        number = tf.where(number < 0, tf.size(self._ids) - 1, number)
        if self._strips:
            begins, ends, number = self._with_spaces(data, floors, limits, begins, ends, number)
        return begins, ends, tf.gather(self._ids, number)

    def _with_spaces(self, data, floors, limits, begins, ends, number):
        size = tf.size(data)
        nodes = self._spaces(data, tf.range(size), limits, whole=False)
        lengths = read(self._spaces.lengths, nodes)
        change = tf.where(lengths > 0, 1, 0)
        change = put(change, tf.range(size), size + 1) - put(
            change, tf.range(size) + lengths, size + 1
        )
        is_text = tf.cumsum(change)[:-1] == 0
        texts = places_of(is_text, [size])
        before = tf.concat([count_before(is_text), tf.shape(texts) - 1], 0)
        limits, floors = tf.gather(limits, begins), tf.gather(floors, begins)
        after = tf.minimum(tf.gather(texts, tf.gather(before, ends)), limits)
        known = tf.gather(before, begins)
        last = tf.where(known > 0, tf.gather(texts, tf.maximum(known - 1, 0)) + 1, 0)
        last = tf.maximum(last, floors)
        # One of spaces alone is part of that which includes all spaces around it.
        opens, closes = (
            flags(places, size + 1, tf.gather(sides, number))
            for places, sides in ((begins, self._before), (ends, self._after))
        )
        is_inside = (tf.gather(opens, after) & (after < limits)) | (
            tf.gather(closes, last) & (last > floors)
        )
        kept = places_of(~(is_inside & tf.gather(self._are_blank, number)))
        begins, ends, number, after, last = (
            tf.gather(x, kept) for x in (begins, ends, number, after, last)
        )
        ends = tf.where(tf.gather(self._after, number), after, ends)
        last = tf.maximum(last, value_before(ends, 1, 0))
        return tf.where(tf.gather(self._before, number), last, begins), ends, number


class PairMerger:
    """Merges symbols by BPE.

    Symbols are numbers: first the `num_symbols` that words start from, then the results of `pairs`,
    which are in BPE's order of preference. Each symbol results from one pair only.
    """

    def __init__(self, num_symbols, pairs):
        self._pairs = PairTable(pairs, num_symbols, num_symbols + len(pairs))
        # A merge whose parts are made by later ones may go before the same merge elsewhere. No
        # training makes such.
        self._one_by_one = any(max(pair) >= i for i, pair in enumerate(pairs, start=num_symbols))

    def __call__(self, symbols, words):
        """Merge (T,) symbols of numbered words in order; the last symbol is ignored.

        In each round, every word takes BPE's next step: it merges its preferred pair, wherever that
        occurs. So there are fewer rounds than the longest word has symbols, and at most as many as
        there are pairs. Returns each symbol at the place of its first part, -1 elsewhere.
        """
        num_words = words[-1] + 1

        def merge(done, places, symbols, words):
            made = self._pairs(symbols[:-1], symbols[1:])
            made = tf.where(words[1:] == words[:-1], made, NONE)
            made = tf.concat([made, [NONE]], 0)
            first = tf.gather(tf.math.unsorted_segment_min(made, words, num_words), words)
            is_busy = first < NONE
            is_left = is_busy & (made == first)
            if self._one_by_one:
                at = tf.where(is_left, tf.range(tf.size(made)), NONE)
                nearest = tf.math.unsorted_segment_min(at, words, num_words)
                is_left &= at == tf.gather(nearest, words)
            else:
                is_left = every_second(is_left)
            done += put(tf.where(is_busy, 0, symbols + 1), places, tf.size(done))
            symbols = tf.where(is_left, made, symbols)
            stays = is_busy & ~value_before(is_left, 1, False)
            stays = tf.where(tf.concat([stays[:-1], [True]], 0))[:, 0]
            return done, *(tf.gather(x, stays) for x in (places, symbols, words))

        state = tf.zeros_like(symbols), tf.range(tf.size(symbols)), symbols, words
        done = loop(lambda done, places, *_: tf.size(places) > 1, merge, state)[0]
        return tf.concat([done[:-1], [0]], 0) - 1


def loop(condition, step, state):
    """Repeat a step while a condition holds; lists in the state may change their lengths."""
    return tf.while_loop(condition, step, state, (tf.TensorShape([None]),) * len(state))


# === Letters: a table of what characters become when text is cleaned ===

# LiteRT has no kernel for lower-casing and Unicode normalisation. Both work character by character,
# with two exceptions: a capital sigma at the end of a word, for which there are rules here, and
# several marks on a letter: if cleaning leaves them, they keep their order, canonical or not.

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
        codes, row_splits = code_points(*valid_bytes(text))
        if self._of_sigma is not None:
            given = codes
            codes = tf.cond(
                tf.reduce_any(given == CAPITAL_SIGMA),
                lambda: self._finish_words(given, flags(row_splits, tf.size(given))),
                lambda: given,
            )
        starts, lengths = self._starts(codes), self._lengths(codes)
        ends = tf.cumsum(lengths)
        begins, size = ends - lengths, ends[-1]
        of_character = tf.cumsum(put(tf.ones_like(begins), begins, size)) - 1
        first = tf.gather(starts - begins, of_character)  # where the letters of each are spelled
        numbers = tf.gather(self._spelled, first + tf.range(size))
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
