"""Unicode's normal forms and case folding in TensorFlow's own operations.

These are tables of what characters become, a sort of the marks after a letter, and rounds in which
letters take up marks. Texts are one long list.

Shapes: B texts, N characters.
"""

import functools
import unicodedata

import numpy as np

from keras_lm.tensorflow import tf
from keras_lm.tokenizers import strings
from keras_lm.tokenizers.lite_operations import (
    NONE,
    CodePointTable,
    PairTable,
    code_points,
    flags,
    loop,
    places_of,
    put,
    utf8_bytes,
    utf8_sizes,
    valid_bytes,
    value_before,
)

FOLDED = "NFKC_Casefold"
COMPOSING = ("NFC", "NFKC", FOLDED)
# Beyond these, no character has a decomposition or a case, or is a mark.
CHANGEABLE = (
    range(0xD800),
    range(0xE000, 0x20000),
    range(0x2F800, 0x2FA20),
    range(0xE0000, 0xE1000),
)
# Characters that folding drops (Unicode's Default_Ignorable_Code_Point).
IGNORABLE = (
    *(range(0xAD, 0xAE), range(0x34F, 0x350), range(0x61C, 0x61D), range(0x115F, 0x1161)),
    *(range(0x17B4, 0x17B6), range(0x180B, 0x1810), range(0x200B, 0x2010), range(0x202A, 0x202F)),
    *(range(0x2060, 0x2070), range(0x3164, 0x3165), range(0xFE00, 0xFE10), range(0xFEFF, 0xFF00)),
    *(range(0xFFA0, 0xFFA1), range(0xFFF0, 0xFFF9), range(0x1BCA0, 0x1BCA4)),
    *(range(0x1D173, 0x1D17B), range(0xE0000, 0xE1000)),
)


def offsets_in_form(text, form, find):
    """See `keras_lm.tokenizers.tokenizer.offsets_in_form`."""
    text, old_bounds, old_first, bounds, first, is_other = traced_form(form, with_places=True)(text)
    ids, *offsets = find(text)
    row = strings.row_ids(ids)

    def in_text(offset):
        place = tf.cast(offset.values, tf.int32) + tf.gather(first, row)
        part = tf.searchsorted(bounds, place, "right") - 1
        within = place - tf.gather(bounds, part)
        end = tf.gather(old_bounds, tf.minimum(part + 1, tf.size(old_bounds) - 1))
        begin = tf.gather(old_bounds, part)
        old = tf.where(tf.gather(is_other, part) & (within > 0), end, begin + within)
        return offset.with_values(tf.cast(old - tf.gather(old_first, row), tf.int64))

    return ids, *map(in_text, offsets)


def tokens_in_form_lite(text, form, find):
    """Return what `find`, from texts in a normal form to ids, starts and ends, finds in texts.

    Offsets are in characters of the (B,) texts as they are. Uses only operations that LiteRT has.
    """
    with tf.init_scope():
        normal_form = _made(form)
    texts, places, begins, old_begins = normal_form.as_bytes(text)
    ids, *offsets = find(texts)
    row = strings.row_ids(ids)

    def in_text(offset):
        old = tf.gather(places, tf.cast(offset.values, tf.int32) + tf.gather(begins, row))
        return offset.with_values(old - tf.gather(old_begins, row))

    return ids, *map(in_text, offsets)


@functools.cache
def traced_form(form, with_places=False):
    """Return the function of (B,) strings, traced once: its loops would be slow in Python."""
    with tf.init_scope():
        normal_form = _made(form)
        function = normal_form.with_places if with_places else normal_form
        return tf.function(function, autograph=False).get_concrete_function(
            tf.TensorSpec([None], tf.string)
        )


@functools.cache
def _made(form):
    return NormalForm(form)


