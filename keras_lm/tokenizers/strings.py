"""Batches of strings, rows of values, special tokens in a text, and where tokens are in it.

TensorFlow's own `value_rowids`, `tf.ragged.boolean_mask` and `tf.strings.reduce_join` build a table
of rows × longest row: gigabytes if one text among ten thousand is long. The functions here need
memory for the values alone. Shapes: B batch, S values of a row,
T values of all rows, N characters, P parts of texts.
"""

import contextlib
import contextvars
import functools
import operator

import numpy as np

from keras_lm.tensorflow import HAS_TEXT, gen_byte_splitter, tf
from keras_lm.utils.json_values import first_line
from keras_lm.utils.user_arguments import ACCEPTED, plain_column, refuse_tables

UNITS = ("byte", "character")
_HAS_TEXT_OPERATIONS = contextvars.ContextVar("has_text_operations", default=HAS_TEXT)


def without_text_operations():
    """A context for tracing without TensorFlow Text's operations: texts are read as integers.

    Tokenizers that are made in it have none either, as where TensorFlow Text is not installed.
    """
    return text_operations(False)


@contextlib.contextmanager
def text_operations(may_be_traced):
    """A context in which `has_text_operations` returns `may_be_traced`."""
    token = _HAS_TEXT_OPERATIONS.set(may_be_traced)
    try:
        yield
    finally:
        _HAS_TEXT_OPERATIONS.reset(token)


def has_text_operations():
    """Whether TensorFlow Text's operations may be traced: by default, if it is installed."""
    return _HAS_TEXT_OPERATIONS.get()


# === Rows ===


def as_tensor(values, dtype):
    """Return a tensor of lists, arrays or tensors; a ragged one if lists differ in length.

    Columns of other libraries are taken, too, see `keras_lm.utils.user_arguments`.

    Raises:
        ValueError: if a value is masked, or not a string where `dtype` is that.
    """
    if isinstance(values, tf.SparseTensor):
        raise ValueError("text is a SparseTensor: pass a tensor, tf.sparse.to_dense(text).")
    if isinstance(values, tf.RaggedTensor) or tf.is_tensor(values):
        return values
    name = "text" if dtype == tf.string else "ids"
    refuse_tables(values, name)
    values = plain_column(values, name)
    try:
        return _as_tensor(values, dtype)
    except (TypeError, ValueError) as error:
        if not isinstance(values, (list, tuple, np.ndarray)):
            kind = type(values).__name__
            one = "a string" if dtype == tf.string else "an int"
            raise ValueError(f"{name} is a {kind}: pass {one}, or {ACCEPTED}.") from error
        for row, value in enumerate(values if dtype == tf.string else ()):
            is_row = isinstance(value, (list, tuple, np.ndarray)) and np.ndim(value) != 0
            if not is_row and not isinstance(value, (str, bytes)):
                raise ValueError(
                    f"`text`[{row}] is {value!r}, a {type(value).__name__}, and not a string: "
                    "replace or drop it."
                ) from error
        raise ValueError(f"{name} cannot be read: {first_line(error)}") from error


def _as_tensor(values, dtype):
    if isinstance(values, (list, tuple)):
        try:
            tensor = tf.convert_to_tensor(values, dtype)
        except (ValueError, TypeError):
            return tf.ragged.constant(values, dtype)
        # TensorFlow drops all values if the first row is empty.
        is_whole = 0 not in tensor.shape or not tf.nest.flatten(values)
        return tensor if is_whole else tf.ragged.constant(values, dtype)
    return tf.convert_to_tensor(values)


def row_ids(ragged):
    """Return the row of each value of a ragged (B, S) tensor, (T,) int64."""
    # Counts the rows that end at each value, by operations that LiteRT has, too.
    ends = tf.cast(ragged.row_splits, tf.int32)[1:-1]
    ends = tf.scatter_nd(ends[:, tf.newaxis], tf.ones_like(ends), [number_of(ragged.values) + 1])
    return tf.cast(tf.cumsum(ends)[:-1], tf.int64)


