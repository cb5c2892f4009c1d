"""GPT-1's BPE: lower-cased words of letters that end in `</w>`."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from keras_lm.tensorflow import tf
from keras_lm.tokenizers import strings, wordpiece
from keras_lm.tokenizers.byte_pair import (
    MAX_INT,
    PART,
    BytePairTokenizer,
    MadeEntries,
    WordMerger,
    id_table,
    symbols_and_merger,
)
from keras_lm.tokenizers.byte_pair_files import END
from keras_lm.tokenizers.lite_operations import (
    CodePointTable,
    Letters,
    count_before,
    flags,
    places_in_texts,
    places_of,
    value_after,
    value_before,
    without_outer_white_space,
)
from keras_lm.tokenizers.sentence_piece_model import check_merges, last_ranks, ranks_of
from keras_lm.tokenizers.strings import valid_utf8
from keras_lm.tokenizers.tokenizer import traced
from keras_lm.tokenizers.wordpiece import SPACES, WORD_ENDS
from keras_lm.utils.argument_types import PathLike, Tensor

# Cleaning drops these two from text, as it does all of U+FDD0 to U+FDEF.
UNKNOWN_LETTER = "\ufdd0"  # any letter that the vocabulary lacks
LAST = "\ufdd1"  # what `</w>` is while words are merged

FIRST_OF_ALL = 1.0  # a score above those of all merges


class GPTTokenizer(BytePairTokenizer):
    """GPT-1's tokenizer, in the graph: clean and lower-case, split into words, merge letters.

    Words are split like in Hugging Face's tokenizer without ftfy and spaCy: by the rules of uncased
    BERT. OpenAI used spaCy, which differs for contractions, abbreviations and the like, and cannot
    run in a graph. A letter that the vocabulary lacks becomes one unknown token. The noncharacters
    U+FDD0 to U+FDEF vanish: two of them have a meaning inside. A word of n letters needs O(n log n)
    steps and O(n) memory.

    Args:
        vocabulary: list of str, the entries, or the path of a `vocab.json`. Those that end a word
            end in `</w>`.
        merges: as in `BytePairTokenizer`.
        unknown_token: str, for unknown letters.
        **arguments: other arguments of `BytePairTokenizer`, except `add_prefix_space` and
            `whole_words`.

    Raises:
        FileNotFoundError: if a vocabulary file does not exist.
        ValueError: if the vocabulary is empty, holds an entry twice or lacks a special token, or if
            the merges do not fit it.

    Example:

        tokenizer = GPTTokenizer.from_preset("path/to/gpt")
        ids = tokenizer(["Hello world!"])
        tokenizer.detokenize(ids)            # [b"hello world !"]

    Reference: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training".
    """

    KIND = END
    PUBLISHED_FILES = ()
    MADE_LATER = BytePairTokenizer.MADE_LATER | dict.fromkeys(
        ("_letters", "_num_letters"), "_build"
    )

    def __init__(
        self,
        vocabulary: Sequence[str] | PathLike,
        merges: Sequence[str],
        unknown_token: str = "<unk>",
        **arguments: Any,
    ):
        if unknown_token is None:
            raise ValueError("`unknown_token` is None, but GPT-1's BPE needs one; name its entry.")
        if arguments.pop("add_prefix_space", False):
            raise ValueError("`add_prefix_space` is True, but GPT-1's words hold no spaces.")
        if arguments.get("normalization"):
            raise ValueError("`normalization` is given, but GPT-1's BPE cleans text as BERT does.")
        if arguments.get("pre_tokenizer") or arguments.get("ignore_merges"):
            raise ValueError("`pre_tokenizer` and `ignore_merges` are not for GPT-1's BPE.")
        if arguments.get("whole_words"):
            self._entries_of_word(None)
        super().__init__(vocabulary, merges, unknown_token=unknown_token, **arguments)

    def _check(self, whole):
        check_merges(self._rules.merges, self._vocabulary.tokens, whole, END)

    def _build(self):
        whole, entries = self._whole_entries(), self._vocabulary.tokens
        ranks = ranks_of(self._rules.merges)
        symbols = {t: _symbols(t) for t in entries if t not in whole and t != END}
        last = last_ranks(symbols, ranks)
        spellings = [t if t in whole else t.replace(END, " ") for t in entries]
        words = {
            t.removesuffix(END): self._vocabulary.ids[t]
            for t in last
            if t.endswith(END) and t != END
        }
        self._made = MadeEntries(last, set(words))
        self._letters = "".join(
            sorted({letter.removesuffix(END) for word in symbols.values() for letter in word})
        )
        # The last letter of a word and its end are one symbol; in SentencePiece they are two, which
        # join before anything else. Symbols that are not entries come last, as unknown tokens.
        alone = [*self._letters, UNKNOWN_LETTER]
        scores = dict.fromkeys(alone, 0.0) | {letter + END: FIRST_OF_ALL for letter in alone}
        scores = {t: -float(rank) for t, rank in last.items()} | scores
        pieces = [
            (_inner(t), scores.pop(t)) if t in scores and t not in whole else None for t in entries
        ]
        pieces += [(_inner(t), score) for t, score in scores.items()]
        self._make_tables(spellings, {w.encode(): i for w, i in words.items()}, pieces, None)
        letters = [len(spelling.strip()) for spelling in spellings]
        letters[self.special_id("unknown")] = 1
        self._num_letters = tf.constant(letters, tf.int64)

    def _entries_of_word(self, word):
        raise ValueError("GPT-1's BPE makes words by merges alone: it cannot take further ones.")

    @property
    def with_space(self) -> Self:
        return self  # no piece has a space

    def _tokenize_with_offsets(self, text, special=()):
        # Tokens cover a clean part without a gap. So it is enough to know how many letters each
        # token has, and how many each character becomes.
        tokens = [*self._rules.added_tokens, *special]
        parts = self._part_tokens(valid_utf8(text), tokens)  # ragged (B, P)
        is_token = self._is_token(parts.values)
        ids = self._encode(self._strip_tokens(parts.values, tokens), with_tokens=True)  # (P, S)
        texts = tf.where(is_token, tf.strings.substr(parts.values, 1, MAX_INT), parts.values)
        characters = tf.strings.unicode_split(texts, "UTF-8")  # ragged (P, N)
        characters = characters.with_row_splits_dtype(tf.int64)
        left = wordpiece.visible_lengths(characters, self._clean, "UTF8_CHAR")
        # Of a part that is a token, everything is left, and the token covers it.
        in_token = tf.gather(is_token, strings.row_ids(characters))
        left = tf.where(in_token, tf.ones_like(left), left)
        of_part = strings.row_ids(ids)
        sizes = tf.where(
            tf.gather(is_token, of_part),
            tf.gather(characters.row_lengths(), of_part),
            tf.gather(self._num_letters, ids.values),
        )
        ids, characters = (parts.with_values(x).merge_dims(1, 2) for x in (ids, characters))
        return ids, *strings.covering(ids.with_values(sizes), characters, left)

    def _part_words(self, parts):
        # Most rows are ASCII without control characters, with nothing to clean.
        parts = strings.where_not(tf.strings.lower(parts), r"[\t\n\r -~]*", self._clean)
        parts = tf.strings.regex_replace(parts, f"[{SPACES}]+", PART)
        return tf.strings.regex_replace(parts, f"[{WORD_ENDS}]", PART + rb"\0" + PART)

    def _clean(self, parts):
        return wordpiece.clean(parts, lowercase=True, strip_accents=True)

    def _merge_words(self, words):
        known = "".join(rf"\x{{{ord(letter):X}}}" for letter in self._letters)
        words = tf.strings.regex_replace(words, f"[^{known}]", UNKNOWN_LETTER)
        return self._merge.tokenize(words + LAST)

    def _make_merger(self):
        ids, unknown = self._vocabulary.ids, self.special_id("unknown")
        return LetterMerger(self._letters, ids, self._rules.merges, self._made.ranks, unknown)

    def tokenize_lite(self, text: Tensor) -> Any:
        """Return ids like `BytePairTokenizer.tokenize_lite`.

        They also differ for letters with several of the rare accents that are not removed, in an
        order that is not Unicode's canonical one.
        """
        return super().tokenize_lite(text)

    def _make_lite(self):
        return LiteGPT(
            self._letters,
            self._vocabulary.ids,
            self._rules.merges,
            self._made.ranks,
            self.special_id("unknown"),
            self._part_words,
        )

    def _begins_word(self, token):
        return False

    def _ends_word(self, token):
        return token.endswith(END)

    def _detokenize(self, ids, partial=False):
        return tf.strings.strip(strings.join(tf.gather(self._spellings, ids)))

    def _spellings_alone(self):
        return self._spellings.numpy().tolist(), without_outer_white_space

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        of_bytes = ("add_prefix_space", "normalization", "whole_words", "pre_tokenizer")
        for name in (*of_bytes, "ignore_merges"):
            del config[name]
        return config


def _symbols(entry):
    """Return the letters of an entry, the last one with the end of the word."""
    letters = list(entry.removesuffix(END))
    if entry.endswith(END):
        letters[-1] += END
    return tuple(letters)


def _inner(entry):
    return entry.removesuffix(END) + LAST if entry.endswith(END) else entry


# === LiteRT ===


def first_symbols(letters):
    """Return what merging begins with: letters, the same at the ends of words, and a space."""
    letters = [*letters, UNKNOWN_LETTER]
    return [*letters, *(letter + END for letter in letters), " "]


class LetterMerger(WordMerger):
    """Merges the letters of words, which end with `LAST`, as `WordMerger` does bytes."""

    def __init__(self, letters, ids, merges, ranks, unknown_id):
        first = first_symbols(letters)
        symbols, self._merge = symbols_and_merger(first, merges, ranks)
        self._ids = id_table(symbols, ids, ranks, unknown_id)
        self._num_letters = len(letters) + 1
        numbers = np.full(0x110000, symbols[UNKNOWN_LETTER], np.int32)
        numbers[[*map(ord, letters)]] = [symbols[letter] for letter in letters]
        self._numbers = CodePointTable(numbers)
        self.tokenize = traced(self._tokenize, autograph=False)

    def _tokenize(self, words):
        codes = tf.strings.unicode_decode(words, "UTF-8").with_row_splits_dtype(tf.int64)
        is_end = codes.values == ord(LAST)
        symbols = self._numbers(codes.values)
        symbols += tf.where(value_after(is_end, 1, False), self._num_letters, 0)
        row_splits = codes.row_splits - tf.range(codes.nrows() + 1)
        return self._merged(tf.boolean_mask(symbols, ~is_end), row_splits)


class LiteGPT:
    """`GPTTokenizer` in integer operations.

    Args:
        letters: str, all letters that the vocabulary has.
        ids, merges, unknown_id: see `LiteBytePair`.
        ranks: see `MadeEntries`.
        part_words: function from (N,) strings to clean ones with the byte 0xFF between words.
    """

    def __init__(self, letters, ids, merges, ranks, unknown_id, part_words):
        # The letters and an unknown one, the same at the ends of words, and what splits words.
        first = first_symbols(letters)
        self._num_letters, self._space = len(letters) + 1, len(first) - 1
        symbols, self._merge = symbols_and_merger(first, merges, ranks)
        self._ids = id_table(symbols, ids, ranks, unknown_id)
        numbers = {letter: symbols[letter] for letter in [*letters, UNKNOWN_LETTER, " "]}
        self._letters = Letters(numbers, symbols[UNKNOWN_LETTER], part_words, lowercase=True)

    def __call__(self, text):
        """Return ids, starts and ends of (B,) texts, (B, S) int32 each: places in characters."""
        symbols, row_splits, of_character, text_begins = self._letters(text)
        size = tf.size(symbols)
        is_space = symbols == self._space
        is_first = flags(row_splits, size) | is_space | value_before(is_space, 1, True)
        is_last = value_after(is_first, 1, True) & ~is_space
        symbols += tf.where(is_last, self._num_letters, 0)
        pieces = self._merge(symbols, tf.cumsum(tf.cast(is_first, tf.int32)) - 1)
        numbers = tf.where(is_space, 0, tf.gather(self._ids, pieces + 1))

        is_there = numbers > 0
        at = places_of(is_there, [size - 1])
        ids = tf.gather(numbers, at) - 1
        row_splits = tf.gather(count_before(is_there), row_splits)
        ids = tf.RaggedTensor.from_row_splits(ids[:-1], row_splits, validate=False)
        places = places_in_texts(at, ~is_space, of_character, ids, text_begins)
        return ids, *map(ids.with_values, places)
