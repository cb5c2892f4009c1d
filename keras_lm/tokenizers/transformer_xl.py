"""Words as Transformer-XL reads them: by the rules of Moses, by spaces, or characters or bytes.

Shapes: B batch, S words of a text, P parts of texts, between special tokens.
"""

import io
import json
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any, Self

from keras_lm.converters.torch_pickle import (
    Options,
    RestrictedUnpickler,
    is_torch,
    open_torch,
    options_class,
)
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import published_files, strings
from keras_lm.tokenizers.strings import regex_literal, valid_utf8
from keras_lm.tokenizers.tokenizer import Tokenizer, lookup_table
from keras_lm.tokenizers.vocabulary import check_file, read_lines
from keras_lm.utils import input_files
from keras_lm.utils.argument_types import PathLike

RULES = ("moses", "whitespace", "characters", "bytes")
# In the order of preference, as Hugging Face has it; then what the authors' code caches.
FILES = ("vocab.pkl", "vocab.bin", "vocab.txt", "cache.pkl", "cache.pt")
WORDS = "words.json"
SPECIAL = {"unknown": ("<unk>", "<UNK>"), "bos": ("<S>",), "eos": ("<eos>", "<S>")}
# A noncharacter, which is dropped from text. Followed by an id, it stands for a special token.
SENTINEL = "\ufdd0"
SPACE = r"[\s\x{B}\x{1C}-\x{1F}\x{85}\p{Z}]"
EDGES = f"^{SPACE}+|{SPACE}+$"


