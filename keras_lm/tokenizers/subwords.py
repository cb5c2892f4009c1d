"""tensor2tensor's subwords: the longest entries in runs of letters and digits, and others."""

import os
import pathlib
from collections.abc import Sequence
from typing import Any, Self

from keras_lm.tensorflow import tf
from keras_lm.tokenizers import strings, unicode_ranges
from keras_lm.tokenizers.strings import has_text_operations, regex_literal, valid_utf8, where_not
from keras_lm.tokenizers.tokenizer import Tokenizer, traced
from keras_lm.tokenizers.unicode_ranges import character_class
from keras_lm.tokenizers.vocabulary import read_lines
from keras_lm.tokenizers.wordpiece import WordMatcher, make_matcher, sentinel
from keras_lm.utils.argument_types import PathLike

FILES = ("*.subwords", "vocab.*.[0-9]*")  # their names now, and at first
ASSET, TARGET_ASSET = "vocab.subwords", "target_vocab.subwords"

LETTERS = character_class(unicode_ranges.LETTERS + unicode_ranges.NUMBERS)
END = "_"  # of a run
ESCAPES = frozenset("\\_u;0123456789")
# Bytes that UTF-8 never has: between the parts of a text, and before one that is an escape.
PART, ESCAPED = b"\xff", b"\xfe"
MAX_INT = 2**31 - 1
NO_CODE_POINT = 0x110000
INVALID = 0x3013  # what a number that is not a code point becomes

# Noncharacters, which text has in escaped form only: before pieces within a run, for what no piece
# can spell, and the digits of special tokens.
WITHIN, UNKNOWN = "\ufdda", "\ufddb"
SENTINELS = r"\x{FDD0}-\x{FDD9}"