def keep(ragged, mask):
    """Return a ragged (B, S) tensor of the values where a (T,) mask is True."""
    kept = tf.concat([[0], tf.cumsum(tf.cast(mask, tf.int64))], 0)
    return tf.RaggedTensor.from_row_splits(
        tf.boolean_mask(ragged.values, mask), tf.gather(kept, ragged.row_splits), validate=False
    )


def join(ragged, separator=""):
    """Join the strings of each row of a ragged (B, S) tensor; return (B,)."""
    return tf.strings.unsorted_segment_join(
        ragged.values, row_ids(ragged), ragged.nrows(), separator
    )


def split(text, separator):
    """Split (B,) strings at a separator of one byte; return ragged (B, S), without empty parts."""
    parts = tf.raw_ops.StringSplit(input=text, delimiter=separator, skip_empty=True)
    rows = tf.range(tf.size(text, tf.int64) + 1)
    splits = tf.searchsorted(parts.indices[:, 0], rows, out_type=tf.int64)
    return tf.RaggedTensor.from_row_splits(parts.values, splits, validate=False)


# The kernels of TensorFlow Text's ByteSplitter. The class itself makes several ragged tensors of
# what they return and checks each one: 200 more operations in every graph, none of which can fail.


def bytes_of(text):
    """Return the bytes of (B,) strings, ragged (B, S) uint8."""
    if are_bytes(text):
        return text
    if not has_text_operations():
        data = tf.io.decode_raw(tf.strings.reduce_join(text), tf.uint8)
        splits = tf.concat([[0], tf.cumsum(tf.strings.length(text))], 0)
        return tf.RaggedTensor.from_row_splits(data, tf.cast(splits, tf.int64), validate=False)
    values, row_splits, *_ = gen_byte_splitter.tf_text_byte_split_with_offsets(text)
    return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)


def parts_of(text, starts, ends):
    """Return the parts of (B,) strings between ragged (B, S) byte offsets, ragged (B, S)."""
    if are_bytes(text):
        begins = tf.gather(tf.cast(text.row_starts(), tf.int32), row_ids(starts))
        parts = parts_of_rows(text, begins + starts.values, ends.values - starts.values)
        parts = parts.with_row_splits_dtype(starts.row_splits.dtype)
        return tf.RaggedTensor.from_row_splits(parts, starts.row_splits, validate=False)
    if not has_text_operations():
        # (One more, as a last part may be in no text.)
        texts = tf.gather(tf.concat([text, [""]], 0), row_ids(starts))
        lengths = ends.values - starts.values
        return starts.with_values(tf.strings.substr(texts, starts.values, lengths))
    values, row_splits = gen_byte_splitter.tf_text_byte_split_by_offsets(
        text, starts.values, ends.values, starts.row_splits
    )
    return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)


# === Texts as bytes, where a runtime has no operations of strings ===

# (B,) strings are then ragged (B, N) uint8, and (B, C) strings ragged (B, C, N).


def are_bytes(text):
    """Whether texts are their bytes, and not strings."""
    return isinstance(text, tf.RaggedTensor) and text.dtype == tf.uint8


def from_bytes(data, ends):
    """Return texts as bytes: `data` (N,) uint8, one after another, and int32 `ends`, (B,) or more.

    What follows the last end does not count.
    """
    splits = tf.concat([[0], tf.clip_by_value(tf.reshape(ends, [-1]), 0, tf.size(data))], 0)
    texts = tf.RaggedTensor.from_row_splits(data[: splits[-1]], splits, validate=False)
    if ends.shape.rank == 1:
        return texts
    splits = tf.range(tf.shape(ends)[0] + 1) * tf.shape(ends)[1]
    return tf.RaggedTensor.from_row_splits(texts, splits, validate=False)


def to_bytes(texts):
    """Return what `from_bytes` takes, with one more byte: data may not be empty in LiteRT."""
    rows = texts
    while rank_of(rows) > 1:
        rows = rows.values
    ends = tf.cast(rows.row_splits[1:], tf.int32)
    if rank_of(texts) > 1:
        ends = tf.reshape(ends, shape_of(texts))
    return tf.concat([rows.values, tf.zeros([1], tf.uint8)], 0), ends