class NormalForm:
    """A function from (B,) strings of valid UTF-8 to the same in one of Unicode's normal forms."""

    def __init__(self, form):
        codes = [code for codes in CHANGEABLE for code in codes]
        parts = {
            code: text for code in codes if (text := _decomposed(form, chr(code))) != chr(code)
        }
        spelled, places = [0], {}
        for text in parts.values():
            if text not in places:
                places[text] = len(spelled)
                spelled += map(ord, text)
        starts, lengths, classes = np.zeros([3, 0x110000], np.int32)
        lengths += 1
        for code, text in parts.items():
            starts[code], lengths[code] = places[text], len(text)
        for code in codes:
            classes[code] = unicodedata.combining(chr(code))
        self._spelled = tf.constant(spelled, tf.int32)
        self._starts, self._lengths, self._classes = (
            CodePointTable(table, small=True) for table in (starts, lengths, classes)
        )
        self._pairs = Pairs() if form in COMPOSING else None

    def __call__(self, text):
        codes, row_splits = _code_points(text)
        codes, row_splits, _ = self._in_form(codes, row_splits, row_splits[:-1])
        return _encoded(codes, row_splits)

    def with_places(self, text):
        """Return the texts in their normal form, and `Places` of these, as a tuple of tensors."""
        old_codes, old_splits = _code_points(text)
        begins = self._begin_parts(old_codes, old_splits)
        codes, row_splits, part = self._in_form(old_codes, old_splits, begins)
        old_part = tf.cumsum(put(tf.ones_like(begins), begins, tf.size(old_codes))) - 1
        number = tf.size(begins)
        is_other = _are_others(old_codes, codes, begins, part)[0]
        bounds = []
        old_and_new = ((old_codes, old_part, old_splits), (codes, part, row_splits))
        for characters, of, splits in old_and_new:
            widths = utf8_sizes(characters)
            ends = tf.concat([[0], tf.cumsum(widths)], 0)
            sizes = put(widths, of, number)
            bounds += [tf.concat([[0], tf.cumsum(sizes)], 0), tf.gather(ends, splits[:-1])]
        return _encoded(codes, row_splits), *bounds, tf.concat([is_other, [False]], 0)

    def as_bytes(self, text):
        """Return (B,) texts in the form as ragged (B, N) uint8, with operations that LiteRT has.

        Then, of each character of all of them and of spaces after the last, where it starts among
        those of the texts as they are, within a changed part where this ends; and the number of the
        first character of each text, in the form and as it is, (B,) each.
        """
        old_codes, old_splits = code_points(*valid_bytes(text))
        size = tf.size(old_codes)
        old_splits = tf.concat([old_splits, [size]], 0)  # the spaces are a text of their own
        begins = self._begin_parts(old_codes, old_splits)
        codes, row_splits, part = self._in_form(old_codes, old_splits, begins)
        is_other, place = _are_others(old_codes, codes, begins, part)
        ends = tf.concat([begins[1:], [size]], 0)
        is_inside = tf.gather(is_other, part) & (place > 0)
        places = tf.where(is_inside, tf.gather(ends, part), tf.gather(begins, part) + place)
        sizes = utf8_sizes(codes)
        of, place = strings.places_in_rows(sizes)
        data = utf8_bytes(tf.gather(codes, of), tf.gather(sizes, of), place)
        bounds = tf.gather(tf.concat([[0], tf.cumsum(sizes)], 0), row_splits[:-1])
        data = tf.cast(data, tf.uint8)[: bounds[-1]]
        texts = tf.RaggedTensor.from_row_splits(data, bounds, validate=False)
        return texts, places, row_splits[:-2], old_splits[:-2]

    def _begin_parts(self, codes, row_splits):
        """Return the places at which characters begin parts that change independently."""
        starts, lengths = self._starts(codes), self._lengths(codes)
        first, last = (
            tf.where(starts > 0, tf.gather(self._spelled, tf.where(starts > 0, at, 0)), codes)
            for at in (starts, starts + lengths - 1)
        )
        begins = self._classes(first) == 0
        is_end = self._classes(last) <= 1  # no mark goes before one of class 1
        if self._pairs is not None:
            begins &= ~self._pairs.may_follow(first)
            is_end &= ~self._pairs.may_begin(last) & ~self._pairs.may_follow(last)
        begins |= value_before(is_end, 1, True)
        return places_of(begins | flags(row_splits, tf.size(codes) + 1)[:-1])

    def _in_form(self, codes, row_splits, begins):
        """Return characters in the form, their row splits, and the part of each, from `begins`."""
        part = tf.cumsum(put(tf.ones_like(begins), begins, tf.size(codes) + 1)[:-1]) - 1
        codes, row_splits, of = self._decompose(codes, row_splits)
        part = tf.gather(part, of)
        classes = self._classes(codes)
        row = strings.row_ids(tf.RaggedTensor.from_row_splits(codes, row_splits, validate=False))
        row = tf.cast(row, tf.int32)
        codes, classes = self._order(codes, classes, row)
        if self._pairs is not None:
            codes, row_splits, part = self._compose(codes, classes, row, row_splits, part)
        return codes, row_splits, part

    def _decompose(self, codes, row_splits):
        starts, lengths = self._starts(codes), self._lengths(codes)
        of, place = strings.places_in_rows(lengths)
        start = tf.gather(starts, of)
        spelled = tf.gather(self._spelled, tf.where(start > 0, start + place, 0))
        codes = tf.where(start > 0, spelled, tf.gather(codes, of))
        ends = tf.concat([[0], tf.cumsum(lengths)], 0)
        return codes, tf.gather(ends, row_splits), of

    def _order(self, codes, classes, row):
        """Sort the marks after each letter by their classes; equal ones keep their order."""
        before = tf.where(value_before(row, 1, -1) == row, value_before(classes, 1, 0), 0)
        is_wrong = (classes > 0) & (before > classes)

        def ordered():
            begins = (classes == 0) | (value_before(row, 1, -1) != row)
            group = tf.cumsum(tf.cast(begins, tf.int32))
            # (Of equal numbers, the first is first.)
            order = tf.math.top_k(-256 * group - classes, tf.size(codes)).indices
            return tf.gather(codes, order), tf.gather(classes, order)

        # (tf2onnx loses the shape of what a condition returns.)
        both = tf.cond(tf.reduce_any(is_wrong), ordered, lambda: (codes, classes))
        return [tf.reshape(x, [-1]) for x in both]

    def _compose(self, codes, classes, row, row_splits, part):
        """Let letters take up the marks after them, each the first that it can in a round."""
        size = tf.size(codes)

        def step(goes_on, codes, classes, row, part, place, last):
            size = tf.size(codes)
            is_letter = classes == 0
            at = tf.range(size)
            # The letter before each character, not itself, and what lies directly before it.
            letter = tf.cumsum(tf.where(is_letter, 1, 0), exclusive=True)
            letters = places_of(is_letter, [0])
            letter = tf.where(letter > 0, tf.gather(letters, tf.maximum(letter - 1, 0)), -1)
            known = tf.maximum(letter, 0)
            is_free = (letter == at - 1) | (value_before(classes, 1, 0) < classes)
            is_free &= (letter >= 0) & (tf.gather(row, known) == row)
            is_free &= place > tf.gather(last, known)
            made = self._pairs(tf.gather(codes, known), codes)
            can = is_free & (made > 0)
            at_or_none = tf.reshape(tf.where(can, at, NONE), [-1])
            first = tf.math.unsorted_segment_min(at_or_none, known, size)
            is_taken = can & (tf.gather(first, known) == at)
            # (A letter takes one at most.)
            values = (tf.ones_like(made), made, place)
            takes, new, now = (put(tf.where(is_taken, x, 0), known, size) for x in values)
            codes, last = tf.where(takes > 0, new, codes), tf.where(takes > 0, now, last)
            stays = places_of(~is_taken)
            state = (tf.gather(x, stays) for x in (codes, classes, row, part, place, last))
            return tf.reshape(tf.reduce_any(is_taken), [1]), *state

        # Nothing composes in most texts.
        is_any = tf.reduce_any(self._pairs.may_follow(codes))
        place = tf.range(size)
        state = tf.reshape(is_any, [1]), codes, classes, row, part, place, tf.fill([size], -1)
        _, codes, _, row, part, *_ = loop(lambda goes_on, *_: goes_on[0], step, state)
        counts = put(tf.ones_like(row), row, tf.size(row_splits) - 1)
        return codes, tf.concat([[0], tf.cumsum(counts)], 0), part


