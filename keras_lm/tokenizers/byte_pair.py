r"""Byte-level BPE: the tokenizer of GPT-2, RoBERTa and BART.

Text is split into words by a tokenizer.json's `pre_tokenizer`. Its regular expressions are
Oniguruma's, and RE2 runs here. RE2 has no `\s+(?!\S)`, with which they end: "white space, but not
the last before a word". So such runs are split first, and the rest of the expression finds the same
words in what remains.

Shapes: B texts, P parts of them, W words, S tokens of a text, T all tokens.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.tensorflow import tf
from keras_lm.tokenizers import (
    byte_pair_files,
    published_files,
    strings,
    unicode_forms,
    unicode_ranges,
)
from keras_lm.tokenizers.byte_pair_files import KERAS_HUB
from keras_lm.tokenizers.lite_operations import (
    TAIL,
    CodePointTable,
    PairMerger,
    Trie,
    characters,
    count_before,
    flags,
    insert_spaces,
    places_in_texts,
    places_of,
    put,
    valid_bytes,
    value_after,
    value_before,
)
from keras_lm.tokenizers.sentence_piece_model import (
    BYTES,
    SentencePieceModel,
    check_merges,
    last_ranks,
    merging_model,
    ranks_of,
    spelling,
)
from keras_lm.tokenizers.strings import (
    drop_unfinished,
    has_text_operations,
    regex_literal,
    size,
    valid_utf8,
)
from keras_lm.tokenizers.tokenizer import Tokenizer, in_form, lookup_table, offsets_in_form, traced
from keras_lm.tokenizers.unicode_ranges import (
    BERT_PUNCTUATION,
    LETTERS,
    NUMBERS,
    WHITE_SPACE,
    character_class,
)
from keras_lm.tokenizers.vocabulary import strings_of
from keras_lm.utils.argument_types import PathLike, Tensor

# Bytes that valid UTF-8 never has, and that no regular expression matches: one separates words and
# other parts of a text, the other begins a part that is a token.
PART, TOKEN = b"\xff", b"\xfe"

SPACE, LINE_ENDS = BYTES[0x20], (BYTES[0x0A], BYTES[0x0D])
NEVER_IN_UTF8 = (0xC0, 0xC1, *range(0xF5, 0x100))
MAX_INT = 2**31 - 1


# What follows are classes, because a `tf.Module` would track bare lists, dicts and sets.


@dataclasses.dataclass(frozen=True)
class Rules:
    """The settings of `BytePairTokenizer` that are lists, and how it splits text into words.

    Args:
        merges, added_tokens, lstrip_tokens, rstrip_tokens, whole_words: lists of str.
        pre_tokenizer: list of dicts, empty for GPT-2's splitting.
        split: `WordRules`.
    """

    merges: list[str]
    added_tokens: list[str]
    lstrip_tokens: list[str]
    rstrip_tokens: list[str]
    whole_words: list[str]
    pre_tokenizer: list[dict[str, Any]]
    split: "WordRules"


@dataclasses.dataclass(frozen=True)
class MadeEntries:
    """The entries that text may become.

    Args:
        ranks: dict from each entry that merging makes to the rank of its last merge; see
            `last_ranks`.
        words: set of the entries that a whole word may become.
    """

    ranks: dict[str, int]
    words: set[str]


class BytePairTokenizer(Tokenizer):
    """GPT-2's tokenizer, in the graph: split into words with their spaces, merge bytes by BPE.

    The ids equal those of Hugging Face's `tokenizers`, whatever the text: any bytes, words of any
    length. Bytes that are not UTF-8 become U+FFFD. A word of n bytes needs O(n log n) steps and
    O(n) memory.

    Args:
        vocabulary: list of str, the entries with each byte as the character that GPT-2 writes for
            it (`"Ġthe"`), or the path of a `vocab.json`.
        merges: list of str, the pairs to join, separated by a space (`"Ġ t"`), in order of rank; or
            the path of a `merges.txt`.
        cls_token, sep_token, pad_token, mask_token, unknown_token, bos_token, eos_token: str or
            None.
        additional_special_tokens: list of str, entries that plain text is never tokenized to.
        added_tokens: list of str, entries that are found anywhere in text before it is split.
        lstrip_tokens: list of str, special and added tokens that include white space before them.
        rstrip_tokens: list of str, those that include white space after them.
        whole_words: list of str, entries that a whole word becomes, whatever the merges.
        add_prefix_space: bool. Add a space before text that does not begin with one, as within a
            sentence.
        normalization: str, `"NFC"`, `"NFD"`, `"NFKC"` or `"NFKD"`, the Unicode normal form to
            apply first, or None.
        pre_tokenizer: list of dicts, how text is split into words: the steps of a tokenizer.json,
            such as Llama 3's, ending with "ByteLevel". None for GPT-2's.
        ignore_merges: bool. Whether a word that is an entry becomes that entry, whatever the
            merges, as in Llama 3.
        template: see `Tokenizer`.

    Raises:
        FileNotFoundError: if a vocabulary file does not exist.
        ValueError: as `Tokenizer`, or if the merges do not fit the vocabulary, or it lacks a byte
            and there is no unknown token.

    Example:

        tokenizer = BytePairTokenizer.from_preset("path/to/gpt2")
        ids = tokenizer(["Hello world"])     # [[15496, 995]]
        tokenizer.detokenize(ids)            # [b"Hello world"]

    Reference: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"; Sennrich
    et al. 2016, "Neural Machine Translation of Rare Words with Subword Units", arXiv:1508.07909.
    """

    has_offsets_of_special = True
    ROLES = byte_pair_files.ROLES
    PUBLISHED_FILES = byte_pair_files.MERGES_FILES
    KIND = ""  # the suffix of entries that end a word
    MADE_LATER = Tokenizer.MADE_LATER | dict.fromkeys(
        ("_made", "_has_unknown", "_merge", "_spellings", "_words"), "_build"
    )

    def __init__(
        self,
        vocabulary: Sequence[str] | PathLike,
        merges: Sequence[str],
        cls_token: str | None = None,
        sep_token: str | None = None,
        pad_token: str | None = None,
        mask_token: str | None = None,
        unknown_token: str | None = None,
        bos_token: str | None = None,
        eos_token: str | None = None,
        additional_special_tokens: Sequence[str] = (),
        added_tokens: Sequence[str] = (),
        lstrip_tokens: Sequence[str] = (),
        rstrip_tokens: Sequence[str] = (),
        whole_words: Sequence[str] = (),
        add_prefix_space: bool = False,
        normalization: str | None = None,
        pre_tokenizer: Sequence[dict[str, Any]] | None = None,
        ignore_merges: bool = False,
        template: Sequence[str] | None = None,
        name: str | None = None,
    ):
        if isinstance(vocabulary, (str, os.PathLike)):
            vocabulary = byte_pair_files.read_vocabulary(vocabulary)
        if isinstance(merges, (str, os.PathLike)):
            merges = byte_pair_files.read_merges(merges)
        tokens = (cls_token, sep_token, pad_token, mask_token, unknown_token, bos_token, eos_token)
        roles = dict(zip(self.ROLES, tokens))
        super().__init__(vocabulary, roles, additional_special_tokens, template, name=name)
        self.add_prefix_space: bool = bool(add_prefix_space)
        self.normalization = strings.checked_form(normalization)
        self.ignore_merges: bool = bool(ignore_merges)
        steps = [*(pre_tokenizer or [])]
        entries = self._vocabulary.entries
        self._rules = Rules(
            merges=strings_of("merges", merges),
            added_tokens=entries("added_tokens", added_tokens),
            lstrip_tokens=entries("lstrip_tokens", lstrip_tokens),
            rstrip_tokens=entries("rstrip_tokens", rstrip_tokens),
            whole_words=entries("whole_words", whole_words),
            pre_tokenizer=steps,
            split=WordRules(steps or [{"type": "ByteLevel"}]),
        )
        self._check(self._whole_entries())

    def _whole_entries(self):
        """Return the entries that no merge makes, a set."""
        unused = filter(published_files.UNUSED.fullmatch, self._vocabulary.tokens)
        return {*self._vocabulary.all_special_tokens, *self._rules.added_tokens, *unused}

    def _check(self, whole):
        entries = self._vocabulary.tokens
        needless = entries if self.ignore_merges else self._rules.whole_words
        check_merges(self._rules.merges, entries, whole.union(needless))
        spelled = [entry for entry in entries if entry not in whole]
        if not set(BYTES.values()).issuperset("".join(spelled)):
            for entry in spelled:
                spelling(entry)  # raises an error
        missing = self._missing_bytes(whole)
        if missing and "unknown" not in self.special_tokens:
            raise ValueError(
                f"`vocabulary` lacks {len(missing)} of the bytes, such as {missing[0]!r}, and no "
                "`unknown_token` stands for them. Add them, or name an unknown token."
            )

    def _missing_bytes(self, whole):
        known = self._vocabulary.ids.keys() - whole
        return [c for b, c in BYTES.items() if c not in known and b not in NEVER_IN_UTF8]

    def _build(self):
        """Make what merges words: its entries, and the graph's tables."""
        whole, entries = self._whole_entries(), self._vocabulary.tokens
        ranks = ranks_of(self._rules.merges)
        last = last_ranks({t: tuple(t) for t in entries if t not in whole}, ranks)
        spellings = [token.encode() if token in whole else spelling(token) for token in entries]
        # Possible words: entries in valid UTF-8 that result from merging their own bytes, and those
        # that need no merges.
        possible = {*last, *self._rules.whole_words}
        if self.ignore_merges:
            possible = {token for token in entries if token not in whole}
        self._made = MadeEntries(last, possible)
        words = {spellings[i]: i for i, t in enumerate(entries) if t in possible}
        words = {word: i for word, i in words.items() if _is_utf8(word)}
        missing = self._missing_bytes(whole)
        pieces = [(t, -float(last[t])) if t in last else None for t in entries]
        pieces += [(character, 0.0) for character in missing]
        self._make_tables(spellings, words, pieces, BYTES)

    def _make_tables(self, spellings, words, pieces, byte_characters):
        """Make the graph's tables; pieces after the vocabulary's are unknown tokens."""
        whole = {*self._vocabulary.all_special_tokens, *self._rules.added_tokens}
        words = words | {TOKEN + t.encode(): self._vocabulary.ids[t] for t in whole}
        self._has_unknown = len(pieces) > self.vocabulary_size
        if has_text_operations():
            self._merge = SentencePieceModel(merging_model(pieces, byte_characters))
        else:
            self._merge = self._make_merger()
        self._spellings = tf.constant(spellings, tf.string)  # (V,)
        self._words = lookup_table(words, -1)

    def _make_merger(self):
        unknown = self.special_id("unknown") if self._has_unknown else None
        ids, merges = self._vocabulary.ids, self._rules.merges
        return WordMerger(ids, merges, self._made.ranks, unknown)

    @property
    def _stripping(self):
        """The tokens that include white space beside them."""
        return {*self._rules.lstrip_tokens, *self._rules.rstrip_tokens}

    # === Further words ===

    def _entries_of_word(self, word):
        entry = "".join(BYTES[byte] for byte in word.encode())
        return [entry, SPACE + entry]

    def _with_entries(self, entries):
        config = self.get_config()
        config["whole_words"] += entries
        return self._grown(entries, config)

    def _grown(self, entries, config):
        return type(self)([*self._vocabulary.tokens, *entries], self._rules.merges, **config)

    # === Text to ids ===

    def _tokenize(self, text, special):
        tokens = [*self._rules.added_tokens, *special]
        text = self._normalize(text)
        if not tokens:
            return self._encode(self._prefix(text), with_tokens=False)
        parts = self._part_tokens(text, tokens)  # ragged (B, P)
        ids = self._encode(self._prefix(self._strip_tokens(parts.values, tokens)), with_tokens=True)
        return parts.with_values(ids).merge_dims(1, 2)

    def _normalize(self, text):
        return in_form(text, self.normalization)

    def _tokenize_with_offsets(self, text, special=()):
        return offsets_in_form(
            text, self.normalization, lambda text: self._in_normal_form(text, special)
        )

    def _in_normal_form(self, text, special):
        """Return ragged (B, S) ids, starts and ends in bytes of texts in their normal form."""
        tokens = [*self._rules.added_tokens, *special]
        parts = self._part_tokens(text, tokens)  # ragged (B, P)
        is_token = self._is_token(parts.values)  # (P,)
        length_of_part = size(parts.values) - tf.cast(is_token, tf.int64)
        spaced = self._prefix(parts.values)
        prefix = size(spaced) - size(parts.values)
        stripped = self._strip_tokens(spaced, tokens)
        ids = self._encode(stripped, with_tokens=True)  # ragged (P, S)
        # Pieces cover a part without gaps; a token also covers the white space that it includes.
        part = strings.row_ids(ids)  # (T,)
        length = size(tf.gather(self._spellings, ids.values))
        if self._has_unknown:  # each stands for a byte
            length = tf.where(ids.values == self.special_id("unknown"), 1, length)
        length = tf.where(tf.gather(is_token, part), tf.gather(length_of_part, part), length)
        # Offsets in a part, without its prefix.
        before = tf.gather(tf.cumsum(length_of_part + prefix, exclusive=True) + prefix, part)
        ends = tf.cumsum(length) - before
        starts = tf.maximum(ends - length, 0)
        # Offsets in a text.
        of_text = parts.with_values(ids).merge_dims(1, 2)  # ragged (B, S)
        begin = tf.cumsum(length_of_part, exclusive=True)
        first = tf.gather(tf.concat([begin, [0]], 0), parts.row_starts())  # (B,)
        shift = tf.gather(begin, part) - tf.gather(first, strings.row_ids(of_text))
        return of_text, of_text.with_values(starts + shift), of_text.with_values(ends + shift)

    @functools.cached_property
    def with_space(self):
        if self.add_prefix_space:
            return self
        for name in self.MADE_LATER:
            getattr(self, name)
        other = object.__new__(type(self))  # with the same tables, unlike `copy`
        other.__dict__.update(self.__dict__)
        other.__dict__.pop("_lite", None)  # it adds the space itself
        other.add_prefix_space = True
        return other

    def _prefix(self, parts):
        # A part that is a token begins with a byte that is not a character, and stays as it is.
        if not self.add_prefix_space:
            return parts
        # (KerasHub adds one whether or not there is one.)
        first = r"^[\x{0}-\x{10FFFF}]" if self._rules.split.is_keras_hub else "^[^ ]"
        return tf.strings.regex_replace(parts, first, r" \0")

    def _part_tokens(self, text, tokens):
        """Split (B,) texts where tokens are spelled: leftmost first, then longest.

        Returns ragged (B, P) parts. Those that are tokens, with the white space that they include,
        begin with the byte `TOKEN`.
        """
        spelled = "|".join(
            (f"[{S}]*" if token in self._rules.lstrip_tokens else "")
            + regex_literal(token)
            + (f"[{S}]*" if token in self._rules.rstrip_tokens else "")
            # Those that include white space before that which is a token itself.
            for token in sorted(_longest_first(tokens), key=lambda t: t not in self._stripping)
        )
        if spelled:
            text = tf.strings.regex_replace(text, spelled, PART + TOKEN + rb"\0" + PART)
        return _split(text)

    def _strip_tokens(self, parts, tokens):
        """Strip the white space that tokens include, leaving `TOKEN` and their names."""
        tokens = self._stripping.intersection(tokens)
        if not tokens:
            return parts
        rows = tf.where(self._is_token(parts))
        texts = tf.strings.substr(tf.gather_nd(parts, rows), 1, MAX_INT)
        names = "|".join(regex_literal(token) for token in _longest_first(tokens))
        texts = tf.strings.regex_replace(texts, f"^[{S}]*({names})[{S}]*$", r"\1")
        return tf.tensor_scatter_nd_update(parts, rows, TOKEN + texts)

    def _is_token(self, parts):
        return tf.strings.substr(parts, 0, 1) == TOKEN

    def _encode(self, parts, with_tokens):
        """Return the ragged (P, S) ids of (P,) parts, `with_tokens` if some parts are tokens."""
        words = self._part_words(parts)
        words = _split(tf.where(self._is_token(parts), parts, words) if with_tokens else words)
        # Most words are entries. Of the others, each distinct one is merged once.
        known = self._words.lookup(words.values)  # (W,)
        rows = tf.where(known < 0)
        rare, which = tf.unique(tf.gather_nd(words.values, rows), tf.int64)
        pieces = self._merge_words(rare)  # ragged (rare words, S)
        ids = pieces.values
        if self._has_unknown:
            ids = tf.where(ids < self.vocabulary_size, ids, self.special_id("unknown"))
        # Where the ids of each word are: the entries' first, then those of the rare words.
        number = tf.size(known, tf.int64)
        begin, length = tf.range(number), tf.ones_like(known, tf.int64)
        begin = tf.tensor_scatter_nd_update(
            begin, rows, number + tf.gather(pieces.row_starts(), which)
        )
        length = tf.tensor_scatter_nd_update(length, rows, tf.gather(pieces.row_lengths(), which))
        places = tf.ragged.range(begin, begin + length)  # ragged (W, S)
        ids = tf.gather(tf.concat([known, ids], 0), places.values)
        return tf.RaggedTensor.from_row_splits(
            ids, tf.gather(places.row_splits, words.row_splits), validate=False
        )

    def _part_words(self, parts):
        """Put the byte `PART` between the words of (P,) parts."""
        return self._rules.split(parts)

    def _merge_words(self, words):
        return self._merge.tokenize(words)

    def tokenize_lite(self, text: Tensor) -> Tensor:
        """Return ragged (B, S) ids of (B,) texts like a call, with operations that LiteRT has.

        The ids are the same for all text without added tokens, which are not found here. Words are
        GPT-2's, also where KerasHub would split white space otherwise. A word takes at most as many
        rounds of merging as it has bytes; memory grows linearly with the text.

        Raises:
            ValueError: if `pre_tokenizer` is given, whose expressions LiteRT cannot run.
        """
        return self.tokenize_lite_with_offsets(text)[0]

    def tokenize_lite_with_offsets(self, text: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what `tokenize_lite` does, and where tokens start and end in characters."""
        if self._rules.pre_tokenizer and not self._rules.split.is_keras_hub:
            raise ValueError(
                "BytePairTokenizer has a pre_tokenizer of its own, whose regular expressions "
                "LiteRT cannot run. Export as a SavedModel instead."
            )
        if self.normalization:
            return unicode_forms.tokens_in_form_lite(text, self.normalization, self._lite)
        return self._lite(text)

    @property
    def _added_in_text(self):
        return self._rules.added_tokens

    def _sides(self, tokens):
        return self._rules.lstrip_tokens, self._rules.rstrip_tokens

    @functools.cached_property
    def _lite(self):
        with tf.init_scope():
            return self._make_lite()

    def _make_lite(self):
        return LiteBytePair(
            self._vocabulary.ids,
            self._rules.merges,
            self._made,
            self.special_id("unknown") if self._has_unknown else None,
            self.add_prefix_space,
        )

    def _begins_word(self, token):
        return token[:1] in (SPACE, *LINE_ENDS)

    def _ends_word(self, token):
        return token[-1:] in LINE_ENDS

    # === Ids to text ===

    def detokenize(self, ids: Tensor | Sequence[Any], partial: bool = False) -> Tensor:
        """Turn ids into text as `Tokenizer` does; bytes that are not UTF-8 become U+FFFD.

        `partial=True` is for ids that will be continued: if they end within a character, its bytes
        are left out, so that the text is a prefix of the continued text.
        """
        return self._by_text(ids, lambda ids: self._detokenize(ids, partial))

    def _detokenize(self, ids, partial=False):
        text = strings.join(tf.gather(self._spellings, ids))
        return valid_utf8(drop_unfinished(text) if partial else text)

    def _spellings_alone(self):
        return (self._spellings.numpy().tolist(),)

    # === Files ===

    def get_config(self) -> dict[str, Any]:
        names = ("added_tokens", "lstrip_tokens", "rstrip_tokens", "whole_words")
        return super().get_config() | {
            **{name: list(getattr(self._rules, name)) for name in names},
            "add_prefix_space": self.add_prefix_space,
            "normalization": self.normalization,
            "pre_tokenizer": self._rules.pre_tokenizer or None,
            "ignore_merges": self.ignore_merges,
            "template": self.template,
        }

    def save_assets(self, folder: PathLike) -> None:
        byte_pair_files.write(folder, self._vocabulary.ids, self._rules.merges)

    @classmethod
    def from_assets(cls, folder: PathLike, config: dict[str, Any]) -> Self:
        paths = (os.path.join(folder, name) for name in ("vocab.json", "merges.txt"))
        return cls(*paths, **config)

    @classmethod
    def from_files(cls, folder: PathLike, **overrides: Any) -> Self:
        """Return the tokenizer that a folder with a published checkpoint describes.

        Reads `vocab.json` and `merges.txt` (OpenAI: `encoder.json` and `vocab.bpe`) or else
        `tokenizer.json`, and the settings of Hugging Face's JSON files, if they exist. Without
        these, a vocabulary with `<s>` has the special tokens of RoBERTa, and one with
        `<|endoftext|>` those of GPT-2.

        Raises:
            FileNotFoundError: if there is no byte-level BPE.
            ValueError: if a file is damaged, belongs to another vocabulary, or asks for something
                that this class does not do.
        """
        with published_files.reading(folder):
            entries, merges, settings = byte_pair_files.read_folder(folder, cls.KIND, cls.__name__)
        return cls(entries, merges, **{**settings, **overrides})


def _split(text):
    return strings.split(text, PART)


def _is_utf8(data):
    try:
        return bool(data.decode())
    except UnicodeDecodeError:
        return False


def _longest_first(tokens):
    return sorted((token for token in tokens if token), key=len, reverse=True)


# === How text is split into words ===

L, N, S = (character_class(ranges) for ranges in (LETTERS, NUMBERS, WHITE_SPACE))
# White space but the ends of lines.
S_IN_LINE = character_class(WHITE_SPACE.replace("9-D", "9 B-C"))
CLASSES = {r"\p{L}": L, r"\p{N}": N, r"\s": S}

LINES = r"\s*[\r\n]"
LAST_SPACES = r"|\s+(?!\S)|\s+"
# The last of several spaces goes with the next word.
GPT2 = rf"'(?:[stmd]|re|ve|ll)| ?(?:\p{{L}}+|\p{{N}}+|[^\s\p{{L}}\p{{N}}]+){LAST_SPACES}"
# Possessive forms that match what ordinary ones match.
ORDINARY = {
    r"[^\r\n\p{L}\p{N}]?+": r"[^\r\n\p{L}\p{N}]?",
    r"[^\s\p{L}\p{N}]++": r"[^\s\p{L}\p{N}]+",
}
# What an expression has that leaves no character out.
EVERYTHING = (LAST_SPACES, r"\p{L}+", r"\p{N}", r"[^\s\p{L}\p{N}]+")

# (Nothing is removed: offsets are counted from words that cover a text without a gap.)
BEHAVIORS = {
    "Isolated": PART + rb"\0" + PART,
    "MergedWithPrevious": rb"\0" + PART,
    "MergedWithNext": PART + rb"\0",
}

# KerasHub's own splitting. It marks the spaces that go with a word by a digit of Devanagari, which
# it takes out of every text; RE2's classes are those of TensorFlow, which it runs on as well.
_MARK = "६"
_RARE = r"\x{A0}\x{2009}\x{202F}\x{3000}"
_BEFORE_WORD = rf" [^\s{_RARE}]"
_WORDS = (
    rf"'(?:[stmd]|re|ve|ll)|[\s{_RARE}]+[\n\r\t\f{_MARK}{_RARE}]"
    rf"| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}{_RARE}]+"
)
_LAST = rf"[ \t\r\f\v{_MARK}{_RARE}]$"


class WordRules:
    """Splits parts of texts into words.

    Args:
        steps: list of dicts, the steps of a tokenizer.json's `pre_tokenizer`, ending with
            "ByteLevel"; `[KERAS_HUB]` for that library's splitting.

    Raises:
        CheckpointError: if a step is not done here; the message names it.
    """

    def __init__(self, steps):
        self.is_keras_hub = steps == [KERAS_HUB]
        self._replacements = []
        if self.is_keras_hub:
            return
        for number, step in enumerate(steps):
            if (step["type"] == "ByteLevel") != (number == len(steps) - 1):
                _refuse(step, "which must be the last one, and only once")
            if number and step.get("add_prefix_space"):
                _refuse(step, "which adds a space to each part of other steps")
            self._replacements += _replacements(step)

    def __call__(self, parts):
        """Return (P,) parts with the byte `PART` between words."""
        if self.is_keras_hub:
            return _as_keras_hub(parts)
        for pattern, new in self._replacements:
            parts = tf.strings.regex_replace(parts, pattern, new)
        return parts


def _replacements(step):
    """Return the (pattern, replacement) pairs that part what a step parts."""
    kind = step["type"]
    if kind == "ByteLevel":
        return _of_expression(GPT2) if step.get("use_regex", True) else []
    if kind == "Digits":
        digits = f"[{N}]" if step.get("individual_digits") else f"[{N}]+"
        return [(digits, BEHAVIORS["Isolated"])]
    if kind == "Punctuation":
        return [(f"[{character_class(BERT_PUNCTUATION)}]", _behavior(step))]
    if kind != "Split":
        _refuse(step)
    pattern = step["pattern"]
    if "String" in pattern:
        if step.get("invert"):
            _refuse(step)
        return [(regex_literal(pattern["String"]), _behavior(step))]
    expression = pattern["Regex"]
    is_whole = all(part in ordinary(expression) for part in EVERYTHING)
    # (If no character is left out, to remove what is between words removes nothing.)
    has_words = step["behavior"] == "Isolated" and not step.get("invert")
    has_words |= step["behavior"] == "Removed" and bool(step.get("invert")) and is_whole
    if has_words and expression.endswith(LAST_SPACES):
        return _of_expression(expression)
    if step.get("invert"):
        _refuse(step)
    return [(in_re2(expression, step), _behavior(step))]


def _behavior(step):
    behavior = BEHAVIORS.get(step["behavior"])
    return behavior or _refuse(step)


def _of_expression(expression):
    """Return the replacements for an expression that ends with `LAST_SPACES`."""
    body = ordinary(expression.removesuffix(LAST_SPACES))
    last = S_IN_LINE if LINES in body else S
    return [
        (f"([{S}]+)([{last}][^{S}])", rb"\1" + PART + rb"\2"),
        (in_re2(body + r"|\s+"), BEHAVIORS["Isolated"]),
    ]


def ordinary(expression):
    """Return an expression without possessive forms that make no difference."""
    for possessive, same in ORDINARY.items():
        expression = expression.replace(possessive, same)
    return expression


def in_re2(expression, step=None):
    """Return RE2's form of an expression of Oniguruma, with the classes of `tokenizers`.

    Raises:
        CheckpointError: if it has something else than letters, numbers and white space, and what
            both know.
    """
    parts, is_inside = [], False
    for token in re.findall(r"\\p\{\^?\w+\}|\\.|\(\?.?|[*+?}][+?]|.", expression, re.DOTALL):
        if token in CLASSES:
            parts.append(CLASSES[token] if is_inside else f"[{CLASSES[token]}]")
            continue
        is_escape = len(token) == 2 and token[0] == "\\"
        is_known = token in (r"\r", r"\n", r"\t") or (is_escape and not token[1].isalnum())
        is_group = token in ("(?i", "(?:")
        if not (is_known or is_group or (len(token) == 1 and token != "\\")):
            _refuse(step or {"type": "Split"}, f"whose {token!r} is not supported")
        is_inside = token == "[" or (is_inside and token != "]")
        parts.append(token)
    return "".join(parts)


def _refuse(step, reason=""):
    raise CheckpointError(
        f"tokenizer.json's pre_tokenizer has the step {str(step)[:300]}"
        f"{f', {reason}' * bool(reason)}: BytePairTokenizer does not support it. Tokenize such "
        "text outside of the graph."
    )


def _as_keras_hub(parts):
    parts = tf.strings.regex_replace(parts, _BEFORE_WORD, rf"{_MARK}\0")
    parts = tf.strings.regex_replace(parts, _WORDS, BEHAVIORS["Isolated"])
    words = strings.split(parts, PART)  # ragged (P, W)
    ended = tf.strings.regex_replace(words.values, _LAST, BEHAVIORS["MergedWithNext"])
    ended = strings.split(ended, PART)  # ragged (W, 1 or 2)
    words = words.with_values(ended).merge_dims(1, 2)
    return strings.join(strings.keep(words, words.values != _MARK), PART)


# === LiteRT ===

# All texts are one long list of symbols, and flags say where texts and words begin. Most words are
# entries of the vocabulary and found in a trie; the others are merged.


class LiteBytePair:
    """`BytePairTokenizer` in integer operations.

    Args:
        ids: dict from entry to id.
        merges: list of str.
        made: `MadeEntries`.
        unknown_id: int, the id of bytes without an entry; None if all have one.
        add_prefix_space: bool, see `BytePairTokenizer`.
    """

    def __init__(self, ids, merges, made, unknown_id, add_prefix_space):
        self._add_prefix_space = add_prefix_space
        first = [BYTES[byte] for byte in range(256)]
        symbols, self._merge = symbols_and_merger(first, merges, made.ranks)
        self._ids = id_table(symbols, ids, made.ranks, unknown_id)
        self._words = Trie({spelling(entry): ids[entry] for entry in made.words})
        self._split = WordSplitter()

    def __call__(self, text):
        """Return ids, starts and ends of (B,) texts, (B, S) int32 each: places in characters."""
        data, row_splits = valid_bytes(text)
        is_first = flags(row_splits, tf.size(data))
        is_added = tf.zeros_like(is_first)
        if self._add_prefix_space:
            is_added = is_first & (data != 32)
            data, places = insert_spaces(data, is_added)
            is_added = flags(places, tf.size(data), is_added)
            row_splits = tf.gather(places, row_splits)
            is_first = flags(row_splits, tf.size(data))
        characters = count_before(((data < 0x80) | (data >= 0xC0)) & ~is_added)
        text_begins = tf.gather(characters, row_splits)
        of_character = value_after(characters, 1, 0) - 1
        begins = self._split(data, is_first)
        # A word of one byte stays of the tail.
        data, begins = data[: 1 - TAIL], begins[: 1 - TAIL]
        size = tf.size(data)
        starts = places_of(begins)
        nodes = self._words(data, starts, tf.concat([starts[1:], [size]], 0))
        known = tf.gather(self._words.numbers, nodes) + 1
        numbers = put(known, starts, size)

        words = tf.cumsum(tf.cast(begins, tf.int32)) - 1
        rare = places_of(tf.gather(known, words) == 0, [size - 1])
        pieces = self._merge(tf.gather(data, rare), tf.gather(words, rare))
        numbers += put(tf.gather(self._ids, pieces + 1), rare, size)

        is_there = numbers > 0
        at = places_of(is_there)
        ids = tf.gather(numbers, at) - 1
        row_splits = tf.gather(count_before(is_there), row_splits)
        ids = tf.RaggedTensor.from_row_splits(ids[:-1], row_splits, validate=False)
        places = places_in_texts(at, tf.ones_like(is_there), of_character, ids, text_begins)
        return ids, *map(ids.with_values, places)


class WordMerger:
    """Merges the bytes of words where TensorFlow Text is missing; for the arguments see above.

    Its `tokenize` takes (W,) strings and returns ragged (W, S) ids.
    """

    def __init__(self, ids, merges, ranks, unknown_id):
        first = [BYTES[byte] for byte in range(256)]
        symbols, self._merge = symbols_and_merger(first, merges, ranks)
        self._ids = id_table(symbols, ids, ranks, unknown_id)
        self.tokenize = traced(self._tokenize, autograph=False)

    def _tokenize(self, words):
        letters = strings.bytes_of(words)
        return self._merged(tf.cast(letters.values, tf.int32), letters.row_splits)

    def _merged(self, symbols, row_splits):
        """Return the ids of rows of symbols."""
        rows = tf.RaggedTensor.from_row_splits(symbols, row_splits, validate=False)
        row = tf.cast(strings.row_ids(rows), tf.int32)
        # One more symbol, which belongs to no word.
        symbols = tf.concat([symbols, [0]], 0)
        row = tf.concat([row, [tf.cast(rows.nrows(), tf.int32)]], 0)
        numbers = tf.gather(self._ids, self._merge(symbols, row) + 1)[:-1]
        is_there = numbers > 0
        ids = tf.boolean_mask(numbers, is_there) - 1
        before = tf.concat([[0], tf.cumsum(tf.cast(is_there, tf.int64))], 0)
        return tf.RaggedTensor.from_row_splits(ids, tf.gather(before, row_splits), validate=False)


def symbols_and_merger(first, merges, ranks):
    """Return a dict from symbol, those of words `first`, to its number, and their `PairMerger`."""
    made = sorted((entry for entry in ranks if ranks[entry] >= 0), key=ranks.get)
    symbols = {symbol: number for number, symbol in enumerate([*first, *made])}
    pairs = [merges[ranks[entry]].split(" ") for entry in made]
    return symbols, PairMerger(len(first), [(symbols[a], symbols[b]) for a, b in pairs])


def id_table(symbols, ids, ranks, unknown_id):
    """Return 1 + the id of each symbol; first 0, for what became part of another symbol."""
    symbol_ids = [ids[symbol] if symbol in ranks else unknown_id or 0 for symbol in symbols]
    return tf.constant([0, *(1 + id for id in symbol_ids)], tf.int32)


# Kinds of characters. ONE_SPACE is one that words begin with; EDGE is beyond the text.
OTHER, LETTER, NUMBER, WHITE, ONE_SPACE, EDGE = range(6)


class WordSplitter:
    """Finds where words begin, by the rules of GPT-2's regular expression."""

    def __init__(self):
        kinds = np.zeros(0x110000, np.int32)
        for kind, ranges in ((LETTER, LETTERS), (NUMBER, NUMBERS), (WHITE, WHITE_SPACE)):
            kinds[[ord(character) for character in unicode_ranges.characters(ranges)]] = kind
        kinds[32] = ONE_SPACE
        self._of_ascii = tf.constant(np.where(np.arange(256) < 0x80, kinds[:256], 0), tf.int32)
        self._kinds = CodePointTable(kinds)
        self._rules = tf.constant(_begins_word(*np.indices([6, 6, 6])).reshape(-1))

    def __call__(self, data, is_first):
        """Flag where words begin; `data` ends with `TAIL` spaces, `is_first` flags row splits."""
        places, code, size, _, inside = characters(data, is_first)
        kind = tf.gather(self._of_ascii, data)
        # All bytes of a character are of its kind.
        of_code = tf.where(size > 1, self._kinds(code), 0)
        at = tf.concat([places, places + 1, places + 2, places + 3], 0)
        of_code = tf.concat([of_code, *(tf.where(size > n, of_code, 0) for n in (1, 2, 3))], 0)
        kind += put(of_code, at, tf.size(data))
        before = tf.where(is_first, EDGE, value_before(kind, 1, EDGE))
        after = tf.where(value_after(is_first, 1, True), EDGE, value_after(kind, 1, EDGE))
        begins = tf.gather(self._rules, before * 36 + kind * 6 + after)
        # What follows a white space of several bytes follows its last byte.
        ends = places + size - 1
        ends_at_word = (tf.gather(kind, places) == WHITE) & (size > 1)
        ends_at_word &= tf.gather(after, ends) < WHITE
        begins = (begins & ~inside) | flags(places, tf.size(data), ends_at_word)
        return self._part_contractions(data, is_first, begins)

    def _part_contractions(self, data, is_first, begins):
        """Make 's, 't, 'm, 'd, 're, 've and 'll words if an apostrophe begins one."""
        size = tf.size(data)
        places = places_of(begins & (data == ord("'")), size[tf.newaxis] - TAIL)
        first, second = (
            tf.where(tf.gather(is_first, places + n), 0, tf.gather(data, places + n))
            for n in (1, 2)
        )
        short = (
            (first == ord("s")) | (first == ord("t")) | (first == ord("m")) | (first == ord("d"))
        )
        long = (second == ord("e")) & ((first == ord("r")) | (first == ord("v")))
        long |= (second == ord("l")) & (first == ord("l"))
        length = tf.where(short, 2, tf.where(long & (first > 0), 3, 0))
        begins &= ~flags(places + 1, size, length > 0)
        return begins | flags(places + length, size, length > 0)


def _begins_word(before, kind, after):
    """Return whether a character begins a word, given its kind and those of its neighbours."""
    # A space goes with the word after it.
    in_word = (before == EDGE) | ((before != kind) & (before != ONE_SPACE))
    # The last of several white spaces before a word is split from the others.
    white, white_before = ((x == WHITE) | (x == ONE_SPACE) for x in (kind, before))
    return np.where(white, ~white_before | (after < WHITE), in_word)