class TransformerXLTokenizer(Tokenizer):
    """A list of words, one id each, and how a text is cut into them.

    Args:
        vocabulary: list of str.
        unknown_token: str, the entry for words that are not in the list; None to leave them out.
        bos_token, eos_token: str, or None if the vocabulary has none.
        additional_special_tokens: list of str, entries that plain text is never tokenized to.
        rules: `"moses"`, those of Moses for English, as in WikiText; `"whitespace"` for texts that
            are cut already, with spaces between words; `"characters"`; or `"bytes"`, whose words
            are numbers from 0 to 255, as in enwik8. A list of characters with `_` and no space has
            `_` for it, as text8's.
        lowercase: bool. Lower-case text first.

    Raises:
        ValueError: as `Tokenizer`, or if `rules` is another value.

    Example:

        tokenizer = TransformerXLTokenizer(["<eos>", "<unk>", "well", "@-@", "known"], "<unk>")
        tokenizer(["A well-known one"])  # [[1, 2, 3, 4, 1]]

    Source: Transformer-XL, https://arxiv.org/abs/1901.02860; kimiyoung/transformer-xl,
    `vocabulary.py`; transformers, `TransfoXLTokenizer`.
    """

    ROLES = tuple(SPECIAL)
    PUBLISHED_FILES = ("vocab.pkl", "vocab.bin")

    def __init__(
        self,
        vocabulary: Sequence[str] | PathLike,
        unknown_token: str | None,
        bos_token: str | None = None,
        eos_token: str | None = None,
        additional_special_tokens: Sequence[str] = (),
        rules: str = "moses",
        lowercase: bool = False,
        name: str | None = None,
    ):
        if rules not in RULES:
            raise ValueError(f"`rules` is {rules!r}; it must be one of {RULES}.")
        roles = dict(zip(self.ROLES, (unknown_token, bos_token, eos_token)))
        super().__init__(vocabulary, roles, additional_special_tokens, name=name)
        self.rules, self.lowercase = rules, bool(lowercase)
        special = set(self._vocabulary.all_special_tokens)
        ids = {
            _sentinel(i) if token in special else token: i
            for i, token in enumerate(self._vocabulary.tokens)
        }
        with tf.init_scope():
            unknown = -1 if unknown_token is None else self.special_id("unknown")
            self._table = lookup_table(ids, unknown)
        self._space = "_" if "_" in ids and " " not in ids and rules == "characters" else " "

    def _tokenize(self, text, special):
        text = tf.strings.regex_replace(valid_utf8(text), rf"[{SENTINEL}\x{{0}}]", "")
        # NUL separates the parts, of which special tokens are some.
        for token in sorted(special, key=len, reverse=True):
            name = f"\0{_sentinel(self.token_to_id(token))}\0"
            text = tf.strings.regex_replace(text, regex_literal(token), name)
        parts = strings.split(text, b"\0")  # ragged (B, P)
        is_special = tf.strings.regex_full_match(parts.values, rf"{SENTINEL}\d+")
        plain = tf.where(is_special, "", parts.values)
        if self.lowercase:
            plain = tf.strings.lower(plain, encoding="utf-8")
        words = self._words(plain)  # ragged (P, S)
        lone = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(parts.values, is_special), tf.cast(is_special, tf.int64)
        )
        words = tf.concat([words, lone], axis=1)
        ids = tf.RaggedTensor.from_row_splits(
            self._table.lookup(words.values),
            tf.gather(words.row_splits, parts.row_splits),
            validate=False,
        )
        return strings.keep(ids, ids.values >= 0)

    def _words(self, text):
        """Return the words of (P,) texts as ragged (P, S) strings."""
        if self.rules == "moses":
            return split_words(text)
        if self.rules == "whitespace":
            return strings.split(tf.strings.regex_replace(text, f"{SPACE}+", " "), b" ")
        if self.rules == "bytes":
            data = strings.bytes_of(text)
            return data.with_values(tf.strings.as_string(tf.cast(data.values, tf.int32)))
        if self._space == " ":
            text = tf.strings.regex_replace(text, EDGES, "")
        text = tf.strings.regex_replace(text, " ", self._space)
        return tf.strings.unicode_split(text, "UTF-8").with_row_splits_dtype(tf.int64)

    @property
    def tokenize_lite(self) -> Any:
        raise AttributeError(
            f"its rules={self.rules!r} need operations that LiteRT does not have: "
            "StaticRegexReplace and hash tables"
        )

    def _join(self, entries):
        if self.rules == "moses":
            return join_words(entries)
        if self.rules == "whitespace":
            return strings.join(entries, " ")
        if self.rules == "bytes":
            is_byte = tf.strings.regex_full_match(entries.values, r"\d{1,3}")
            number = tf.strings.to_number(tf.where(is_byte, entries.values, "63"), tf.int32)
            characters = tf.constant([bytes([i]) for i in range(256)])
            characters = tf.gather(characters, tf.clip_by_value(number, 0, 255))
            return valid_utf8(strings.join(entries.with_values(characters)))
        return tf.strings.regex_replace(strings.join(entries), self._space, " ")

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"rules": self.rules, "lowercase": self.lowercase}

    def save_assets(self, folder: PathLike) -> None:
        with open(os.path.join(folder, WORDS), "w", encoding="utf-8") as file:
            json.dump(self.vocabulary, file, ensure_ascii=False, indent=0)

    def save_published_files(self, folder: PathLike) -> None:
        # The lines that transformers reads without running a pickle.
        text = "".join(f"{word}\n" for word in self.vocabulary)
        pathlib.Path(folder, "vocab.txt").write_text(text, encoding="utf-8", newline="\n")

    @classmethod
    def from_assets(cls, folder: PathLike, config: dict[str, Any]) -> Self:
        path = os.path.join(folder, WORDS)
        check_file("vocabulary", path, "copy the preset again, whole.")
        with open(path, "rb") as file:
            return cls(json.loads(input_files.whole(file, repr(path))), **config)

    @classmethod
    def from_files(cls, folder: PathLike, **overrides: Any) -> Self:
        """Return the tokenizer that a folder with a published vocabulary describes.

        Reads Hugging Face's `vocab.pkl`, `vocab.bin` or `vocab.txt`, for Moses' rules, with the
        settings of a `tokenizer_config.json`; or `cache.pkl` and `cache.pt`, the corpora of the
        authors' code, for texts that are cut by spaces. Nothing in a pickle can run. Lists of
        characters or of bytes are recognised by their entries.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is damaged, or has words separated by another delimiter.
        """
        folder = pathlib.Path(folder)
        name = next((name for name in FILES if (folder / name).is_file()), None)
        if name is None:
            raise FileNotFoundError(f"`folder` {os.fspath(folder)!r} holds none of {FILES}.")
        is_corpus = name.startswith("cache")
        words, settings = _read(folder / name, is_corpus)
        stated = {} if is_corpus else published_files.read_json(folder, "tokenizer_config.json")
        delimiter = stated.get("delimiter", settings.get("delimiter") if is_corpus else None)
        if delimiter not in (None, "", " "):
            raise ValueError(
                f"{os.fspath(folder)!r} has words separated by {delimiter!r}: put spaces there "
                "into texts, and pass rules='whitespace' and the words."
            )
        known = set(words)
        added = {} if is_corpus else published_files.read_json(folder, "added_tokens.json")
        # transformers adds <formula> to every list, also if its network has no row for it.
        if more := sorted(added.keys() - known - {"<formula>"}):
            raise ValueError(
                f"{os.fspath(folder)!r} has added_tokens.json with {more}, which its vocabulary "
                "lacks, and the clusters of a Transformer-XL cannot grow: leave the file out."
            )
        roles = {
            f"{role}_token": next((token for token in tokens if token in known), None)
            for role, tokens in SPECIAL.items()
        }
        plain = known - {token for tokens in SPECIAL.values() for token in tokens}
        rules = "whitespace" if is_corpus else "moses"
        if all(re.fullmatch(r"\d{1,3}", word) and int(word) < 256 for word in plain):
            rules = "bytes"
        elif delimiter == "" or all(len(word) == 1 for word in plain):
            rules = "characters"
        lowercase = settings.get("lower_case") if is_corpus else stated.get("lower_case")
        more = published_files.additional_tokens(stated) or ["<formula>"]
        arguments = {
            **roles,
            "additional_special_tokens": [token for token in more if token in known],
            "rules": rules,
            "lowercase": bool(lowercase) and rules != "bytes",
        }
        return cls(words, **{**arguments, **overrides})


