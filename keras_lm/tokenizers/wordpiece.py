"""WordPiece: the tokenizer of BERT and of the models that descend from it.

Shapes: B texts, N characters, W words, S pieces of a text, T pieces of all texts.
"""

import dataclasses
import functools
import os
import re
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from keras_lm.tensorflow import IS_INSTALLED, tf, tf_text
from keras_lm.tokenizers import strings, unicode_ranges
from keras_lm.tokenizers.lite_operations import (
    CodePointTable,
    Letters,
    Trie,
    cleaning,
    count_before,
    flags,
    joined_pieces,
    places_in_texts,
    places_of,
    put,
    value_before,
    without_first_space,
    without_outer_white_space,
)
from keras_lm.tokenizers.strings import (
    has_text_operations,
    regex_literal,
    size,
    valid_utf8,
    where_not,
)
from keras_lm.tokenizers.tokenizer import Tokenizer, folded, normalized, traced
from keras_lm.tokenizers.unicode_ranges import character_class
from keras_lm.tokenizers.vocabulary import read_lines_of_entries
from keras_lm.utils.argument_types import PathLike, Tensor

VOCABULARY_FILES = (
    "vocab.txt",
    "vocabulary.txt",
    os.path.join("assets", "tokenizer", "vocabulary.txt"),
    os.path.join("assets", "vocab.txt"),
)

MOST_WORDS = 2**19  # ten times what published vocabularies have; the matcher takes seconds for it
LONGEST_USUAL = 60  # characters of a word, which the matcher always takes: fewer than 256 bytes

# Unicode noncharacters. Cleaning drops them from text, so that inside they can stand for tokens.
SENTINELS = r"\x{FDD0}-\x{FDEF}"
LONG_WORD = "\ufdda"  # before a word; in no vocabulary, hence the word is one unknown token
MARK = "\ufddb"  # around a token that is spelled in text
NO_LETTER = "\U0001fffe"  # never a character; a letter to the matcher

DROPPED = character_class(unicode_ranges.BERT_DROPPED)
MARKS = character_class(unicode_ranges.BERT_MARKS)
SPACES = character_class(unicode_ranges.WHITE_SPACE)
NO_PUNCTUATION = character_class(unicode_ranges.NO_PUNCTUATION_OF_TF_TEXT)
PARTING_MARKS = unicode_ranges.characters(unicode_ranges.PUNCTUATION_OF_TF_TEXT)

# Characters that end a word: white space, punctuation, and CJK ideographs.
WORD_ENDS = (
    SPACES
    + character_class(unicode_ranges.BERT_PUNCTUATION)
    + character_class("3400-4DBF 4E00-9FFF F900-FAFF 20000-2A6DF 2A700-2CEAF 2F800-2FA1F")
)


# What follows are classes, because a `tf.Module` would track bare lists and dicts.


@dataclasses.dataclass(frozen=True)
class Rules:
    """How `WordPieceTokenizer` cleans text and splits it into words, by its vocabulary.

    Args:
        plain: str, an expression for text in which there is nothing to clean: ASCII without control
            characters and without words that are too long.
        joined: str, the signs at which the matcher would split words, though no entry has them.
        parting: str, the characters that end a word.
        words: list of str, the entries as the matcher knows them: special tokens, and entries that
            clean text never has, have names that cannot be typed.
    """

    plain: str
    joined: str
    parting: str
    words: list[str]

    @classmethod
    def of(cls, tokens, hidden, max_word_length):
        """Return the rules for a vocabulary, of which text may not spell the `hidden` entries."""
        letters = set("".join(tokens))
        # (The matcher would find "a b" across two words, and fails on NUL.)
        unclean = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ufdd0-\ufdef]|^$")
        return cls(
            plain=rf"[\t\n\r ]*(?:[!-~]{{1,{max_word_length}}}(?:[\t\n\r ]+|$))*",
            joined=regex_literal([*(c for c in PARTING_MARKS if c not in letters), NO_LETTER]),
            parting=WORD_ENDS + regex_literal(c for c in PARTING_MARKS if c in letters),
            words=[
                sentinel(i) if token in hidden or unclean.search(token) else token
                for i, token in enumerate(tokens)
            ],
        )


