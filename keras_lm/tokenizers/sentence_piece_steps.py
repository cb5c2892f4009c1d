"""Steps around SentencePiece's operation: spelled tokens, commas after numbers, offsets.

Shapes: B batch, P parts of texts, S pieces of a text, T pieces of all texts.
"""

import typing

from keras_lm.tensorflow import tf
from keras_lm.tokenizers import sentence_piece_model as files
from keras_lm.tokenizers import strings, unicode_ranges
from keras_lm.tokenizers.sentence_piece_model import SPACE
from keras_lm.tokenizers.sentence_piece_resource import SentencePieceModel
from keras_lm.tokenizers.sentence_piece_table import Table
from keras_lm.tokenizers.strings import regex_literal, size

# What Python calls white space, as a class of a regular expression.
WHITE_SPACE = (
    r"\t-\r\x{1C}-\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}"
    r"\x{205F}\x{3000}"
)
# Bytes that UTF-8 never has: one separates parts, the other begins those that are tokens.
PART, TOKEN = b"\xff", b"\xfe"

# === Tokens that text spells: it is split there before SentencePiece reads it ===


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
        space = f"[{WHITE_SPACE}]*"
        patterns += [space * before + f"({spelled})" + space * after] * bool(some)
    # One pattern for all: a token may be part of another one.
    if patterns:
        token = TOKEN + rb"\1\2\3\4"[: 2 * len(patterns)]
        text = tf.strings.regex_replace(text, "|".join(patterns), PART + token + PART)
    return strings.split(text, PART)


def begin_texts(parts):
    """Return whether each of ragged (B, P) parts begins a text, (P,) bool."""
    rows = strings.row_ids(parts)
    return tf.concat([[-1], rows[:-1]], 0) != rows


def without_end_space(text):
    """Return (B,) texts without white space at their ends."""
    white = unicode_ranges.character_class(unicode_ranges.WHITE_SPACE)
    return tf.strings.regex_replace(text, f"[{white}]+$", "")


def first_space(charsmap):
    """Return a pattern of texts that begin with a space, once a table has changed them."""
    table = Table(charsmap)
    table.read()
    spaces = [key for key, text in table.rules.items() if len(key) == 1 and text.startswith(" ")]
    return f"(?s)[{regex_literal([' ', SPACE, *spaces])}].*"


def with_tokens(tokenizer, parts, ids, tokens):
    """Add the ids of (P,) parts that are tokens to the ragged (P, S) ids of the others."""
    spelled = tf.constant([TOKEN + token.encode() for token in tokens])
    numbers = tf.constant([tokenizer.token_to_id(token) for token in tokens])
    places = tf.where(parts[:, tf.newaxis] == spelled)  # (tokens found, 2)
    found = tf.RaggedTensor.from_value_rowids(
        tf.gather(numbers, places[:, 1]), places[:, 0], tf.size(parts, tf.int64), validate=False
    )
    return tf.concat([ids, found], 1)


def without_tokens(parts):
    """Return (P,) parts with "" in place of tokens."""
    return tf.where(is_token(parts), "", parts)


def is_token(parts):
    """Return whether each of (P,) parts is a token."""
    return tf.strings.substr(parts, 0, 1) == TOKEN


# === Commas after numbers ===


def with_comma(pieces):
    """Return the ids of pieces that end with a digit and a comma, such as "▁1990,"."""
    return [
        i
        for i, piece in enumerate(pieces)
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
    ]


def number_last(model, ids):
    """Move some pieces of a parsed model to the end; the ids of all others stay."""
    for i in ids:
        model.pieces.add().CopyFrom(model.pieces[i])
        # The old piece becomes one that no text has: with NUL.
        model.pieces[i].piece += "\0"
        model.pieces[i].type = files.CONTROL


