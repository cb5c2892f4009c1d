"""WordPiece: the tokenizer of BERT and of the models that descend from it."""

import os
import re
import types

import tensorflow as tf

from keras_lm.tokenizers import offsets, published_files, ragged, unicode_ranges
from keras_lm.tokenizers.offsets import valid_utf8
from keras_lm.tokenizers.tokenizer import Tokenizer, strings_of
from keras_lm.tokenizers.wordpiece import bert_text, wordpiece_files
from keras_lm.tokenizers.wordpiece.bert_text import (
    DROPPED,
    SENTINELS,
    WORD_ENDS,
    make_matcher,
    where_not,
)
from keras_lm.tokenizers.wordpiece.wordpiece_lite import LiteWordPiece

LONG_WORD = "\ufdda"  # before a word; in no vocabulary, hence the word is one unknown token
MARK = "\ufddb"
NO_LETTER = "\U0001fffe"  # never stands for a character; a letter to the matcher

ROLES = wordpiece_files.ROLES


class WordPieceTokenizer(Tokenizer):
    """BERT's tokenizer, in the graph: clean, split at white space and punctuation, match pieces.

    The ids equal those of BERT's own code and of Hugging Face's `tokenizers`, also if text is
    hostile: invalid UTF-8 is replaced, control characters vanish, and a word of more than
    `max_word_length` characters becomes one unknown token. If these two disagree: marks and
    punctuation are those of `tokenizers`, a capital sigma that ends a word becomes a final sigma as
    in BERT's own code, and U+2B820 to U+2B91F are ideographs as there. Otherwise than in both, the
    noncharacters U+FDD0 to U+FDEF vanish: inside, they stand for special tokens, and no text shall
    spell one.

    Args:
        vocabulary: list of str, or the path of a `vocab.txt` with one entry a line.
        lowercase: bool. Lower-case text first, as the uncased models want.
        strip_accents: bool. Take the marks off letters. None means the same as `lowercase`.
        cls_token, sep_token, pad_token, mask_token: str, or None if the vocabulary has none.
        unknown_token: str. What words become that the pieces cannot spell.
        additional_special_tokens: list of str, entries that plain text never turns into.
        added_tokens: list of str, entries that are found anywhere in text before it is split.
        max_word_length: int, 1 to 1000, in characters.
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

    lone_word_splitter = "punctuation"
    PUBLISHED_FILES = wordpiece_files.VOCABULARY_FILES

    def __init__(
        self,
        vocabulary,
        lowercase,
        strip_accents=None,
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token="[MASK]",
        unknown_token="[UNK]",
        additional_special_tokens=(),
        added_tokens=(),
        max_word_length=100,
        template=None,
        name=None,
    ):
        if isinstance(vocabulary, (str, os.PathLike)):
            vocabulary = wordpiece_files.read_vocabulary(vocabulary)
        if unknown_token is None:
            raise ValueError("`unknown_token` is None, but WordPiece needs one; name its entry.")
        if not isinstance(max_word_length, int) or not 1 <= max_word_length <= 1000:
            raise ValueError(
                f"`max_word_length` is {max_word_length!r}; it must be an integer from 1 to 1000."
            )
        roles = dict(zip(ROLES, (cls_token, sep_token, pad_token, mask_token, unknown_token)))
        super().__init__(vocabulary, roles, additional_special_tokens, template, name=name)
        added_tokens = strings_of("added_tokens", added_tokens)
        self._check_entries(added_tokens)
        self.lowercase = bool(lowercase)
        self.strip_accents = self.lowercase if strip_accents is None else bool(strip_accents)
        self.max_word_length = int(max_word_length)
        # ASCII without control characters and without over-long words: nothing to clean.
        self._plain = rf"[\t\n\r ]*(?:[!-~]{{1,{self.max_word_length}}}(?:[\t\n\r ]+|$))*"

        # The matcher splits words at these; those that no entry holds are hidden from it.
        letters = set("".join(self._vocabulary.tokens))
        marks = unicode_ranges.characters(unicode_ranges.PUNCTUATION_OF_TF_TEXT)
        self._joined = _regex_literal([*(c for c in marks if c not in letters), NO_LETTER])
        parting = WORD_ENDS + _regex_literal(c for c in marks if c in letters)

        # Special tokens stand in the matcher under names that cannot be typed. So do entries that
        # no clean text holds: the matcher would find "a b" across two words, and chokes on NUL.
        hidden = {*self._vocabulary.all_special_tokens, *added_tokens} - {unknown_token}
        unclean = re.compile(r"[\s\x00-\x1f\x7f-\x9f\ufdd0-\ufdef]|^$")
        words = [
            _sentinel(i) if token in hidden or unclean.search(token) else token
            for i, token in enumerate(self._vocabulary.tokens)
        ]
        # (A namespace, because a module would track bare lists and dicts.)
        self._rules = types.SimpleNamespace(
            parting=parting,
            entries={t: i for i, t in enumerate(words) if not t.startswith(_sentinel(i))},
            lite=None,  # made when a `.tflite` needs it
        )
        with tf.init_scope():
            matcher = make_matcher(
                words,
                # Long words are found in characters while cleaning; four bytes are the most. Names
                # of three bytes a digit have to fit, too.
                max_bytes_per_word=max(4 * self.max_word_length, 3 * len(str(len(words)))),
                token_out_type=tf.int32,
                unknown_token=unknown_token,
            )
            # One traced function: all signatures of a SavedModel call it and share its constant.
            texts = tf.TensorSpec([None], tf.string)
            match = tf.function(matcher.tokenize_with_offsets)
            self._match = match.get_concrete_function(texts)
        # Added tokens are found in normalised text, so their own spelling has to be that as well.
        spellings = self._clean(tf.constant(list(added_tokens), tf.string)).numpy()
        self._added = types.SimpleNamespace(
            tokens=list(added_tokens), spellings=[s.decode() for s in spellings]
        )

    def _check_entries(self, added_tokens):
        for token in self._vocabulary.tokens:
            if "\n" in token or token.endswith("\r"):
                raise ValueError(
                    f"`vocabulary` entry {token!r} holds the end of a line, which a vocab.txt "
                    "cannot store and no text can match; rename the entry."
                )
        for token in added_tokens:
            if token not in self._vocabulary.ids:
                raise ValueError(
                    f"`added_tokens` names {token!r}, which is not in the vocabulary of "
                    f"{self.vocabulary_size} entries; append it there first."
                )

    def _entries_of_word(self, word):
        text = tf.constant([word])
        return [self._clean(tf.strings.lower(text) if self.lowercase else text)[0].numpy().decode()]

    def _with_entries(self, entries):
        return type(self)([*self._vocabulary.tokens, *entries], **self.get_config())

    def _tokenize(self, text, parse_special):
        if parse_special:
            text = valid_utf8(text)
            text = tf.strings.regex_replace(text, f"[{SENTINELS}]+", "")
            tokens = self._vocabulary.all_special_tokens
            if parse_special is not True:
                tokens = [token for token in tokens if token in parse_special]
            text = self._replace_tokens(text, tokens)
        return self._match(self._prepare(text, keep_sentinels=bool(parse_special)))[0]

    def _prepare(self, text, keep_sentinels=False):
        """Return clean text with names that cannot be typed in place of added tokens."""

        def clean(rows):
            return self._mark_long_words(self._replace_added(self._clean(rows, keep_sentinels)))

        text = tf.strings.lower(text) if self.lowercase else text
        # Most rows of ordinary text are plain.
        return self._replace_added(where_not(text, self._plain, clean))

    def _clean(self, text, keep_sentinels=False):
        dropped = DROPPED if keep_sentinels else DROPPED + SENTINELS
        text = bert_text.clean(valid_utf8(text), self.lowercase, self.strip_accents, dropped)
        # Rows with characters that the matcher takes for something else are rare.
        parted = unicode_ranges.character_class(unicode_ranges.NO_PUNCTUATION_OF_TF_TEXT)

        def correct(rows):
            rows = tf.strings.regex_replace(rows, f"[{parted}]", r" \0 ")
            return tf.strings.regex_replace(rows, f"[{self._joined}]", NO_LETTER)

        return where_not(text, f"[^{parted}{self._joined}]*", correct)

    def _mark_long_words(self, text):
        short = rf"\s*(?:\S{{1,{self.max_word_length}}}(?:\s+|$))*"
        return where_not(text, short, self._part_and_mark)

    def _part_and_mark(self, text):
        # Apart from spaces, what ends a word is set apart first: one pattern that counts characters
        # of so large a class would need more memory than the regular expression engine has.
        text = tf.strings.regex_replace(text, f"[{WORD_ENDS}]", r" \0 ")
        long_word = rf"[^\s{SENTINELS}]{{{self.max_word_length + 1},}}"
        return tf.strings.regex_replace(text, long_word, rf"{LONG_WORD}\0")

    def _replace_added(self, text):
        return self._replace_tokens(text, self._added.tokens, self._added.spellings)

    def _replace_tokens(self, text, tokens, spellings=None):
        """Put sentinel words where tokens are spelled out: leftmost first, then longest."""
        spellings = spellings or tokens
        by_length = sorted((s for s in spellings if s), key=len, reverse=True)
        anywhere = "|".join(_regex_literal(s) for s in by_length)
        if not anywhere:
            return text
        text = tf.strings.regex_replace(text, f"({anywhere})", rf"{MARK}\1{MARK}")
        for token, spelling in zip(tokens, spellings):
            text = tf.strings.regex_replace(
                text,
                MARK + _regex_literal(spelling) + MARK,
                f" {_sentinel(self.token_to_id(token))} ",
            )
        return text

    def _tokenize_with_offsets(self, text):
        # White space aside, the tokens of a text cover its clean form without a gap. So it is
        # enough to know how many bytes of it each token has, and how many each character becomes.
        prepared = self._prepare(text)
        ids, starts, ends = self._match(prepared)
        sizes = ends.values - starts.values
        sizes -= tf.where(_begins_with(LONG_WORD, prepared, starts), _size(LONG_WORD), 0)
        for token, spelling in zip(self._added.tokens, self._added.spellings):
            of_token = _size("".join(spelling.split()))
            sizes = tf.where(ids.values == self.token_to_id(token), of_token, sizes)

        characters = tf.strings.unicode_split(valid_utf8(text), "UTF-8")
        characters = characters.with_row_splits_dtype(tf.int64)
        left = bert_text.visible_lengths(characters, self._clean)
        return ids, *offsets.covering(ids.with_values(sizes), characters, left)

    def tokenize_lite(self, text):
        """Return ragged (B, S) ids of (B,) texts as calling does, with operations that LiteRT has.

        Added tokens are not looked for. The ids are the same, but where text has two marks in
        another order than Unicode's canonical one that stay when accents are stripped.
        """
        if self._rules.lite is None:
            with tf.init_scope():
                self._rules.lite = LiteWordPiece(
                    self._rules.entries,
                    self.special_id("unknown"),
                    self.max_word_length,
                    self._part_words,
                    self.lowercase,
                )
        return self._rules.lite(text)

    def _part_words(self, text):
        text = tf.strings.regex_replace(self._clean(text), f"[{self._rules.parting}]", r" \0 ")
        return tf.strings.regex_replace(text, f"[{bert_text.SPACES}]+", " ")

    def _join(self, entries):
        text = ragged.join(entries, " ")
        text = tf.strings.strip(tf.strings.regex_replace(text, " ##", ""))
        # Hugging Face's clean-up of English: one rule after the other, in this order.
        for before, after in (
            (r" ([.?!,])", r"\1"),
            (" ' ", "'"),
            (r" (n't|'m|'s|'ve|'re)", r"\1"),
        ):
            text = tf.strings.regex_replace(text, before, after)
        return text

    def _begins_word(self, token):
        return not token.startswith("##")

    def get_config(self):
        return {
            "lowercase": self.lowercase,
            "strip_accents": self.strip_accents,
            **{f"{role}_token": self.special_tokens.get(role) for role in ROLES},
            "additional_special_tokens": list(self._vocabulary.additional_special_tokens),
            "added_tokens": list(self._added.tokens),
            "max_word_length": self.max_word_length,
            "template": self.template,
        }

    def save_assets(self, folder):
        # Written as bytes: text mode would turn line ends into the platform's.
        with open(os.path.join(folder, "vocab.txt"), "wb") as file:
            file.writelines(token.encode() + b"\n" for token in self._vocabulary.tokens)

    @classmethod
    def from_assets(cls, folder, config):
        return cls(os.path.join(folder, "vocab.txt"), **config)

    @classmethod
    def from_files(cls, folder, **overrides):
        """Return the tokenizer that a folder with a published checkpoint describes.

        Reads `vocab.txt` (KerasHub: `vocabulary.txt`) or else the vocabulary in `tokenizer.json`,
        and the settings of Hugging Face's JSON files, if they exist. If none of them states the
        casing, the vocabulary tells it: a single entry with an upper-case letter, special and
        bracketed ones aside, makes it cased.

        Raises:
            FileNotFoundError: if there is no vocabulary.
            ValueError: if a file asks for something that this class does not do.
        """
        with published_files.reading(folder):
            vocabulary, settings = wordpiece_files.read_folder(folder)
        return cls(vocabulary, **{**settings, **overrides})


def _sentinel(id):
    return "".join(chr(0xFDD0 + int(digit)) for digit in str(id))


def _regex_literal(text):
    return "".join(rf"\x{{{ord(character):X}}}" for character in text)


def _size(text):
    return tf.constant(len(text.encode()), tf.int64)


def _lengths(texts):
    return tf.cast(tf.strings.length(texts), tf.int64)


def _begins_with(prefix, texts, starts):
    """Return, for each of the places in texts, whether the prefix stands there."""
    data = tf.io.decode_raw(
        tf.strings.reduce_join([tf.strings.reduce_join(texts), prefix]), tf.uint8
    )
    rows = tf.cumsum(_lengths(texts), exclusive=True)
    places = starts.values + tf.gather(rows, ragged.row_ids(starts))
    found = tf.ones_like(places, tf.bool)
    for i, byte in enumerate(prefix.encode()):
        found &= tf.gather(data, places + i) == byte
    return found
