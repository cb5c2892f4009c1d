"""Splits text into words: at white space, at punctuation marks too, or like CoNLL-2003.

Shapes: B batch, S words of a text, C characters of all texts, W words of all texts.
"""

import functools
import string

import numpy as np

from keras_lm.tensorflow import tf, tf_text
from keras_lm.tokenizers import lite_operations, strings
from keras_lm.tokenizers.strings import has_text_operations
from keras_lm.tokenizers.unicode_ranges import (
    SIGNS_WITHOUT_SPACES,
    WHITE_SPACE,
    WITHOUT_SPACES,
    character_class,
    characters,
)

# Punctuation as BERT defines it: the marks of ASCII, and what Unicode calls punctuation.
PUNCTUATION = r"[!-/:-@\[-`{-~\p{P}]"
SPACES = f"[{character_class(WHITE_SPACE)}]"
RARE_SPACES = f"[{character_class(WHITE_SPACE.replace(' 20 ', ' '))}]"

SPLITTERS = ("punctuation", "whitespace")
# The splitters of tasks with a label for each word.
WORD_SPLITTERS = ("conll", *SPLITTERS)

# A character is a letter or another sign, white space, or punctuation; or, of scripts that are
# written without spaces, a word by itself, or a sign that joins one. To CoNLL's rules, ASCII's
# visible characters stand for themselves.
OTHER, SPACE, MARK, ALONE, JOINED = range(5)

APOSTROPHE = "'"  # ’ is one as well
INSIDE = "-._&/@" + APOSTROPHE  # in one word with the characters around: AT&T, 3.5, O'Brien
INSIDE_NUMBERS = ",:"  # 1,000 and 10:30
REPEATED = ".-"  # "..." and "--" are one word


def check_splitter(splitter):
    """Raise ValueError for a splitter that tokenizers do not have."""
    if splitter not in SPLITTERS:
        raise ValueError(
            f"`splitter` is {splitter!r}; it must be one of {SPLITTERS}. For words that are split "
            "already, call `tokenize_words`."
        )


def check_word_splitter(splitter):
    """Raise ValueError for a splitter that does not exist."""
    if splitter not in WORD_SPLITTERS:
        raise ValueError(
            f"`splitter` is {splitter!r}; it must be one of {WORD_SPLITTERS}. Pass words that are "
            "already split as lists."
        )


def split_words(text, splitter, whole=()):
    """Return the words of (B,) texts as ragged (B, S) strings; invalid UTF-8 counts as letters.

    For `splitter` see `CharacterTokenizer`. Words in `whole` are not split wherever they occur.
    """
    parted = [strings.regex_literal(word) for word in sorted(whole, key=len, reverse=True)]
    if splitter == "punctuation":
        parted.append(PUNCTUATION)
    text = tf.strings.regex_replace(text, RARE_SPACES, " ")
    if parted:
        text = tf.strings.regex_replace(text, "|".join(parted), r" \0 ")
    return strings.split(text, b" ")


def words_and_places(text, splitter, by_character=False):
    """Return ragged (B, S) `(words, starts, ends)`, in characters of the (B,) original texts.

    `splitter` is one of `WORD_SPLITTERS`. `"conll"` splits like CoNLL-2003 and the Penn Treebank
    (Marcus et al. 1993, https://aclanthology.org/J93-2004), without their list of abbreviations:
    marks are words, except inside of `AT&T`, `1,000.5`, `O'Brien` and `Franz-Josef`, and at the end
    of `U.S.` and the `J.` of `J. Smith`; `...` and `--` are one word; clitics are words, as in
    `Ada|'s` and `do|n't`.

    With `by_character`, each letter of a script that is written without spaces is a word, with the
    signs that join it: ideographs, kana, Thai, Lao, Khmer and Burmese. `"whitespace"` splits none.
    """
    if splitter == "conll" or (by_character and splitter != "whitespace"):
        return _words_of_runs(text, splitter, by_character)
    # The kernel takes NUL for the end of a text.
    valid = tf.strings.regex_replace(strings.valid_utf8(text), r"\x{0}", "\x01")
    marks = PUNCTUATION if splitter == "punctuation" else ""
    parting = f"{SPACES}+|{marks}" if marks else f"{SPACES}+"
    if not has_text_operations():
        return _words_of_runs(valid, splitter, by_character=False)
    words, starts, ends = tf_text.regex_split_with_offsets(valid, parting, marks)
    return words, *strings.in_original(text, starts, ends, "character")


