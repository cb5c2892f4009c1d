"""Byte-level BPE: the tokenizer of GPT-2, RoBERTa and BART."""

import functools
import os
import types
from collections.abc import Sequence
from typing import Any, Self

from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.tokenizers import byte_pair_files, byte_pair_offsets, published_files, strings
from keras_lm.tokenizers.byte_pair_files import last_ranks
from keras_lm.tokenizers.byte_pair_lite import LiteBytePair
from keras_lm.tokenizers.byte_pair_words import PART, S, WordRules
from keras_lm.tokenizers.sentence_piece_model import merging_model
from keras_lm.tokenizers.sentence_piece_resource import SentencePieceModel
from keras_lm.tokenizers.strings import drop_unfinished, regex_literal, valid_utf8
from keras_lm.tokenizers.tokenizer import Tokenizer, lookup_table
from keras_lm.tokenizers.vocabulary import strings_of
from keras_lm.utils.argument_types import PathLike, Tensor

# Begins a part that is a token; valid UTF-8 never has it, and no regular expression matches it.
TOKEN = b"\xfe"

BYTES = byte_pair_files.BYTES
SPACE, LINE_ENDS = BYTES[0x20], (BYTES[0x0A], BYTES[0x0D])
NEVER_IN_UTF8 = (0xC0, 0xC1, *range(0xF5, 0x100))
MAX_INT = 2**31 - 1


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
        normalization: str, `"NFC"`, `"NFD"`, `"NFKC"` or `"NFKD"`, Unicode's form in which text is
            put first, or None.
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
        self.add_prefix_space = bool(add_prefix_space)
        self.normalization = strings.checked_form(normalization)
        self.ignore_merges = bool(ignore_merges)
        steps = [*(pre_tokenizer or [])]
        entries = self._vocabulary.entries
        # (A namespace, because a module would track bare lists.)
        self._rules = types.SimpleNamespace(
            merges=strings_of("merges", merges),
            added_tokens=entries("added_tokens", added_tokens),
            lstrip_tokens=entries("lstrip_tokens", lstrip_tokens),
            rstrip_tokens=entries("rstrip_tokens", rstrip_tokens),
            whole_words=entries("whole_words", whole_words),
            pre_tokenizer=steps,
            split=WordRules(steps or [{"type": "ByteLevel"}]),
            lite=None,  # made when a `.tflite` needs it
        )
        unused = filter(published_files.UNUSED.fullmatch, self._vocabulary.tokens)
        self._build({*self._vocabulary.all_special_tokens, *self._rules.added_tokens, *unused})

    def _build(self, whole):
        entries = self._vocabulary.tokens
        needless = entries if self.ignore_merges else self._rules.whole_words
        ranks = byte_pair_files.check_merges(self._rules.merges, entries, whole.union(needless))
        last = last_ranks({t: tuple(t) for t in entries if t not in whole}, ranks)
        self._rules.last = last
        spellings = [
            token.encode() if token in whole else byte_pair_files.spelling(token)
            for token in entries
        ]
        # Possible words: entries in valid UTF-8 that result from merging their own bytes, and those
        # that need no merges.
        possible = {*last, *self._rules.whole_words}
        if self.ignore_merges:
            possible = {token for token in entries if token not in whole}
        self._rules.possible = possible
        words = {spellings[i]: i for i, t in enumerate(entries) if t in possible}
        words = {word: i for word, i in words.items() if _is_utf8(word)}
        missing = [c for b, c in BYTES.items() if c not in last and b not in NEVER_IN_UTF8]
        if missing and "unknown" not in self.special_tokens:
            raise ValueError(
                f"`vocabulary` lacks {len(missing)} of the bytes, such as {missing[0]!r}, and no "
                "`unknown_token` stands for them. Add them, or name an unknown token."
            )
        pieces = [(t, -float(last[t])) if t in last else None for t in entries]
        pieces += [(character, 0.0) for character in missing]
        self._make_tables(spellings, words, pieces, BYTES)

    def _make_tables(self, spellings, words, pieces, byte_characters):
        """Make the graph's tables; pieces after the vocabulary's are unknown tokens."""
        whole = {*self._vocabulary.all_special_tokens, *self._rules.added_tokens}
        words = words | {TOKEN + t.encode(): self._vocabulary.ids[t] for t in whole}
        self._has_unknown = len(pieces) > self.vocabulary_size
        if not IS_INSTALLED:
            return
        with tf.init_scope():
            self._merge = SentencePieceModel(merging_model(pieces, byte_characters))
            self._spellings = tf.constant(spellings, tf.string)  # (V,)
            self._words = lookup_table(words, -1)

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
        return strings.in_form(text, self.normalization)

    def _tokenize_with_offsets(self, text, special=()):
        return byte_pair_offsets.with_offsets(self, text, special)

    @functools.cached_property
    def with_space(self):
        if self.add_prefix_space:
            return self
        other = object.__new__(type(self))  # with the same tables, unlike `copy`
        other.__dict__.update(self.__dict__)
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
        found = tf.strings.substr(tf.gather_nd(parts, rows), 1, MAX_INT)
        names = "|".join(regex_literal(token) for token in _longest_first(tokens))
        found = tf.strings.regex_replace(found, f"^[{S}]*({names})[{S}]*$", r"\1")
        return tf.tensor_scatter_nd_update(parts, rows, TOKEN + found)

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

    def tokenize_lite(self, text: Tensor) -> Any:
        """Return ragged (B, S) ids of (B,) texts like a call, with operations that LiteRT has.

        The ids are the same for all text without added tokens, which are not found, if it is in the
        form of `normalization` already, as nearly all text is in NFC. Words are GPT-2's, also where
        KerasHub would split white space otherwise. A word takes at most as many rounds of merging
        as it has bytes; memory grows linearly with the text.

        Raises:
            ValueError: if `pre_tokenizer` is given, whose expressions LiteRT cannot run.
        """
        return self.tokenize_lite_with_offsets(text)[0]

    def tokenize_lite_with_offsets(self, text: Tensor) -> Any:
        """Return what `tokenize_lite` does, and where tokens start and end in characters."""
        if self._rules.pre_tokenizer and not self._rules.split.is_keras_hub:
            raise ValueError(
                "BytePairTokenizer has a pre_tokenizer of its own, whose regular expressions "
                "LiteRT cannot run. Export as a SavedModel instead."
            )
        if self._rules.lite is None:
            with tf.init_scope():
                self._rules.lite = self._make_lite()
        return self._rules.lite(text)

    def _make_lite(self):
        return LiteBytePair(
            self._vocabulary.ids,
            self._rules.merges,
            self._rules.possible,
            self._rules.last,
            self.special_id("unknown") if self._has_unknown else None,
            self.add_prefix_space,
        )

    def _begins_word(self, token):
        return token[:1] in (SPACE, *LINE_ENDS)

    def _ends_word(self, token):
        return token[-1:] in LINE_ENDS

    # === Ids to text ===

    def detokenize(self, ids: Tensor, partial: bool = False) -> Tensor:
        """Turn ids into text as `Tokenizer` does; bytes that are not UTF-8 become U+FFFD.

        `partial=True` is for ids that will be continued: if they end within a character, its bytes
        are left out, so that the text is a prefix of the continued text.
        """
        return self._by_text(ids, lambda ids: self._detokenize(ids, partial))

    def _detokenize(self, ids, partial=False):
        text = strings.join(tf.gather(self._spellings, ids))
        return valid_utf8(drop_unfinished(text) if partial else text)

    # === Files ===

    def get_config(self):
        names = ("added_tokens", "lstrip_tokens", "rstrip_tokens", "whole_words")
        return super().get_config() | {
            **{name: list(getattr(self._rules, name)) for name in names},
            "add_prefix_space": self.add_prefix_space,
            "normalization": self.normalization,
            "pre_tokenizer": self._rules.pre_tokenizer or None,
            "ignore_merges": self.ignore_merges,
            "template": self.template,
        }

    def save_assets(self, folder):
        byte_pair_files.write(folder, self._vocabulary.ids, self._rules.merges)

    @classmethod
    def from_assets(cls, folder, config):
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