class CommaSplits(tf.Module):
    """Splits the comma from pieces that end with a digit and a comma.

    Such pieces are rare. One comparison finds them, because `number_last` moved them to the end.
    """

    def __init__(self, tokenizer, ids):
        super().__init__()
        pieces, unknown = tokenizer.vocabulary, tokenizer.special_id("unknown")
        numbers = [pieces[i][:-1].replace(SPACE, "") for i in ids]
        table, lengths = [], []
        for i, parts in zip(ids, tokenizer._match(tf.constant(numbers)).to_list()):
            parts = [pieces[part] for part in parts]
            if parts and pieces[i][0] != SPACE:
                parts[0] = parts[0].removeprefix(SPACE)
            parts = [part for part in parts if part] + [","]
            if "".join(parts) != pieces[i]:
                parts = [pieces[i]]
            table.append([tokenizer._vocabulary.ids.get(part, unknown) for part in parts])
            lengths.append([len(part.encode()) for part in parts])
        self._num_rows = len(ids)
        self._first = len(tokenizer._rules.proto.pieces) - self._num_rows
        with tf.init_scope():
            # The row after these is empty, and comes after the last piece of all texts.
            self._table = tf.ragged.constant([*table, []], tf.int32, row_splits_dtype=tf.int64)
            self._lengths = tf.ragged.constant([*lengths, []], tf.int64, row_splits_dtype=tf.int64)
            # For LiteRT, which cannot gather ragged rows; row 0 is for all other pieces.
            self._dense = tf.pad(self._table.to_tensor(-1), [[1, 0], [0, 0]], constant_values=-1)

    def __call__(self, ids):
        """Return the vocabulary's ids for the model's, both ragged (B, S)."""
        places = tf.where(ids.values >= self._first)[:, 0]
        values, shifts = self._replace(ids.values, ids.values, places, self._table)
        splits = ids.row_splits + tf.gather(shifts, tf.searchsorted(places, ids.row_splits))
        return tf.RaggedTensor.from_row_splits(values, splits, validate=False)

    def lengths(self, ids, lengths):
        """Return the lengths in bytes of what the model's (T,) ids become, given their own."""
        places = tf.where(ids >= self._first)[:, 0]
        return self._replace(lengths, ids, places, self._lengths)[0]

    def _replace(self, values, ids, places, table):
        """Put a table's rows at some places; also return by how much later values move."""
        # Places are few. So what is between two of them is a row, copied as a whole.
        size = tf.size(values, tf.int64)
        starts, ends = tf.concat([[0], places + 1], 0), tf.concat([places, [size]], 0)
        bounds = tf.reshape(tf.stack([starts, ends], 1), [-1])  # kept, replaced, kept, …, kept
        rows = tf.RaggedTensor.from_row_splits(
            tf.concat([values, table.values], 0),
            tf.concat([bounds, size + table.row_splits[1:]], 0),
            validate=False,
        )
        kept = 2 * tf.range(tf.size(starts))
        replaced = tf.concat([tf.gather(ids, places) - self._first, [self._num_rows]], 0)
        replaced += 2 * tf.size(starts) - 1
        found = tf.gather(rows, tf.reshape(tf.stack([kept, replaced], 1), [-1]))
        return found.values, found.row_splits[:-1:2] - starts

    def lite(self, ids):
        """Return ids like a call, without ragged gathers."""
        rows = tf.maximum(ids.values - self._first + 1, 0)
        parts = tf.gather(self._dense, rows)
        first = tf.where(rows > 0, parts[:, 0], ids.values)
        parts = tf.concat([first[:, tf.newaxis], parts[:, 1:]], 1)
        is_there = parts >= 0
        ends = tf.cumsum(tf.reduce_sum(tf.cast(is_there, ids.row_splits.dtype), 1))
        splits = tf.gather(tf.concat([tf.zeros_like(ids.row_splits[:1]), ends], 0), ids.row_splits)
        return tf.RaggedTensor.from_row_splits(
            tf.boolean_mask(parts, is_there), splits, validate=False
        )


# === Offsets ===


class Aligner(tf.Module):
    """Finds the offsets of pieces in a text.

    A model of single characters with the same normalizer maps each normalised character to the
    bytes of the text that it came from. A run of characters without pieces is one unknown token in
    both models, which tells its length.
    """

    def __init__(self, proto):
        super().__init__()
        model = files.Model()
        model.CopyFrom(proto)
        del model.pieces[:]
        model.pieces.extend(p for p in proto.pieces if _is_character(p))
        model.trainer_spec.model_type = files.CHARACTER
        self._has_bytes = model.trainer_spec.byte_fallback
        known = {piece.piece for piece in model.pieces}
        for piece in proto.pieces:
            is_normal = piece.type == files.NORMAL
            if is_normal and not self._has_bytes and not known.issuperset(piece.piece):
                raise ValueError(
                    f"offsets cannot be told: `model` holds the piece {piece.piece!r}, and not "
                    "each of its characters as a piece."
                )
        self._model = SentencePieceModel(model.SerializeToString())
        unknown = [i for i, p in enumerate(model.pieces) if p.type == files.UNKNOWN]
        self._unknown = unknown[0]

    def __call__(self, text):
        """Return the normalised characters of (B,) texts, one text after the other."""
        return self.rows(text)[1]

    def rows(self, text):
        """Return the row splits (B + 1,), and the characters."""
        splits, pieces, starts, ends = self._model.rows_with_offsets(text)
        lengths = size(pieces)
        if self._has_bytes:
            is_byte = tf.strings.regex_full_match(pieces, files.BYTE_PIECE)
            lengths = tf.where(is_byte, tf.ones_like(lengths), lengths)
        are_unknown = self._model.string_to_id(pieces) == self._unknown
        return splits, Characters(pieces, lengths, starts, ends, are_unknown)


class Characters(typing.NamedTuple):
    """All normalised characters of some texts: (N,) tensors."""

    pieces: tf.Tensor  # normalised
    lengths: tf.Tensor  # of these, in bytes
    starts: tf.Tensor  # in the text
    ends: tf.Tensor
    are_unknown: tf.Tensor


def _is_character(piece):
    if piece.type == files.NORMAL:
        return len(piece.piece) == 1
    # Models of characters also keep what the user defined whole.
    return piece.type in (files.UNKNOWN, files.USER_DEFINED, files.BYTE)