def _words_of_runs(text, splitter, by_character):
    characters = tf.strings.unicode_decode(text, "UTF-8").with_row_splits_dtype(tf.int64)
    splits = characters.row_splits
    size = tf.size(characters.values, tf.int64)
    is_first = tf.scatter_nd(splits[:, tf.newaxis], tf.ones_like(splits), [size + 1])[:-1] > 0
    sign = _signs(splitter, characters.values, by_character)
    # Each run is a word, or a single space to leave out.
    starts = tf.where(RULES[splitter](sign, is_first))[:, 0]
    runs = tf.RaggedTensor.from_row_starts(characters.values, starts, validate=False)
    kept = tf.where(tf.gather(sign, starts) != SPACE)[:, 0]
    words = tf.gather(tf.strings.unicode_encode(runs, "UTF-8"), kept)
    starts, ends = (tf.gather(places, kept) for places in (starts, runs.row_limits()))
    row_splits = tf.searchsorted(starts, splits, out_type=tf.int64)
    words = tf.RaggedTensor.from_row_splits(words, row_splits, validate=False)
    begins = tf.gather(splits, strings.row_ids(words))
    return words, *(words.with_values(places - begins) for places in (starts, ends))


# === LiteRT, which has no regular expressions ===

# No white space and no punctuation lies above, and of scripts without spaces ideographs alone.
NUM_CODE_POINTS = 0x1F000
FIRST_IDEOGRAPH, LAST_IDEOGRAPH = 0x20000, 0x323AF  # of these


def split_bytes(data, row_splits, splitter, by_character=False):
    """Split texts with operations that LiteRT has.

    The bytes of all texts and `TAIL` spaces, and their row splits, are those of `bytes_with_tail`
    or `valid_bytes`. `splitter` is one of `WORD_SPLITTERS`; words are those of `split_words` or
    `words_and_places`.

    Returns `(starts, ends, row_splits)`, all int32: where words start and end in the bytes, with a
    last empty word that belongs to no text, (W + 1,); and the row splits of the (B, S) words,
    without the last one.
    """
    # The spaces end the last word; every byte has three after it, and no tensor is empty.
    size = tf.shape(data)
    row_starts = tf.scatter_nd(row_splits[:, tf.newaxis], tf.ones_like(row_splits), size)
    code_point, length = _characters(data, row_starts > 0)
    sign = _signs(splitter, code_point, by_character)
    if splitter == "conll" or by_character:
        bounds = _bounds_of_runs(splitter, length, sign, row_starts > 0)
    else:
        is_separator = tf.cast(sign != OTHER, tf.int32)
        bounds = row_starts + is_separator
        for n in (1, 2, 3, 4):  # and what follows a separator of n bytes
            ended = tf.where(length == n, is_separator, 0)
            bounds += tf.concat([tf.zeros([n], tf.int32), ended[:-n]], axis=0)
    # Each bound starts a run: a word, or a single space to leave out.
    starts = tf.cast(tf.where(bounds > 0)[:, 0], tf.int32)
    ends = tf.concat([starts[1:], size], axis=0)
    is_word = tf.gather(sign, starts) != SPACE
    words_before = tf.cumsum(
        tf.scatter_nd(starts[:, tf.newaxis], tf.cast(is_word, tf.int32), size), exclusive=True
    )
    kept = tf.where(is_word)[:, 0]
    starts = tf.concat([tf.gather(starts, kept), [0]], axis=0)
    ends = tf.concat([tf.gather(ends, kept), [0]], axis=0)
    return starts, ends, tf.gather(words_before, row_splits)


def words_and_places_lite(text, splitter, by_character=False):
    """Return what `words_and_places` does, in int32 and with operations that LiteRT has.

    Invalid UTF-8 stays in the words; places count it as the U+FFFD that it is there. Also returns
    the words of all texts in one dimension, followed by an empty one, (W + 1,).
    """
    data, text_splits = lite_operations.bytes_with_tail(text)
    starts, ends, row_splits = split_bytes(data, text_splits, splitter, by_character)
    # The empty word goes into the last text.
    with_last = tf.cast(tf.concat([row_splits[:-1], tf.shape(starts)], axis=0), tf.int64)
    row = strings.row_ids(tf.RaggedTensor.from_row_splits(starts, with_last, validate=False))
    begins = tf.cast(strings.bytes_of(text).row_starts(), tf.int32)  # of each text
    begin = tf.gather(begins, row)
    starts, ends = tf.maximum(starts, begin), tf.maximum(ends, begin)
    parts = strings.parts_of(
        text,
        *(
            tf.RaggedTensor.from_row_splits(place - begin, with_last, validate=False)
            for place in (starts, ends)
        ),
    )
    is_first = lite_operations.flags(text_splits, tf.size(data))
    *_, is_inside = lite_operations.characters(data, is_first)
    before = tf.cumsum(tf.cast(~is_inside, tf.int32), exclusive=True)  # characters before each byte
    starts, ends = (tf.gather(before, place) - tf.gather(before, begin) for place in (starts, ends))
    words = strings.without_last(parts.values, row_splits.dtype)
    words = tf.RaggedTensor.from_row_splits(words, row_splits, validate=False)
    starts, ends = (words.with_values(places[:-1]) for places in (starts, ends))
    return words, starts, ends, parts.values