class SubwordTokenizer(Tokenizer):
    r"""tensor2tensor's tokenizer, in the graph: split runs, escape characters, match pieces.

    Text is split into runs of letters and digits, and runs of everything else; a single space
    between two is left out. In each run, `\` becomes `\\`, `_` becomes `\u`, and a character that
    no entry has becomes its number, such as `\8364;`; `_` ends the run. Then the longest entry is
    taken, from left to right. The ids equal those of tensor2tensor's `SubwordTextEncoder`, except
    for letters that are newer than the Unicode of its Python. A run that the entries cannot spell
    is an error there and vanishes here; tensor2tensor's own vocabularies spell everything.
    Noncharacters U+FDD0 to U+FDEF are escaped.

    Args:
        vocabulary: list of str, or path of a file such as `vocab.translate_ende_wmt32k.subwords`.
        pad_token, eos_token: str, or None if the vocabulary has none.
        additional_special_tokens: list of str, entries that plain text is never tokenized to.
        target_vocabulary: like `vocabulary`, for translations: `target` is then a tokenizer with
            these entries. None if there is one list for both.

    Raises:
        FileNotFoundError: if a vocabulary file does not exist.
        ValueError: as `Tokenizer`, or if an entry has a line end.

    Example:

        tokenizer = SubwordTokenizer(["<pad>", "<EOS>", "to", "day_", "_", "!", "y"])
        ids = tokenizer(["today!"])          # [[2, 3, 5, 4]]
        tokenizer.detokenize(ids)            # [b"today!"]

    Reference: `text_encoder.py` and `tokenizer.py` in tensor2tensor's `data_generators`; Vaswani et
    al. 2018, "Tensor2Tensor for Neural Machine Translation", arXiv:1803.07416.
    """

    ROLES = ("pad", "eos")

    def __init__(
        self,
        vocabulary: Sequence[str] | PathLike,
        pad_token: str | None = "<pad>",
        eos_token: str | None = "<EOS>",
        additional_special_tokens: Sequence[str] = (),
        target_vocabulary: Any = None,
        name: str | None = None,
    ):
        if isinstance(vocabulary, (str, os.PathLike)):
            vocabulary = _read(vocabulary)
        roles = dict(zip(self.ROLES, (pad_token, eos_token), strict=True))
        super().__init__(vocabulary, roles, additional_special_tokens, name=name)
        entries = self._vocabulary.tokens
        for entry in entries:
            if "\n" in entry:
                raise ValueError(
                    f"`vocabulary` entry {entry!r} has a line end, which a file of subwords "
                    "cannot store and no text can match; rename the entry."
                )
        # (The matcher cannot hold NUL.)
        known = set("".join(entries)) | ESCAPES
        known = {c for c in known if c != "\0" and not "\ufdd0" <= c <= "\ufdef"}
        self._known = character_class(" ".join(f"{ord(c):X}" for c in sorted(known)))
        hidden = {*self._vocabulary.all_special_tokens}
        words = [
            entry if known.issuperset(entry) and entry and entry not in hidden else sentinel(i)
            for i, entry in enumerate(entries)
        ]
        words = [*words, *(WITHIN + word for word in words), UNKNOWN]
        with tf.init_scope():
            self._match = _make_match(words)
        if target_vocabulary is not None:
            self._target = type(self)(target_vocabulary, **self.get_config())

    def _tokenize(self, text, special):
        text = valid_utf8(text)
        if special:
            text = self._replace_special(text, special)
        runs = _part(text)  # ragged (B, R)
        ids = self._match(self._escape(runs.values))  # ragged (R, S)
        ids = strings.keep(ids, ids.values < 2 * self.vocabulary_size)
        ids = ids.with_values(ids.values % self.vocabulary_size)
        return runs.with_values(ids).merge_dims(1, 2)

    def _replace_special(self, text, special):
        """Replace spelled special tokens by parts that stand for them."""
        text = tf.strings.regex_replace(text, f"[{SENTINELS}]", "")
        for token in sorted(special, key=len, reverse=True):
            part = PART + sentinel(self.token_to_id(token)).encode() + PART
            text = tf.strings.regex_replace(text, regex_literal(token), part)
        return text

    def _escape(self, runs):
        """Return (R,) runs as entries spell them."""
        is_special = tf.strings.regex_full_match(runs, f"[{SENTINELS}]+")
        escaped = tf.strings.regex_replace(runs, r"\\", r"\\\\")
        escaped = tf.strings.regex_replace(escaped, END, r"\\u")
        escaped = where_not(escaped, f"[{self._known}]*", self._escape_unknown)
        return tf.where(is_special, runs, escaped + END)

    def _escape_unknown(self, runs):
        codes = tf.strings.unicode_decode(runs, "UTF-8").with_row_splits_dtype(tf.int64)
        characters = tf.strings.unicode_encode(codes.values[:, tf.newaxis], "UTF-8")
        numbers = "\\" + tf.strings.as_string(codes.values) + ";"
        is_known = tf.strings.regex_full_match(characters, f"[{self._known}]")
        return strings.join(codes.with_values(tf.where(is_known, characters, numbers)))

    def _join(self, entries):
        runs = strings.split(strings.join(entries), END)
        words = where_not(runs.values, r"[^\\]*", _unescape)
        # There was a space between two runs of letters.
        is_word = tf.strings.regex_full_match(words, f"(?s)[{LETTERS}].*")
        row = strings.row_ids(runs)
        after = is_word[1:] & is_word[:-1] & (row[1:] == row[:-1])
        after = tf.concat([tf.zeros_like(row[:1], tf.bool), after], axis=0)
        return strings.join(runs.with_values(tf.where(after, " " + words, words)))

    def _begins_word(self, token):
        return False

    def _ends_word(self, token):
        return token.endswith(END)

    def save_assets(self, folder: PathLike) -> None:
        lists = {ASSET: self.vocabulary}
        if self.target is not self:
            lists[TARGET_ASSET] = self.target.vocabulary
        for name, entries in lists.items():
            # As bytes: text mode would write the platform's line ends.
            lines = (f"'{entry}'\n".encode() for entry in entries)
            pathlib.Path(folder, name).write_bytes(b"".join(lines))

    @classmethod
    def from_assets(cls, folder: PathLike, config: dict[str, Any]) -> Self:
        target = os.path.join(folder, TARGET_ASSET)
        config = {"target_vocabulary": target if os.path.isfile(target) else None} | config
        return cls(os.path.join(folder, ASSET), **config)

    @classmethod
    def from_files(cls, folder: PathLike, **overrides: Any) -> Self:
        """Return the tokenizer of a folder with one `*.subwords`, or `vocab.NAME.SIZE`.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if there are several, or the file is damaged.
        """
        paths = sorted({path for name in FILES for path in pathlib.Path(folder).glob(name)})
        if not paths:
            raise FileNotFoundError(
                f"`folder` {os.fspath(folder)!r} holds no {' or '.join(FILES)}; copy the "
                "vocabulary from tensor2tensor's data_dir there."
            )
        if len(paths) > 1:
            names = [path.name for path in paths]
            raise ValueError(
                f"{os.fspath(folder)!r} holds several vocabularies, {names}: keep one, or pass "
                "tokenizer=SubwordTokenizer(SOURCE, target_vocabulary=TARGET)."
            )
        return cls(paths[0], **overrides)