@dataclasses.dataclass(frozen=True)
class AddedTokens:
    """The tokens that are found in text before it is split.

    Args:
        tokens, normalized: lists of str, the arguments `added_tokens` and `normalized_tokens`.
        spellings: dict from these and the special tokens to what clean text has for them.
    """

    tokens: list[str]
    normalized: list[str]
    spellings: dict[str, str]


class WordPieceTokenizer(Tokenizer):
    """BERT's tokenizer, in the graph: clean, split at white space and punctuation, match pieces.

    The ids equal those of BERT's own code and of Hugging Face's `tokenizers`, also for hostile
    text: invalid UTF-8 is replaced, control characters vanish, and a word of more than
    `max_word_length` characters becomes one unknown token. Where these two disagree, marks and
    punctuation follow `tokenizers`; a capital sigma at the end of a word becomes a final sigma, and
    U+2B820 to U+2B91F are ideographs, as in BERT's own code. Unlike in both, the noncharacters
    U+FDD0 to U+FDEF vanish: inside, they stand for special tokens, which no text may spell.

    Args:
        vocabulary: list of str, or the path of a `vocab.txt` with one entry per line.
        lowercase: bool. Lower-case text first, as uncased models need.
        strip_accents: bool. Remove the accents of letters. None means the same as `lowercase`.
        cls_token, sep_token, pad_token, mask_token: str, or None if the vocabulary has none.
        unknown_token: str, for words that the pieces cannot spell.
        additional_special_tokens: list of str, entries that plain text is never tokenized to.
        added_tokens: list of str, entries that are found anywhere in text before it is split.
        normalized_tokens: list of str, the special tokens that are found in clean text, in another
            case, too, like those added; others are found in the text as it is.
        max_word_length: int, 1 to 1000, in characters.
        clean_up: bool, or `"punctuation"`. Leave out the space before punctuation and English
            clitics in what `detokenize` returns, or before punctuation alone.
        keras_hub: bool. Whether words are split and folded as KerasHub does, for its presets: at
            control characters, and by NFKC case folding.
        template: see `Tokenizer`.

    Raises:
        FileNotFoundError: if a vocabulary file does not exist.
        ValueError: as `Tokenizer`, or if the file is not UTF-8.

    Example:

        tokenizer = WordPieceTokenizer(
            ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "un", "##aff", "##able", "!"],
            lowercase=True,
        )
        ids = tokenizer(["Unaffable!"])      # [[5, 6, 7, 8]]
        tokenizer.detokenize(ids)            # [b"unaffable!"]

    Reference: Wu et al. 2016, "Google's Neural Machine Translation System", arXiv:1609.08144;
    Devlin et al. 2018, "BERT", arXiv:1810.04805. The matching is Song et al. 2021, "Fast WordPiece
    Tokenization", arXiv:2012.15524, as TF Text implements it.
    """

    ROLES = ("cls", "sep", "pad", "mask", "unknown")
    PUBLISHED_FILES = VOCABULARY_FILES
    has_offsets_of_special = True
    MADE_LATER = Tokenizer.MADE_LATER | {"_trace": "_make_trace", "_match": "_make_graph"}

    def __init__(
        self,
        vocabulary: Sequence[str] | PathLike,
        lowercase: bool,
        strip_accents: bool | None = None,
        cls_token: str | None = "[CLS]",
        sep_token: str | None = "[SEP]",
        pad_token: str | None = "[PAD]",
        mask_token: str | None = "[MASK]",
        unknown_token: str = "[UNK]",
        additional_special_tokens: Sequence[str] = (),
        added_tokens: Sequence[str] = (),
        normalized_tokens: Sequence[str] = (),
        max_word_length: int = 100,
        clean_up: bool | str = True,
        keras_hub: bool = False,
        template: Sequence[str] | None = None,
        name: str | None = None,
    ):
        if isinstance(vocabulary, (str, os.PathLike)):
            vocabulary = read_lines_of_entries(vocabulary)
        if unknown_token is None:
            raise ValueError("`unknown_token` is None, but WordPiece needs one; name its entry.")
        if not isinstance(max_word_length, int) or not 1 <= max_word_length <= 1000:
            raise ValueError(
                f"`max_word_length` is {max_word_length!r}; it must be an integer from 1 to 1000."
            )
        roles = dict(zip(self.ROLES, (cls_token, sep_token, pad_token, mask_token, unknown_token)))
        super().__init__(vocabulary, roles, additional_special_tokens, template, name=name)
        added_tokens = self._vocabulary.entries("added_tokens", added_tokens)
        normalized_tokens = self._vocabulary.entries("normalized_tokens", normalized_tokens)
        for token in self._vocabulary.tokens:
            if "\n" in token or token.endswith("\r"):
                raise ValueError(
                    f"`vocabulary` entry {token!r} has a line end, which a vocab.txt cannot store "
                    "and no text can match; rename the entry."
                )
        self.lowercase: bool = bool(lowercase)
        self.strip_accents: bool = self.lowercase if strip_accents is None else bool(strip_accents)
        self.max_word_length: int = int(max_word_length)
        self.clean_up = strings.checked_clean_up(clean_up)
        self.keras_hub: bool = bool(keras_hub)
        # The matcher knows the unknown token by its name.
        hidden = {*self._vocabulary.all_special_tokens, *added_tokens} - {unknown_token}
        self._rules = Rules.of(self._vocabulary.tokens, hidden, self.max_word_length)
        spellings = {}
        if IS_INSTALLED:
            with tf.init_scope():
                # Those found in clean text have to be spelled so as well; offsets are of it.
                clean = [*added_tokens, *self._vocabulary.all_special_tokens]
                texts = self._clean(tf.constant(clean, tf.string)).numpy()
                spellings = {token: text.decode() for token, text in zip(clean, texts)}
        self._added = AddedTokens(added_tokens, normalized_tokens, spellings)
        check_number(self._rules.words)
        if IS_INSTALLED and max(map(len, self._rules.words)) > LONGEST_USUAL:
            self._make("_make_trace", "_trace")  # which may find one too long

    def _make_trace(self):
        """Make the matcher, which makes the graph's function: clean (B,) texts → ids, places."""
        words = self._rules.words
        # Cleaning limits words in characters, of up to four bytes; sentinels have to fit, too.
        longest = max(4 * self.max_word_length, 3 * len(str(len(words))))
        longest = KERAS_HUB_LONGEST if self.keras_hub else longest
        if not has_text_operations():
            parting = "" if self.keras_hub else self._rules.parting
            matcher = WordMatcher(words, self.special_id("unknown"), longest, parting)
            self._trace = functools.partial(traced, matcher, autograph=False)
            return
        matcher = make_matcher(
            words,
            max_bytes_per_word=longest,
            no_pretokenization=self.keras_hub,
            token_out_type=tf.int32,
            unknown_token=self.special_tokens["unknown"],
        )
        self._trace = functools.partial(traced, matcher.tokenize_with_offsets)

    def _make_graph(self):
        self._match = self._trace()

    def _entries_of_word(self, word):
        text = tf.constant([word])
        return [self._clean(tf.strings.lower(text) if self.lowercase else text)[0].numpy().decode()]

    def _grown(self, entries, config):
        return type(self)([*self._vocabulary.tokens, *entries], **config)

    def _tokenize(self, text, special):
        if self.keras_hub:
            return self._pieces_of_words(text, special)[0]
        return self._match(self._with_special(text, special))[0]

    def _with_special(self, text, special):
        """Return clean text with names that cannot be typed in place of all tokens spelled."""
        raw = [token for token in special if token not in self._added.normalized]
        clean = [token for token in special if token in self._added.normalized]
        if raw:
            text = tf.strings.regex_replace(valid_utf8(text), f"[{SENTINELS}]+", "")
            text = self._replace_tokens(text, raw)
        return self._prepare(text, [*self._added.tokens, *clean], keep_sentinels=bool(raw))

    def _pieces_of_words(self, text, special):
        """Return the ids of (B,) texts, ragged (B, S), and the bytes of each in its word (T,)."""
        text = tf.strings.regex_replace(valid_utf8(text), f"[{SENTINELS}]+", "")
        text = self._replace_tokens(text, [*special, *self._added.tokens])
        words = split_as_keras_hub(text, self.lowercase, self.strip_accents)
        ids, starts, ends = self._match(words.values)  # ragged (W, S)
        return words.with_values(ids).merge_dims(1, 2), (ends - starts).values

    def _prepare(self, text, tokens, keep_sentinels):
        """Return clean text with names that cannot be typed in place of tokens that it spells."""
        spellings = [self._added.spellings[token] for token in tokens]

        def replace(rows):
            return self._replace_tokens(rows, tokens, spellings)

        def clean(rows):
            return self._mark_long_words(replace(self._clean(rows, keep_sentinels)))

        text = tf.strings.lower(text) if self.lowercase else text
        # Most rows of ordinary text are plain.
        return replace(where_not(text, self._rules.plain, clean))

    def _clean(self, text, keep_sentinels=False):
        dropped = DROPPED if keep_sentinels else DROPPED + SENTINELS
        text = clean(valid_utf8(text), self.lowercase, self.strip_accents, dropped)

        # Rows with characters that the matcher misjudges are rare.
        def correct(rows):
            rows = tf.strings.regex_replace(rows, f"[{NO_PUNCTUATION}]", r" \0 ")
            return tf.strings.regex_replace(rows, f"[{self._rules.joined}]", NO_LETTER)

        return where_not(text, f"[^{NO_PUNCTUATION}{self._rules.joined}]*", correct)

    def _mark_long_words(self, text):
        short = rf"\s*(?:\S{{1,{self.max_word_length}}}(?:\s+|$))*"
        return where_not(text, short, self._part_and_mark)

    def _part_and_mark(self, text):
        # All word ends but spaces are split off first: a pattern that counts characters of such a
        # large class would need more memory than the regular expression engine has.
        text = tf.strings.regex_replace(text, f"[{WORD_ENDS}]", r" \0 ")
        long_word = rf"[^\s{SENTINELS}]{{{self.max_word_length + 1},}}"
        return tf.strings.regex_replace(text, long_word, rf"{LONG_WORD}\0")

    def _replace_tokens(self, text, tokens, spellings=None):
        """Replace spelled tokens by sentinel words: leftmost first, then longest."""
        spellings = spellings or tokens
        by_length = sorted(filter(None, spellings), key=len, reverse=True)
        if not by_length:
            return text
        anywhere = "|".join(map(regex_literal, by_length))
        text = tf.strings.regex_replace(text, f"({anywhere})", rf"{MARK}\1{MARK}")
        for token, spelling in zip(tokens, spellings):
            name = f" {sentinel(self.token_to_id(token))} "
            text = tf.strings.regex_replace(text, MARK + regex_literal(spelling) + MARK, name)
        return text

    def _tokenize_with_offsets(self, text, special=()):
        # Except for white space, tokens cover the clean text without a gap. So it is enough to know
        # how many bytes of it each token has, and how many each character becomes.
        if self.keras_hub:
            ids, sizes = self._pieces_of_words(text, special)
        else:
            prepared = self._with_special(text, special)
            ids, starts, ends = self._match(prepared)  # ragged (B, S)
            sizes = ends.values - starts.values  # (T,)
            sizes -= tf.where(_begins_with(LONG_WORD, prepared, starts), size(LONG_WORD), 0)
        for token in dict.fromkeys([*self._added.tokens, *special]):
            is_raw = self.keras_hub and token in special
            spelling = token if is_raw else self._added.spellings[token]
            id = self.token_to_id(token)
            is_it = ids.values == id
            if id == self.special_id("unknown") and not self.keras_hub:
                # Spelled, and not only an unknown word.
                is_it &= _begins_with(sentinel(id), prepared, starts)
            sizes = tf.where(is_it, size("".join(spelling.split())), sizes)

        characters = tf.strings.unicode_split(valid_utf8(text), "UTF-8")  # ragged (B, N)
        characters = characters.with_row_splits_dtype(tf.int64)
        if self.keras_hub:
            folds = self.lowercase, self.strip_accents
            left = keras_hub_lengths(characters, *folds)
        else:
            left = visible_lengths(characters, self._clean)
        return ids, *strings.covering(ids.with_values(sizes), characters, left)

    def tokenize_lite(self, text: Tensor) -> Tensor:
        """Return ragged (B, S) ids of (B,) texts like a call, with operations that LiteRT has.

        Added tokens are not found. All other ids are the same, unless a text has several marks that
        stripping accents leaves, in an order that is not Unicode's canonical one. Words are BERT's,
        also where KerasHub would split or fold them otherwise.
        """
        return self.tokenize_lite_with_offsets(text)[0]

    def tokenize_lite_with_offsets(self, text: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what `tokenize_lite` does, and where tokens start and end in characters."""
        return self._lite(text)

    def _sides(self, tokens):
        if clean := {*self._added.normalized} & {*tokens}:
            raise ValueError(
                f"{sorted(clean)} are special tokens of clean text, which LiteRT does not find: "
                "export as a SavedModel instead."
            )
        return (), ()

    @functools.cached_property
    def _lite(self):
        words = enumerate(self._rules.words)
        entries = {word: i for i, word in words if not word.startswith(sentinel(i))}
        unknown = self.special_id("unknown")
        with tf.init_scope():
            return LiteWordPiece(
                entries, unknown, self.max_word_length, self._part_words, self.lowercase
            )

    def _part_words(self, text):
        text = tf.strings.regex_replace(self._clean(text), f"[{self._rules.parting}]", r" \0 ")
        return tf.strings.regex_replace(text, f"[{SPACES}]+", " ")

    def _join(self, entries):
        text = strings.join(entries, " ")
        text = tf.strings.strip(tf.strings.regex_replace(text, " ##", ""))
        return strings.cleaned_up(text, self.clean_up) if self.clean_up else text

    def _spellings_alone(self):
        changes = without_first_space, joined_pieces, without_outer_white_space
        spellings = [b" " + token.encode() for token in self.vocabulary]
        return spellings, *changes, *cleaning(self.clean_up)

    def _begins_word(self, token):
        return not token.startswith("##")

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "lowercase": self.lowercase,
            "strip_accents": self.strip_accents,
            "added_tokens": list(self._added.tokens),
            "normalized_tokens": list(self._added.normalized),
            "max_word_length": self.max_word_length,
            "clean_up": self.clean_up,
            "keras_hub": self.keras_hub,
            "template": self.template,
        }

    def save_assets(self, folder: PathLike) -> None:
        # As bytes: text mode would write the platform's line ends.
        with open(os.path.join(folder, "vocab.txt"), "wb") as file:
            file.writelines(token.encode() + b"\n" for token in self._vocabulary.tokens)

    @classmethod
    def from_assets(cls, folder: PathLike, config: dict[str, Any]) -> Self:
        return cls(os.path.join(folder, "vocab.txt"), **config)

    @classmethod
    def from_files(cls, folder: PathLike, **overrides: Any) -> Self:
        """Return the tokenizer that a folder with a published checkpoint describes.

        Reads `vocab.txt` (KerasHub: `vocabulary.txt`) or else the vocabulary in `tokenizer.json`,
        and the settings of Hugging Face's JSON files, if they exist. If none of these states the
        casing, the vocabulary is cased if an entry has an upper-case letter, not counting special
        tokens and entries in brackets.

        Raises:
            FileNotFoundError: if there is no vocabulary.
            ValueError: if a file asks for something that this class does not do.
        """
        from keras_lm.tokenizers.wordpiece_files import read_folder

        vocabulary, settings = read_folder(folder, cls.ROLES, VOCABULARY_FILES)
        return cls(vocabulary, **{**settings, **overrides})


# === BERT's cleaning ===


def clean(text, lowercase, strip_accents, dropped=DROPPED + SENTINELS):
    """Return (B,) strings of valid UTF-8 without the characters of the class `dropped`."""
    text = tf.strings.regex_replace(text, f"[{dropped}]+", "")
    if lowercase:
        text = tf.strings.lower(text, encoding="utf-8")
    if strip_accents:
        text = normalized(text, "NFD")
        text = tf.strings.regex_replace(text, f"[{MARKS}]+", "")
    return text


def visible_lengths(characters, clean, unit="BYTE"):
    """Return the int64 length of each of ragged (B, N) characters in clean text, 0 for spaces."""
    different, which = tf.unique(characters.values)
    left = tf.strings.regex_replace(clean(different), f"[{SPACES}]+", "")
    return tf.gather(tf.cast(tf.strings.length(left, unit), tf.int64), which)


def check_number(words):
    """Raise a ValueError if there are too many words to search for."""
    if len(words) > MOST_WORDS:
        raise ValueError(
            f"`vocabulary` makes {len(words)} words to search for, and the limit is {MOST_WORDS}: "
            "pass the vocabulary of a published model, or learn a smaller one."
        )


def make_matcher(words, **options):
    """Return TF Text's matcher of words; ValueError if it cannot hold them."""
    check_number(words)
    try:
        return tf_text.FastWordpieceTokenizer(words, **options)
    except RuntimeError as error:
        raise ValueError(f"`vocabulary` cannot be searched for: {str(error)[:200]}") from error


def sentinel(id):
    """Return a name for an id that no text can have: its digits as noncharacters."""
    return "".join(chr(0xFDD0 + int(digit)) for digit in str(id))


def _begins_with(prefix, texts, starts):
    """Return whether (B,) texts have a prefix at each of ragged (B, S) byte offsets, (T,) bool."""
    data = tf.io.decode_raw(
        tf.strings.reduce_join([tf.strings.reduce_join(texts), prefix]), tf.uint8
    )
    rows = tf.cumsum(size(texts), exclusive=True)
    places = starts.values + tf.gather(rows, strings.row_ids(starts))
    begins = tf.ones_like(places, tf.bool)
    for i, byte in enumerate(prefix.encode()):
        begins &= tf.gather(data, places + i) == byte
    return begins


# === LiteRT, whose operations are those of integers ===

# All texts are one long list of letters. Words are found in it, then the longest piece at each
# place by a trie: pieces that begin words, and, where these are shorter than the word, pieces
# within.

# Symbols: a space, letters that no piece has, and what pieces within words begin with.
SPACE, UNKNOWN, WITHIN = range(3)


class LiteWordPiece:
    """`WordPieceTokenizer` in integer operations.

    Args:
        ids: dict from each entry that text may become to its id.
        unknown_id: int, the id of words that the entries cannot spell.
        max_word_length: int, in letters.
        part_words: function from (N,) strings to clean ones with spaces where words are split.
        lowercase: bool. Whether cleaning lower-cases.
    """

    def __init__(self, ids, unknown_id, max_word_length, part_words, lowercase):
        symbols = self._make_pieces(ids)
        self._letters = Letters(symbols | {" ": SPACE}, UNKNOWN, part_words, lowercase)
        self._unknown_id, self._max_word_length = unknown_id, max_word_length

    def _make_pieces(self, ids, suffix="##"):
        """Make the trie of entries; return a dict from letter to symbol."""
        letters = sorted(set("".join(ids)))
        symbols = {letter: i for i, letter in enumerate(letters, start=WITHIN + 1)}
        pieces = {(WITHIN,): -1}
        for entry, id in ids.items():
            is_within = entry.startswith(suffix)
            piece = tuple(symbols[letter] for letter in entry.removeprefix(suffix))
            pieces[(WITHIN,) * is_within + piece] = id
        self._pieces = Trie(pieces, num_symbols=len(symbols) + WITHIN + 1)
        self._within = self._pieces.node((WITHIN,))
        return symbols

    def __call__(self, text):
        """Return ids, starts and ends of (B,) texts, (B, S) int32 each: places in characters."""
        return self._match(*self._letters(text))

    def _match(self, symbols, row_splits, of_character, text_begins):
        """Do so for what `Letters` returns: with spaces after the last text."""
        size = tf.size(symbols)
        is_space = symbols == SPACE
        is_first = ~is_space & (flags(row_splits, size) | value_before(is_space, 1, True))
        # An empty last word in no text: lists must not be empty.
        starts = places_of(is_first, [size - 1])  # (W,)
        bounds = places_of(is_space | is_first, [size - 1])
        ends = tf.gather(bounds, tf.gather(count_before(is_space | is_first), starts) + 1)
        word = tf.maximum(tf.cumsum(tf.cast(is_first, tf.int32)) - 1, 0)  # of each letter, (T,)

        nodes = self._pieces(symbols, starts, ends, whole=False)
        sizes = tf.gather(self._pieces.lengths, nodes)
        is_parted = starts + sizes < ends
        places = places_of(~is_space & ~is_first & tf.gather(is_parted, word), [size - 1])
        last = tf.gather(ends, tf.gather(word, places))
        within = self._pieces(symbols, places, last, whole=False, root=self._within)
        nodes = put(nodes, starts, size) + put(within, places, size)
        numbers = tf.gather(self._pieces.numbers, nodes)  # -1 if there is no piece
        sizes = tf.gather(self._pieces.lengths, nodes) - put(
            tf.cast(within > 0, tf.int32), places, size
        )

        taken = self._follow(starts, ends, sizes) & ~is_space
        is_bad = put(tf.cast(taken & (numbers < 0), tf.int32), word, tf.size(starts)) > 0
        is_bad |= ends - starts > self._max_word_length
        is_bad = tf.gather(is_bad, word)
        is_there = tf.where(is_bad, is_first, taken)
        numbers = tf.where(is_bad, self._unknown_id, numbers)
        at = places_of(is_there, [size - 1])
        ids = tf.gather(numbers, at)
        row_splits = tf.gather(count_before(is_there), row_splits)
        ids = tf.RaggedTensor.from_row_splits(ids[:-1], row_splits, validate=False)
        places = places_in_texts(at, ~is_space, of_character, ids, text_begins)
        return ids, *map(ids.with_values, places)

    def _follow(self, places, ends, sizes):
        """Flag where pieces begin, each after the one before, from (W,) places to ends."""

        def step(taken, places, ends):
            taken += put(tf.ones_like(places), places, tf.size(taken))
            size = tf.gather(sizes, places)
            places += size
            stays = places_of(((size > 0) & (places < ends))[:-1], [tf.size(places) - 1])
            return taken, tf.gather(places, stays), tf.gather(ends, stays)

        state = tf.zeros_like(sizes), places, ends
        shapes = (tf.TensorShape([None]),) * 3
        return tf.while_loop(lambda _, p, __: tf.size(p) > 1, step, state, shapes)[0] > 0


# === What TF Text's matcher does with clean text, where that is not installed ===


class WordMatcher(LiteWordPiece):
    """Finds pieces in clean texts.

    Args:
        words: list of str, the entries as the matcher knows them, see `Rules`.
        unknown_id: int.
        max_bytes: int. Longer words are unknown.
        parting: str, a class of the characters that are words; "" if each text is one word.
        suffix: str, what entries within words begin with.
    """

    def __init__(self, words, unknown_id, max_bytes, parting, suffix="##"):
        check_number(words)
        symbols = self._make_pieces({word: i for i, word in enumerate(words)}, suffix)
        self._unknown_id, self._max_word_length = unknown_id, max_bytes
        self._max_bytes, self._is_parted = max_bytes, bool(parting)
        numbers = np.full(0x110000, UNKNOWN, np.int32)
        numbers[[*map(ord, symbols)]] = [*symbols.values()]
        self._alone = len(symbols) + WITHIN + 1  # what is added to characters that are words
        if parting:
            numbers[_codes_of(SPACES)] = SPACE
            numbers[_codes_of(parting)] += self._alone
        self._numbers = CodePointTable(numbers)

    def __call__(self, text):
        """Return ids, starts and ends of (B,) texts, ragged (B, S): places in bytes, int64."""
        codes = tf.strings.unicode_decode(text, "UTF-8")
        splits = tf.cast(codes.row_splits, tf.int32)
        codes = codes.values
        widths = 1 + sum(tf.cast(codes >= first, tf.int64) for first in (0x80, 0x800, 0x10000))
        bytes_before = tf.concat([tf.zeros([1], tf.int64), tf.cumsum(widths)], 0)
        text_begins = tf.gather(bytes_before, splits)
        numbers = self._numbers(codes)
        if not self._is_parted:
            is_long = tf.repeat(
                text_begins[1:] - text_begins[:-1] > self._max_bytes, splits[1:] - splits[:-1]
            )
            numbers = tf.where(is_long, UNKNOWN, numbers)
        ids, *places = self._match(*self._symbols(numbers, splits))
        row = strings.row_ids(ids)
        first, begin = tf.gather(splits, row), tf.gather(text_begins, row)
        places = (tf.gather(bytes_before, place.values + first) - begin for place in places)
        row_splits = tf.cast(ids.row_splits, tf.int64)
        return tuple(
            tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)
            for values in (ids.values, *places)
        )

    def _symbols(self, numbers, splits):
        """Return what `_match` takes: spaces around characters that are words, and at the end."""
        is_alone = numbers >= self._alone
        numbers = tf.concat([tf.where(is_alone, numbers - self._alone, numbers), [SPACE]], 0)
        lengths = tf.concat([tf.where(is_alone, 3, 1), [1]], 0)
        of, place = strings.places_in_rows(lengths)
        is_added = (tf.gather(lengths, of) == 3) & (place != 1)
        begins = tf.cumsum(lengths, exclusive=True)
        symbols = tf.where(is_added, SPACE, tf.gather(numbers, of))
        return symbols, tf.gather(begins, splits), of, splits