def _bounds_of_runs(splitter, length, sign, is_first):
    is_inside = tf.zeros_like(length)  # of a character that begins before
    for n in (1, 2, 3):
        goes_on = tf.cast(length > n, tf.int32)
        is_inside += tf.concat([tf.zeros([n], tf.int32), goes_on[:-n]], axis=0)
    at = tf.cast(tf.where(is_inside == 0), tf.int32)  # (C, 1)
    sign, is_first = (tf.gather(x, at[:, 0]) for x in (sign, tf.cast(is_first, tf.int32)))
    begins = RULES[splitter](sign, is_first > 0)
    return tf.scatter_nd(at, tf.cast(begins, tf.int32), tf.shape(length))


def _characters(data, is_first):
    """Return the code point of the character that starts at each byte, and its length in bytes."""
    rest = tf.where(is_first, 32, data)  # no character continues in the next text
    following = [tf.concat([rest[n:], tf.fill([n], 32)], axis=0) for n in (1, 2, 3)]
    lowest = {1: 0, 2: 0x80, 3: 0x800, 4: 0x10000}
    code_point = tf.where(data < 0x80, data, -1)
    length = tf.ones_like(data)
    for n, lead in ((2, 0xC0), (3, 0xE0), (4, 0xF0)):
        value = data - lead
        is_valid = (value >= 0) & (value < 2 ** (7 - n))
        for byte in following[: n - 1]:
            is_valid &= (byte >= 0x80) & (byte < 0xC0)
            value = value * 64 + byte - 0x80
        is_valid &= value >= lowest[n]
        code_point = tf.where(is_valid, value, code_point)
        length = tf.where(is_valid, n, length)
    return code_point, length


def _signs(splitter, code_point, by_character):
    """Return the kind of each character (OTHER, SPACE, …), or for "conll" its sign; int32."""
    by_character = by_character and splitter != "whitespace"
    with tf.init_scope():  # a constant, also if this is traced
        signs = tf.constant(_table_of_signs(splitter, by_character))
    is_known = (code_point >= 0) & (code_point < NUM_CODE_POINTS)
    kinds = tf.gather(signs, tf.where(is_known, code_point, NUM_CODE_POINTS))
    kinds = tf.cast(kinds, tf.int32)
    if not by_character:
        return kinds
    is_above = (code_point >= FIRST_IDEOGRAPH) & (code_point <= LAST_IDEOGRAPH)
    return tf.where(is_above, ALONE, kinds)


@functools.cache
def _table_of_signs(splitter, by_character):
    """Return the sign of every code point as the kernels see it, then OTHER."""
    code_points = tf.range(NUM_CODE_POINTS)[:, tf.newaxis]
    texts = tf.strings.unicode_encode(code_points, "UTF-8")
    kinds = tf.where(tf.strings.regex_full_match(texts, SPACES), SPACE, OTHER)
    if splitter != "whitespace":
        kinds = tf.where(tf.strings.regex_full_match(texts, PUNCTUATION), MARK, kinds)
    kinds = tf.concat([tf.cast(kinds, tf.int8), [OTHER]], axis=0).numpy()
    for kind, ranges in ((ALONE, WITHOUT_SPACES), (JOINED, SIGNS_WITHOUT_SPACES)):
        if by_character:
            codes = np.array([ord(character) for character in characters(ranges)])
            kinds[codes[codes < NUM_CODE_POINTS]] = kind
    return signs_of(kinds) if splitter == "conll" else kinds


# === CoNLL-2003 ===

# Source: the tokens of CoNLL-2003, https://aclanthology.org/W03-0419, which follow the Penn
# Treebank's. Those need a list of abbreviations; here a few neighbours of each character decide.