def rank_of(text):
    """Return the number of axes of texts."""
    return text.shape.rank - are_bytes(text)


def flat(text):
    """Return (B, C) texts as (B · C,)."""
    return text.values if are_bytes(text) else tf.reshape(text, [-1])


def number_of(text):
    """Return how many texts there are, int32."""
    if not are_bytes(text):
        return tf.size(text)
    return tf.cast((text.values if rank_of(text) == 2 else text).nrows(), tf.int32)


def shape_of(text):
    """Return the shape of texts, of as many in each row, int32."""
    if not are_bytes(text):
        return tf.shape(text)
    sizes, fewer = [], 1
    for _ in range(rank_of(text)):
        number = tf.cast(text.nrows(), tf.int32)
        sizes.append(number // tf.maximum(fewer, 1) if sizes else number)
        text, fewer = text.values, number
    return tf.stack(sizes)


def are_full(text):
    """Return which of (B, C) texts are not empty, (B, C) bool."""
    if not are_bytes(text):
        return tf.not_equal(text, "")
    return tf.reshape(text.values.row_lengths() > 0, shape_of(text))


def gathered(text, index):
    """Return those of (B,) texts at an index, (…) int32."""
    if not are_bytes(text):
        return tf.gather(text, index)
    splits = tf.cast(text.row_splits, tf.int32)
    places = tf.reshape(index, [-1])
    first = tf.gather(splits, places)
    return in_rows(parts_of_rows(text, first, tf.gather(splits, places + 1) - first), index)


def in_rows(texts, like):
    """Return (N,) texts in the shape of a tensor of N values."""
    if not are_bytes(texts):
        return tf.reshape(texts, tf.shape(like))
    dtype, sizes = texts.row_splits.dtype, tf.unstack(tf.shape(like))
    for axis in range(len(sizes) - 1, 0, -1):
        rows = functools.reduce(operator.mul, sizes[:axis])
        splits = tf.cast(tf.range(rows + 1) * sizes[axis], dtype)
        texts = tf.RaggedTensor.from_row_splits(texts, splits, validate=False)
    return texts


def without_last(texts, dtype):
    """Return (N,) texts without the last, empty one; `dtype` is that of the splits of bytes."""
    if not are_bytes(texts):
        return texts[:-1]
    splits = tf.cast(texts.row_splits[:-1], dtype)
    return tf.RaggedTensor.from_row_splits(texts.values, splits, validate=False)


def after(prefix, text):
    """Return (B,) texts after a str."""
    if not are_bytes(text):
        return tf.strings.join([prefix, text])
    first = tf.constant([*prefix.encode()], tf.uint8)
    lengths = tf.cast(text.row_lengths(), tf.int32) + tf.size(first)
    row, place = places_in_rows(lengths)
    index = tf.gather(tf.cast(text.row_starts(), tf.int32), row) + place
    # Texts follow the prefix, so what is before a text's own first byte is there once for all.
    index = tf.where(place < tf.size(first), place, index)
    splits = tf.concat([[0], tf.cumsum(lengths)], 0)
    values = tf.gather(tf.concat([first, text.values], 0), index)
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


def parts_of_rows(texts, first, lengths):
    """Return rows of these lengths that begin at `first` in the values of a ragged tensor."""
    row, place = places_in_rows(lengths)
    splits = tf.concat([[0], tf.cumsum(lengths)], axis=0)
    values = tf.gather(texts.values, tf.gather(first, row) + place)
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


def places_in_rows(lengths):
    """Return the row of each value, and its place there, for rows of these lengths; int32."""
    splits = tf.concat([[0], tf.cumsum(lengths)], axis=0)
    numbers = tf.RaggedTensor.from_row_splits(tf.range(splits[-1]), splits, validate=False)
    row = tf.cast(row_ids(numbers), tf.int32)
    return row, numbers.values - tf.gather(splits, row)


def padded(ragged, fill=0):
    """Return ragged (B, S) values as (B, S), filled up.

    Without TensorFlow Text's operations there is at least one column.
    """
    if has_text_operations():
        return ragged.to_tensor(fill)
    splits = tf.cast(ragged.row_splits, tf.int32)
    lengths = splits[1:] - splits[:-1]
    place = tf.range(tf.maximum(tf.reduce_max(lengths), 1))
    index = splits[:-1, tf.newaxis] + place
    index = tf.where(place < lengths[:, tf.newaxis], index, tf.size(ragged.values))
    fill = tf.fill([1], tf.cast(fill, ragged.dtype))
    return tf.gather(tf.concat([ragged.values, fill], 0), index)


# === Text ===

NUL_SIGN = "\ufdd1"  # stands for NUL; Unicode leaves it to each program


def size(text):
    """Return the lengths of strings in bytes, int64."""
    return tf.cast(tf.strings.length(text), tf.int64)


def valid_utf8(text):
    """Return (B,) strings with U+FFFD in place of invalid UTF-8."""
    # Most rows are valid, and checking costs a tenth of converting.
    return where_not(
        text,
        r"[\x{0}-\x{D7FF}\x{E000}-\x{10FFFF}]*",
        lambda rows: tf.strings.unicode_transcode(rows, "UTF-8", "UTF-8"),
    )


def lower(text):
    """Return strings in lower case. TensorFlow's own ends a string at its first NUL."""
    kept = tf.strings.regex_replace(text, r"\x{0}", NUL_SIGN)
    return tf.strings.regex_replace(tf.strings.lower(kept, encoding="utf-8"), NUL_SIGN, "\0")


FORMS = ("NFC", "NFD", "NFKC", "NFKD")  # Unicode's normal forms


def checked_form(form):
    """Return one of Unicode's normal forms, or None; ValueError for something else."""
    if form not in (None, *FORMS):
        known = ", ".join(map(repr, FORMS))
        raise ValueError(f"`normalization` is {form!r}; it must be one of {known}, or None.")
    return form


PUNCTUATION_ALONE = "punctuation"
_CLEANING = ((r" ([.?!,])", r"\1"), (" ' ", "'"), (r" (n't|'m|'s|'ve|'re)", r"\1"))


def checked_clean_up(clean_up):
    """Return a setting of `cleaned_up`; ValueError for something else."""
    if clean_up not in (True, False, PUNCTUATION_ALONE):
        known = f"True, False, or {PUNCTUATION_ALONE!r}"
        raise ValueError(f"`clean_up` is {clean_up!r}; it must be {known}.")
    return clean_up if clean_up == PUNCTUATION_ALONE else bool(clean_up)


def cleaned_up(text, clean_up=True):
    """Return strings without the space before punctuation and, if `clean_up` is True, clitics.

    These are the rules of transformers' `clean_up_tokenization`, in this order.
    """
    for before, after in _CLEANING[: 1 if clean_up == PUNCTUATION_ALONE else None]:
        text = tf.strings.regex_replace(text, before, after)
    return text


def where_not(text, pattern, function):
    """Apply a function to those of (B,) strings that a pattern does not match."""
    rows = tf.where(tf.logical_not(tf.strings.regex_full_match(text, pattern)))
    return tf.tensor_scatter_nd_update(text, rows, function(tf.gather_nd(text, rows)))


def drop_unfinished(text):
    """Drop the bytes of a character that the end of (B,) strings cuts off."""
    length = tf.strings.length(text)  # (B,)
    tail = tf.strings.substr(text, tf.maximum(length - 3, 0), tf.fill(tf.shape(text), 3))
    tail = tf.cast(tf.io.decode_raw(tail, tf.uint8, fixed_length=3), tf.int32)  # (B, 3)
    # The length of the character that begins at each byte; 0 for none, and for ASCII.
    begins = tf.cast((tail >= 0xC2) & (tail < 0xF5), tf.int32)
    needs = begins * (2 + tf.cast(tail >= 0xE0, tf.int32) + tf.cast(tail >= 0xF0, tf.int32))
    rest = tf.minimum(length, 3)[:, tf.newaxis] - tf.range(3)  # (B, 3) bytes from here to the end
    unfinished = tf.where((needs > rest) & (rest > 0), rest, 0)
    return tf.strings.substr(text, tf.zeros_like(length), length - tf.reduce_max(unfinished, 1))


def regex_literal(text):
    """Return a regular expression, for use inside of `[]` too, that matches text itself."""
    return "".join(rf"\x{{{ord(character):X}}}" for character in text)


# === Where tokens are in a text ===


def in_original(text, starts, ends, unit):
    """Turn ragged (B, S) byte offsets in `valid_utf8(text)` into offsets in the text as given.

    Counted in characters, a span that begins or ends within a character includes all of it.
    """
    codes, offsets = tf.strings.unicode_decode_with_offsets(text, "UTF-8")
    rows = codes.with_row_splits_dtype(tf.int64).row_splits
    widths = 1 + sum(tf.cast(codes.values >= first, tf.int64) for first in (0x80, 0x800, 0x10000))
    # One text after the other, so that a single search is enough.
    bounds = tf.concat([[tf.constant(0, tf.int64)], tf.cumsum(widths)], 0)  # (N + 1,)
    begins = bounds[:-1]
    rows_of_spans = row_ids(starts)  # (T,)
    shift = tf.gather(tf.gather(bounds, rows), rows_of_spans)
    starts_here, ends_here = starts.values + shift, ends.values + shift
    first = tf.searchsorted(begins, starts_here, "right", tf.int64) - 1  # characters, (T,)
    last = tf.searchsorted(begins, ends_here - 1, "right", tf.int64) - 1
    is_empty = starts_here == ends_here  # a piece that stands for nothing in the text
    if unit == "character":
        before = tf.gather(rows, rows_of_spans)
        last = tf.where(is_empty, first - 1, last)
        return starts.with_values(first - before), ends.with_values(last + 1 - before)
    last = tf.where(is_empty, first, last)
    # A character ends where the next one of its text begins, the last one with the text.
    has_any = tf.where(rows[1:] > rows[:-1])
    ends_of_characters = tf.tensor_scatter_nd_update(
        tf.concat([offsets.values[1:], offsets.values[:1]], 0),
        tf.gather_nd(rows[1:], has_any)[:, tf.newaxis] - 1,
        tf.gather_nd(size(text), has_any),
    )

    def place(characters, positions):
        begin = tf.gather(offsets.values, characters)
        within = positions - tf.gather(begins, characters)
        return tf.minimum(begin + within, tf.gather(ends_of_characters, characters))

    return starts.with_values(place(first, starts_here)), ends.with_values(place(last, ends_here))


def covering(sizes, characters, left):
    """Return byte offsets `(starts, ends)` of tokens that cover all that is left of a text.

    Args:
        sizes: ragged (B, S) int64, how much of what is left each token covers.
        characters: ragged (B, N) strings of one character each.
        left: int64, how much is left of each character, all texts in one dimension.
    """
    # One text after the other, so that a single search is enough.
    left_ends, token_ends = tf.cumsum(left), tf.cumsum(sizes.values)
    first = tf.searchsorted(left_ends, token_ends - sizes.values, "right", tf.int64)  # (T,)
    last = tf.searchsorted(left_ends, token_ends, "left", tf.int64)
    widths = size(characters.values)
    ends = tf.cumsum(widths)
    begins = ends - widths
    row_begins = tf.gather(tf.concat([begins, [0]], axis=0), characters.row_starts())
    shift = tf.gather(row_begins, row_ids(sizes))
    return (
        sizes.with_values(tf.gather(begins, first) - shift),
        sizes.with_values(tf.gather(ends, last) - shift),
    )


def substrings(text, starts, ends):
    """Return the parts of (B,) texts of valid UTF-8 between (B, S) character offsets, (B, S).

    Uses only operations that LiteRT has.
    """
    texts = bytes_of(text)
    data = tf.cast(texts.values, tf.int32)
    is_first = (data < 0x80) | (data >= 0xC0)  # of a character
    total = tf.cast(tf.shape(data), tf.int32)  # (1,)
    first_bytes = tf.concat([tf.cast(tf.where(is_first)[:, 0], tf.int32), total], axis=0)
    before = tf.concat([[0], tf.cumsum(tf.cast(is_first, tf.int32))], axis=0)
    begins = tf.cast(texts.row_starts(), tf.int32)[:, tf.newaxis]  # (B, 1)
    first = tf.gather(before, begins)
    last = tf.shape(first_bytes)[0] - 1

    def in_bytes(places):
        splits = tf.range(tf.shape(places)[0] + 1) * tf.shape(places)[1]
        flat = tf.gather(first_bytes, tf.minimum(first + places, last)) - begins
        flat = tf.reshape(tf.maximum(flat, 0), [-1])
        return tf.RaggedTensor.from_row_splits(flat, tf.cast(splits, tf.int64), validate=False)

    parts = parts_of(text, in_bytes(starts), in_bytes(ends))
    return in_rows(parts.values, starts)


# === Tokens that text spells: it is split there before it is tokenized ===

# What Python calls white space, as a class of a regular expression.
PYTHON_SPACE = (
    r"\t-\r\x{1C}-\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}"
    r"\x{205F}\x{3000}"
)
# Bytes that UTF-8 never has: one separates parts, the other begins those that are tokens.
PART, TOKEN = b"\xff", b"\xfe"


def tokenize_parts(tokenizer, text, tokens, tokenize, lstrip=(), rstrip=()):
    """Return the ragged (B, S) ids of (B,) texts, including those of the tokens that they spell.

    Args:
        tokenizer: the `Tokenizer` that knows the ids of the tokens.
        text: (B,) strings of valid UTF-8.
        tokens, lstrip, rstrip: see `part_tokens`.
        tokenize: function from (P,) parts, and whether each begins a text, (P,) bool, to ragged
            (P, S) ids.
    """
    parts = part_tokens(text, tokens, lstrip, rstrip)  # ragged (B, P)
    ids = tokenize(without_tokens(parts.values), begin_texts(parts))
    ids = with_tokens(tokenizer, parts.values, ids, tokens)
    return parts.with_values(ids).merge_dims(1, 2)


def part_tokens(text, tokens, lstrip=(), rstrip=()):
    """Split (B,) texts of valid UTF-8 where tokens are spelled: leftmost first, then longest.

    Returns ragged (B, P) parts. Those that are tokens begin with the byte `TOKEN`. Tokens in
    `lstrip` include the white space before them, those in `rstrip` the white space after them.
    """
    patterns = []
    for before, after in ((True, True), (True, False), (False, True), (False, False)):
        some = [t for t in tokens if t and (t in lstrip, t in rstrip) == (before, after)]
        spelled = "|".join(map(regex_literal, sorted(some, key=len, reverse=True)))
        space = f"[{PYTHON_SPACE}]*"
        patterns += [space * before + f"({spelled})" + space * after] * bool(some)
    # One pattern for all: a token may be part of another one.
    if patterns:
        token = TOKEN + rb"\1\2\3\4"[: 2 * len(patterns)]
        text = tf.strings.regex_replace(text, "|".join(patterns), PART + token + PART)
    return split(text, PART)


def begin_texts(parts):
    """Return whether each of ragged (B, P) parts begins a text, (P,) bool."""
    rows = row_ids(parts)
    return tf.concat([[-1], rows[:-1]], 0) != rows


def with_tokens(tokenizer, parts, ids, tokens):
    """Add the ids of (P,) parts that are tokens to the ragged (P, S) ids of the others."""
    spelled = tf.constant([TOKEN + token.encode() for token in tokens])
    numbers = tf.constant([tokenizer.token_to_id(token) for token in tokens])
    places = tf.where(parts[:, tf.newaxis] == spelled)  # (tokens found, 2)
    token_ids = tf.RaggedTensor.from_value_rowids(
        tf.gather(numbers, places[:, 1]), places[:, 0], tf.size(parts, tf.int64), validate=False
    )
    return tf.concat([ids, token_ids], 1)


def without_tokens(parts):
    """Return (P,) parts with "" in place of tokens."""
    return tf.where(is_token(parts), "", parts)


def is_token(parts):
    """Return whether each of (P,) parts is a token."""
    return tf.strings.substr(parts, 0, 1) == TOKEN