def _make_match(words):
    """Return the graph's function from (R,) escaped runs to ids of words, ragged (R, S)."""
    if not has_text_operations():
        matcher = WordMatcher(words, len(words) - 1, MAX_INT, parting="", suffix=WITHIN)
        return traced(lambda runs: matcher(runs)[0], autograph=False)
    matcher = make_matcher(
        words,
        suffix_indicator=WITHIN,
        max_bytes_per_word=MAX_INT,
        token_out_type=tf.int32,
        unknown_token=UNKNOWN,
        no_pretokenization=True,
    )
    return traced(matcher.tokenize)


def _part(text):
    """Return the runs of (B,) texts, ragged (B, R)."""
    text = tf.strings.regex_replace(text, f"[{LETTERS}]+", PART + rb"\0" + PART)
    runs = strings.split(text, PART)
    row = strings.row_ids(runs)
    is_new = row[1:] != row[:-1]
    is_end = tf.ones_like(row[:1], tf.bool)
    is_outer = tf.concat([is_end, is_new], axis=0) | tf.concat([is_new, is_end], axis=0)
    return strings.keep(runs, is_outer | (runs.values != " "))


def _unescape(runs):
    """Return (R,) runs as they were before they were escaped."""
    marked = tf.strings.regex_replace(runs, r"\\(u|\\|[0-9]+;)", PART + ESCAPED + rb"\1" + PART)
    parts = strings.split(marked, PART)
    rest = tf.strings.substr(parts.values, 1, MAX_INT)
    is_number = tf.strings.regex_full_match(rest, "0*[0-9]{1,7};")
    number = tf.where(is_number, tf.strings.regex_replace(rest, ";", ""), str(NO_CODE_POINT))
    character = tf.strings.unicode_encode(
        tf.strings.to_number(number, tf.int32)[:, tf.newaxis], "UTF-8", replacement_char=INVALID
    )
    meant = tf.where(rest == "u", END, tf.where(rest == "\\", "\\", character))
    is_escaped = tf.strings.substr(parts.values, 0, 1) == ESCAPED
    return strings.join(parts.with_values(tf.where(is_escaped, meant, parts.values)))


def _read(path):
    lines = read_lines(
        path, "vocabulary", "give the path of tensor2tensor's file of subwords, or a list of str."
    )
    entries = []
    for line in map(str.rstrip, lines):
        is_quoted = any(line.startswith(quote) and line.endswith(quote) for quote in "'\"")
        entries.append(line[1:-1] if is_quoted else line)
    return entries