def signs_of(kinds):
    """Return the sign of each code point, given an array of their kinds."""
    signs = kinds.copy()
    visible = np.arange(ord("!"), ord("~") + 1)
    signs[visible] = visible
    signs[ord("’")] = ord(APOSTROPHE)
    return signs


def begins_run(sign, is_first):
    """Return whether a word, or a space, begins at each character, (C,) bool.

    Args:
        sign: (C,) int32, see `signs_of`.
        is_first: (C,) bool, whether a text begins there.
    """
    is_last = tf.concat([tf.cast(is_first[1:], tf.int32), [1]], axis=0) > 0

    def before(x):  # outside of a text are spaces
        return tf.where(is_first, SPACE, tf.concat([[SPACE], x[:-1]], axis=0))

    def after(x):
        return tf.where(is_last, SPACE, tf.concat([x[1:], [SPACE]], axis=0))

    last1, here, next1 = before(sign), sign, after(sign)
    last2, next2 = before(last1), after(next1)
    next3 = after(next2)

    between = is_inner(last1) & is_inner(next1)
    is_clitic = among(next1, "sdm") & ~is_inner(next2)
    is_clitic |= among(next1, "rv") & among(next2, "e") & ~is_inner(next3)
    is_clitic |= among(next1, "l") & among(next2, "l") & ~is_inner(next3)
    is_clitic &= among(here, APOSTROPHE) & between  # 's, 'd, 'm, 're, 've and 'll
    is_not = among(here, "n") & among(next1, APOSTROPHE) & among(next2, "t")  # "n't"
    is_not &= is_inner(last1) & ~is_inner(next3)

    numbers = among(here, INSIDE_NUMBERS) & is_digit(last1) & is_digit(next1)
    is_inside = between & (among(here, INSIDE) | numbers) & ~is_clitic
    is_alone = (is_mark(here) & ~is_inside) | (here == SPACE)
    # The last full stop of "U.S.", and that of "J. Smith", but not those of "So do I." and "x."
    initial = is_inner(last1) & ~is_digit(last1) & ~is_inner(last2) & among(here, ".")
    in_name = ~looked_up(last1, string.ascii_lowercase + "I") & ~is_last
    ends_abbreviation = initial & (among(last2, ".") | in_name)
    is_repeated = among(here, REPEATED) & (here == last1)
    joins_last = ends_abbreviation | is_repeated
    is_sign = among(here, "+-") & is_outside(last1) & is_digit(next1)  # +44 171
    ends = before(tf.where(is_alone & ~is_clitic & ~is_sign, OTHER, SPACE)) == OTHER
    begins = is_first | (is_alone & ~joins_last) | (ends & ~is_repeated) | is_not
    return begins | begins_character(last1, here)


def begins_character(last, here):
    """Return whether a word begins by the rules of scripts without spaces."""
    is_after = (last == ALONE) | (last == JOINED)
    return (here == ALONE) | (is_after & (here != JOINED))


def begins_part(sign, is_first):
    """Return what `begins_run` does, for parts at white space and punctuation marks."""
    last = tf.where(is_first, OTHER, tf.concat([[OTHER], sign[:-1]], axis=0))
    is_apart = (sign == SPACE) | (sign == MARK) | (last == SPACE) | (last == MARK)
    return is_first | is_apart | begins_character(last, sign)


RULES = {"conll": begins_run, "punctuation": begins_part, "whitespace": begins_part}


def looked_up(sign, characters, others=()):
    """Return whether signs are one of some characters, or of some of OTHER, SPACE and MARK."""
    table = np.zeros(128, bool)
    table[[*map(ord, characters), *others]] = True
    return tf.gather(tf.constant(table), sign)  # one operation, however many characters


def among(sign, characters):
    """Return whether signs are one of some characters, in either case."""
    return looked_up(sign, characters.lower() + characters.upper())


def is_digit(sign):
    """Return whether signs are digits of ASCII."""
    return looked_up(sign, string.digits)


def is_inner(sign):
    """Return whether signs are neither marks nor spaces."""
    return looked_up(sign, string.ascii_letters + string.digits, [OTHER])


def is_mark(sign):
    """Return whether signs are punctuation."""
    return looked_up(sign, string.punctuation, [MARK])


def is_outside(sign):
    """Return whether signs are spaces, or marks that no word has inside."""
    marks = set(string.punctuation) - set(INSIDE + INSIDE_NUMBERS)
    return looked_up(sign, marks, [SPACE, MARK])