def _sentinel(id):
    return f"{SENTINEL}{id}"


class VocabularyUnpickler(RestrictedUnpickler):
    """Also reads, without making any of it, what vocabularies have beside their words."""

    LEFT_OUT = re.compile(
        r"collections\.Counter|re\._compile|numpy\.ndarray|numpy\._?core\.multiarray\._reconstruct|"
        r"(data_utils|(utils\.)?vocabulary|tokenizers|sacremoses\.\w+)\.\w+|"
        r"transformers\.[\w.]*token[\w.]*\.\w+"
    )

    def find_class(self, module, name):
        if self.LEFT_OUT.fullmatch(f"{module}.{name}"):
            return options_class(name)
        return super().find_class(module, name)


def _read(path, is_corpus):
    """Return the words of a published file, and the settings beside them, a dict."""
    if path.suffix == ".txt":
        lines = read_lines(path, "vocabulary", "copy it there.")
        return list(dict.fromkeys(line.split()[0] for line in lines if line.split())), {}
    try:
        if is_torch(path):
            root, _ = open_torch(path, unpickler=VocabularyUnpickler)
        else:
            with path.open("rb") as file:
                data = input_files.whole(file, repr(os.fspath(path)))
            root = VocabularyUnpickler(io.BytesIO(data)).load()
        root = root.values if isinstance(root, Options) else root
        vocabulary = root["vocab"] if is_corpus else root
        values = vocabulary.values if isinstance(vocabulary, Options) else vocabulary
        words = values["idx2sym"]
        if type(words) is not list or not all(type(word) is str for word in words):
            raise ValueError("its idx2sym is not a list of strings")
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise ValueError(
            f"{os.fspath(path)!r} holds no vocabulary of Transformer-XL that can be read, "
            f"{type(error).__name__}: {error}. Copy or download it again."
        ) from None
    return words, values


# === The rules of Moses for English, as graph operations ===

# They are those of sacremoses' normalizer and tokenizer with `aggressive_dash_splits`, and what
# transformers' `TransfoXLTokenizer` does after them, in this order:
#
# - quotes, dashes and spaces get one spelling each;
# - marks become words, except `.` and `'` in some places; `well-known` becomes `well @-@ known`;
# - a full stop stays at abbreviations and before a word in lower case;
# - 1,000.5 becomes `1 @,@ 000 @.@ 5`.
#
# What is a letter differs for some rare signs, as sacremoses has a list of its own.