def _codes_of(characters):
    """Return the code points in a class of RE2's."""
    python = re.sub(r"\\x\{(\w+)\}", lambda code: f"\\U{int(code[1], 16):08X}", f"[{characters}]")
    return [*map(ord, re.findall(python, _all_characters()))]


@functools.cache
def _all_characters():
    return "".join(map(chr, range(0x110000)))


# === Words as KerasHub splits and folds them, which is not as BERT does ===

# It splits at control characters and at no white space beyond ASCII, strips accents and leaves
# composed what has none, and folds the case of words by NFKC: "ß" is "ss" and "½" is one word of
# three characters. Expressions are RE2's, with TensorFlow's own classes of characters, as there.

PART = b"\xff"  # between words; no UTF-8, which no expression matches
KERAS_HUB_LONGEST = 100  # bytes of a word; longer ones are unknown
KERAS_HUB_SPACES = r"[\s\p{Cc}\p{Cf}]"
KERAS_HUB_IDEOGRAPHS = (
    r"\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2CEAF}"
    r"\x{2F800}-\x{2FA1F}"
)
KERAS_HUB_ALONE = rf"[!-/:-@\[-`{{-~\p{{P}}{KERAS_HUB_IDEOGRAPHS}]"


def split_as_keras_hub(text, lowercase, strip_accents):
    """Return the folded words of (B,) texts of valid UTF-8, ragged (B, W)."""
    if strip_accents:
        text = tf.strings.regex_replace(text, f"[{KERAS_HUB_IDEOGRAPHS}]", r" \0 ")
        text = _without_accents(text)
    text = tf.strings.regex_replace(text, f"{KERAS_HUB_SPACES}+", PART)
    text = tf.strings.regex_replace(text, KERAS_HUB_ALONE, PART + rb"\0" + PART)
    words = strings.split(text, PART)
    return words.with_values(folded(words.values)) if lowercase else words


def keras_hub_lengths(characters, lowercase, strip_accents):
    """Return how many bytes each of ragged (B, N) characters has in words, int64 (N,)."""
    different, which = tf.unique(characters.values)
    left = tf.strings.regex_replace(different, KERAS_HUB_SPACES, "")
    left = _without_accents(left) if strip_accents else left
    left = folded(left) if lowercase else left
    return tf.gather(strings.size(left), which)


def _without_accents(text):
    return tf.strings.regex_replace(normalized(text, "NFD"), r"\p{Mn}", "")
