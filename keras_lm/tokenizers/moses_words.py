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

from keras_lm.converters.torch_pickle import is_torch, open_torch
from keras_lm.converters.torch_unpickler import (
    Options,
    RestrictedUnpickler,
    options_class,
)
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import moses_rules, published_files, strings
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
EDGES = f"^{moses_rules.SPACE}+|{moses_rules.SPACE}+$"


class TransformerXLTokenizer(Tokenizer):
    """A list of words, one id each, and how a text is cut into them.

    Args:
        vocabulary: list of str.
        unknown_token: str, the entry for words that are not in the list; None to leave them out.
        bos_token, eos_token: str, or None if the vocabulary has none.
        additional_special_tokens: list of str, entries that plain text is never tokenized to.
        rules: `"moses"`, those of `keras_lm.tokenizers.moses_rules`, as in WikiText; `"whitespace"`
            for texts that are cut already, with spaces between words; `"characters"`; or `"bytes"`,
            whose words are numbers from 0 to 255, as in enwik8. A list of characters with `_` and
            no space has `_` for it, as text8's.
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
            return moses_rules.split_words(text)
        if self.rules == "whitespace":
            return strings.split(tf.strings.regex_replace(text, f"{moses_rules.SPACE}+", " "), b" ")
        if self.rules == "bytes":
            found = strings.bytes_of(text)
            return found.with_values(tf.strings.as_string(tf.cast(found.values, tf.int32)))
        if self._space == " ":
            text = tf.strings.regex_replace(text, EDGES, "")
        text = tf.strings.regex_replace(text, " ", self._space)
        return tf.strings.unicode_split(text, "UTF-8").with_row_splits_dtype(tf.int64)

    @property
    def tokenize_lite(self):
        raise AttributeError(
            f"its rules={self.rules!r} need operations that LiteRT does not have: "
            "StaticRegexReplace and hash tables"
        )

    def _join(self, entries):
        if self.rules == "moses":
            return moses_rules.join_words(entries)
        if self.rules == "whitespace":
            return strings.join(entries, " ")
        if self.rules == "bytes":
            is_byte = tf.strings.regex_full_match(entries.values, r"\d{1,3}")
            number = tf.strings.to_number(tf.where(is_byte, entries.values, "63"), tf.int32)
            characters = tf.constant([bytes([i]) for i in range(256)])
            characters = tf.gather(characters, tf.clip_by_value(number, 0, 255))
            return valid_utf8(strings.join(entries.with_values(characters)))
        return tf.strings.regex_replace(strings.join(entries), self._space, " ")

    def get_config(self):
        return super().get_config() | {"rules": self.rules, "lowercase": self.lowercase}

    def save_assets(self, folder):
        with open(os.path.join(folder, WORDS), "w", encoding="utf-8") as file:
            json.dump(self.vocabulary, file, ensure_ascii=False, indent=0)

    def save_published_files(self, folder):
        # The lines that transformers reads without running a pickle.
        text = "".join(f"{word}\n" for word in self.vocabulary)
        pathlib.Path(folder, "vocab.txt").write_text(text, encoding="utf-8", newline="\n")

    @classmethod
    def from_assets(cls, folder, config):
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
        found = {
            **roles,
            "additional_special_tokens": [token for token in more if token in known],
            "rules": rules,
            "lowercase": bool(lowercase) and rules != "bytes",
        }
        return cls(words, **{**found, **overrides})


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