class Pairs:
    """What a letter and the character after it are together."""

    def __init__(self):
        pairs = _pairs()
        firsts, seconds = (sorted({pair[i] for pair in pairs}) for i in (0, 1))
        self._first, self._second = (_numbers(codes) for codes in (firsts, seconds))
        first, second = ({c: i for i, c in enumerate(x, start=1)} for x in (firsts, seconds))
        rows = [(first[a], second[b]) for a, b in pairs]
        self._table = PairTable(rows, 1, len(seconds) + 1, len(firsts) + 1, small=True)
        self._made = tf.constant([0, *pairs.values()], tf.int32)

    def may_begin(self, codes):
        return self._first(codes) > 0

    def may_follow(self, codes):
        return self._second(codes) > 0

    def __call__(self, first, second):
        """Return the characters that pairs make, 0 for those that make none."""
        number = self._table(self._first(first), self._second(second))
        return tf.gather(self._made, tf.where(number < NONE, number, 0))


def _code_points(text):
    codes = tf.strings.unicode_decode(text, "UTF-8")
    return codes.values, tf.cast(codes.row_splits, tf.int32)


def _encoded(codes, row_splits):
    rows = tf.RaggedTensor.from_row_splits(codes, row_splits, validate=False)
    return tf.strings.unicode_encode(rows, "UTF-8")


