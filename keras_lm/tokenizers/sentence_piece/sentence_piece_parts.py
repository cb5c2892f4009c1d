"""Tokens that are spelled out in text, which is parted there before SentencePiece reads it."""

import tensorflow as tf

from keras_lm.tokenizers import ragged

# What Python calls white space, as a class of a regular expression.
WHITE_SPACE = (
    r"\t-\r\x{1C}-\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}"
    r"\x{205F}\x{3000}"
)
# No UTF-8 text holds these bytes: one parts texts, the other begins parts that are tokens.
PART, TOKEN = b"\xff", b"\xfe"


def tokenize_parts(tokenizer, text, tokens, tokenize, lstrip=(), rstrip=()):
    """Return the ragged ids of (B,) texts with those of tokens that are spelled out in them.

    Args:
        tokenizer: the `Tokenizer` that knows the ids of the tokens.
        text: (B,) strings of valid UTF-8.
        tokens, lstrip, rstrip: see `part_tokens`.
        tokenize: callable of (P,) parts, and of which of them begin a text, that returns their
            ragged (P, S) ids.
    """
    parts = part_tokens(text, tokens, lstrip, rstrip)
    begins = tf.concat([[-1], ragged.row_ids(parts)[:-1]], 0) != ragged.row_ids(parts)
    ids = tokenize(without_tokens(parts.values), begins)
    ids = with_tokens(tokenizer, parts.values, ids, tokens)
    return parts.with_values(ids).merge_dims(1, 2)


def part_tokens(text, tokens, lstrip=(), rstrip=()):
    """Part (B,) texts of valid UTF-8 where tokens are spelled out: leftmost first, then longest.

    Parts that are tokens begin with the byte `TOKEN`. Tokens in `lstrip` take the white space
    before them along, those in `rstrip` the white space after them.
    """
    patterns = []
    for before, after in ((True, True), (True, False), (False, True), (False, False)):
        some = [t for t in tokens if t and (t in lstrip, t in rstrip) == (before, after)]
        spelled = "|".join(
            "".join(rf"\x{{{ord(character):X}}}" for character in token)
            for token in sorted(some, key=len, reverse=True)
        )
        space = f"[{WHITE_SPACE}]*"
        patterns += [space * before + f"({spelled})" + space * after] * bool(some)
    # One pattern for all: a token may be part of another.
    if patterns:
        token = TOKEN + rb"\1\2\3\4"[: 2 * len(patterns)]
        text = tf.strings.regex_replace(text, "|".join(patterns), PART + token + PART)
    found = tf.raw_ops.StringSplit(input=text, delimiter=PART, skip_empty=True)
    return tf.RaggedTensor.from_value_rowids(
        found.values, found.indices[:, 0], tf.size(text, tf.int64), validate=False
    )


def with_tokens(tokenizer, parts, ids, tokens):
    """Add the ids of those (P,) parts that are tokens to the (P, S) ids of the others."""
    spelled = tf.constant([TOKEN + token.encode() for token in tokens])
    numbers = tf.constant([tokenizer.token_to_id(token) for token in tokens])
    places = tf.where(parts[:, tf.newaxis] == spelled)  # (tokens found, 2)
    found = tf.RaggedTensor.from_value_rowids(
        tf.gather(numbers, places[:, 1]), places[:, 0], tf.size(parts, tf.int64), validate=False
    )
    return tf.concat([ids, found], 1)


def without_tokens(parts):
    """Return (P,) parts, empty ones in place of tokens."""
    return tf.where(is_token(parts), "", parts)


def is_token(parts):
    """Return which of (P,) parts are tokens."""
    return tf.strings.substr(parts, 0, 1) == TOKEN