# Letters, except Chinese signs, Korean syllables, accents and mathematical letters.
_LETTER = r"\p{L}\p{Nl}\p{M}\x{24B6}-\x{24E9}"
_ALONE = r"\p{Han}\x{AC00}-\x{D7A3}\x{300}-\x{344}\x{346}-\x{36F}\x{1D400}-\x{1D7FF}"
_NUMBER = r"\p{N}"

# Replacements, one after the other: pattern → what it becomes.
_SPELLING = [
    (r"\r", ""), (r"\(", " ("), (r"\)", ") "), (" +", " "), (r"\) ([.!:?;,])", r")\1"),
    (r"\( ", "("), (r" \)", ")"), (r"(\p{Nd}) %", r"\1%"), (" :", ":"), (" ;", ";"),
    ("`", "'"), ("''", ' " '),
    ("[„“”]", '"'), ("–", "-"), ("—", " - "), (" +", " "), ("´", "'"), ("[‘‚’]", "'"),
    ("''", '"'), ("…", "..."),
    ("\u00a0?[«»]\u00a0?", '"'),
    ("\u00a0([%:?!;])", r"\1"), ("nº\u00a0", "nº "), ("\u00a0(ºC|cm)", r" \1"), (",\u00a0", ", "),
    (" +", " "), ('"([,.]+)', r'\1"'), ("(\\p{Nd})\u00a0(\\p{Nd})", r"\1.\2"),
]  # fmt: skip
_WORDS = [
    (f"{SPACE}+", " "), (r"[\x{1}-\x{1F}]", ""), ("^ +| +$", ""),
    (rf"[^{_LETTER}\p{{Nd}}\s.'`,\-]|[{_ALONE}]", r" \0 "),
    # (Twice, as the letter between two dashes belongs to both.)
    *[(rf"([{_LETTER}\p{{Nd}}])-([{_LETTER}\p{{Nd}}])", r"\1 @-@ \2")] * 2,
    # Several full stops are one word; a noncharacter stands for them until the end.
    (r"\.\.", "\ufdd0\ufdd0"), ("\ufdd0\\.", "\ufdd0\ufdd0"), ("\ufdd0+", r" \0 "),
    (rf"([^{_NUMBER}]),", r"\1 , "), (rf",([^{_NUMBER}])", r" , \1"),
    (rf"([{_NUMBER}]),$", r"\1 , "),
    (rf"([^{_LETTER}])'([^{_LETTER}])", r"\1 ' \2"),
    (rf"([^{_LETTER}{_NUMBER}])'([{_LETTER}])", r"\1 ' \2"),
    (rf"([{_LETTER}])'([^{_LETTER}])", r"\1 ' \2"),
    (rf"([{_LETTER}])'([{_LETTER}])", r"\1 '\2"),
    (rf"([{_NUMBER}])'(s)", r"\1 '\2"),
]  # fmt: skip
# (Twice, as the digit between two marks belongs to both.)
_END = [
    (" +", " "), ("^ | $", ""), (r"\.' ?$", " . ' "), ("\ufdd0", "."),
    *[(r"(\p{Nd})([,.])(\p{Nd})", r"\1 @\2@ \3")] * 2,
]  # fmt: skip

# Abbreviations that keep their full stop, and those that keep it before a number only.
_KEEPING = (
    "[A-Z]|Adj|Adm|Adv|Apr|Asst|Aug|Bart|Bldg|Brig|Bros|Capt|Cmdr|Col|Comdr|Con|Corp|Cpl|DR|Dec|Dr|"
    r"Drs|Ens|Feb|Gen|Gov|Hon|Hosp|Hr|Insp|Jan|Jul|Jun|Lt|MM|MR|MRS|MS|Maj|Mar|Messrs|Mlle|Mme|Mr|"
    r"Mrs|Ms|Msgr|Nos|Nov|Nr|Oct|Op|Ord|Pfc|Ph|Prof|Pvt|Rep|Reps|Res|Rev|Rs|Rt|Sen|Sens|Sep|Sfc|Sgt|"
    r"Sr|St|Supt|Surg|e\.g|i\.e|rev|v|vs"
)
_KEEPING_BEFORE_NUMBERS = "Art|No|pp"