def _are_others(old_codes, codes, begins, part):
    """Return which parts are other characters now, or more or fewer, and places of those in it."""
    number, size = tf.size(begins), tf.size(old_codes)
    place = tf.range(tf.size(codes)) - tf.gather(_first(part, number), part)
    at = tf.gather(begins, part) + place
    same = tf.gather(tf.concat([old_codes, [0]], 0), tf.minimum(at, size))
    is_other = put(tf.cast(same != codes, tf.int32), part, number) > 0
    old_counts = tf.concat([begins[1:], [size]], 0) - begins
    return is_other | (old_counts != put(tf.ones_like(part), part, number)), place


def _first(part, number):
    """Return where each of `number` parts begins, given the part of each character."""
    return tf.cumsum(put(tf.ones_like(part), part, number), exclusive=True)


def _numbers(codes):
    table = np.zeros(0x110000, np.int32)
    table[codes] = np.arange(1, len(codes) + 1)
    return CodePointTable(table, small=True)


def _pairs():
    """Return a dict from two characters to the one that they make in NFC."""
    pairs = {}
    for codes in CHANGEABLE:
        for code in codes:
            parts = unicodedata.decomposition(chr(code)).split()
            is_pair = len(parts) == 2 and not parts[0].startswith("<")
            if is_pair and unicodedata.normalize("NFC", chr(code)) == chr(code):
                pairs[int(parts[0], 16), int(parts[1], 16)] = code
    for code in range(0xAC00, 0xD7A4):  # Hangul, by Unicode's arithmetic
        number = code - 0xAC00
        tail = number % 28
        first, second = 0x1100 + number // 588, 0x1161 + number % 588 // 28
        pairs[(code - tail, 0x11A7 + tail) if tail else (first, second)] = code
    return pairs


def _decomposed(form, text):
    """Return what a character becomes before marks are sorted and composed."""
    if form == FOLDED:
        old = None
        while old != text:
            old = text
            text = unicodedata.normalize("NFKC", unicodedata.normalize("NFD", text).casefold())
            text = "".join(c for c in text if not _is_ignorable(c))
        return unicodedata.normalize("NFD", text)
    return unicodedata.normalize(form.replace("C", "D"), text)


def _is_ignorable(character):
    return any(ord(character) in codes for codes in IGNORABLE)
