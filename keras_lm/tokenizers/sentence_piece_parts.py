"""Tokens that text spells: it is split there before SentencePiece reads it.

Shapes: B batch, P parts, S tokens.
"""

import tensorflow as tf

from keras_lm.tokenizers import strings
from keras_lm.tokenizers.strings import regex_literal

# What Python calls white space, as a class of a regular expression.
WHITE_SPACE = (
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
    begins = tf.concat([[-1], strings.row_ids(parts)[:-1]], 0) != strings.row_ids(parts)
    ids = tokenize(without_tokens(parts.values), begins)
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