def split_words(text):
    """Return the words of (B,) strings of valid UTF-8 as ragged (B, S) strings.

    The noncharacter U+FDD0 must not be in them.
    """
    text = _replace(text, _SPELLING + _WORDS)
    text = strings.join(_part_full_stops(strings.split(text, b" ")), " ")
    return strings.split(_replace(text, _END), b" ")


def _replace(text, replacements):
    for pattern, replacement in replacements:
        text = tf.strings.regex_replace(text, pattern, replacement)
    return text


def _part_full_stops(words):
    """Part the full stop at the end of ragged (B, S) words from those that do not keep it."""
    rows = strings.row_ids(words)
    is_last = tf.concat([rows[1:] != rows[:-1], tf.ones_like(rows[:1], tf.bool)], axis=0)
    after = tf.concat([words.values[1:], tf.fill(tf.shape(words.values[:1]), "")], axis=0)
    after = tf.where(is_last, "", after)
    ends = tf.strings.regex_full_match(words.values, r".+\.")

    def matches(texts, pattern):
        return tf.strings.regex_full_match(texts, pattern)

    keeps = (
        matches(words.values, rf".*(?:\..*[{_LETTER}]|[{_LETTER}].*\.).*\.")
        | matches(words.values, rf"(?:{_KEEPING})\.")
        | matches(after, r"\p{Ll}.*")
        | (matches(words.values, rf"(?:{_KEEPING_BEFORE_NUMBERS})\.") & matches(after, "[0-9].*"))
    )
    parted = tf.strings.regex_replace(words.values, r"\.$", " .")
    return words.with_values(tf.where(ends & ~keeps, parted, words.values))


# === Back to text ===

_CHINESE = (
    r"\x{1100}-\x{11FF}\x{2E80}-\x{A4CF}\x{A840}-\x{A87F}\x{AC00}-\x{D7AF}\x{F900}-\x{FAFF}"
    r"\x{FE30}-\x{FE4F}\x{FF65}-\x{FFDC}\x{20000}-\x{2FFFF}"
)


def join_words(words):
    """Return (B,) texts of ragged (B, S) words, as sacremoses' detokenizer writes them."""
    words = strings.split(_replace(strings.join(words, " "), [(" @-@ ", "-")]), b" ")
    texts, rows = words.values, strings.row_ids(words)
    is_first = tf.concat([tf.ones_like(rows[:1], tf.bool), rows[1:] != rows[:-1]], axis=0)

    def matches(pattern):
        return tf.strings.regex_full_match(texts, pattern)

    def before(values):
        """Return what each word has the word before it for; False for the first of a row."""
        return tf.concat([tf.zeros_like(values[:1]), values[:-1]], axis=0) & ~is_first

    def is_odd(values):
        """Return whether the number of such words before each in its row is odd."""
        number = tf.cumsum(tf.cast(values, tf.int32), exclusive=True)
        at_start = tf.math.unsorted_segment_min(number, rows, words.nrows())
        return (number - tf.gather(at_start, rows)) % 2 == 1

    single, double = matches("'"), matches('"|[„“”]+')
    after_s = before(matches("(?s).*s"))
    possessive = single & after_s & ~is_odd(single & ~after_s)
    closes = (single & is_odd(single & ~possessive)) | (double & is_odd(double))
    opens = (single | double) & ~possessive & ~closes
    follows = (
        matches(r"[,.?!:;\\%}\])]+")
        | (matches(f"(?s)'[{_LETTER}].*") & ~is_first)
        | (matches(f"(?s)[{_CHINESE}].*") & before(matches(f"(?s).*[{_CHINESE}]")))
        | closes
        | possessive
    )
    leads = matches(r"[\p{Sc}(\[{¿¡]+") | opens
    texts = tf.where(follows | before(leads) | is_first, texts, tf.strings.join([" ", texts]))
    return _replace(strings.join(words.with_values(texts)), [(r" @([,.])@ ", r"\1")])
