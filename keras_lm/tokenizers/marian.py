"""Marian's tokenizer: a SentencePiece model for each side of a translation, and its own ids."""

import json
import os
import re
from collections.abc import Sequence
from typing import Any, Self

from keras_lm.tensorflow import tf
from keras_lm.tokenizers import published_files, strings
from keras_lm.tokenizers import sentence_piece_model as models
from keras_lm.tokenizers.sentence_piece import Aligner, SentencePieceTokenizer
from keras_lm.tokenizers.sentence_piece_model import NORMAL, SPACE
from keras_lm.tokenizers.strings import size
from keras_lm.tokenizers.tokenizer import Tokenizer, lookup_table
from keras_lm.tokenizers.vocabulary import read_entries
from keras_lm.utils.argument_types import PathLike, Tensor

WHO = "MarianTokenizer"
MODELS = ("source.spm", "target.spm")
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
LANGUAGE = r"(?s)^>>.*?<<"  # what a text may begin with, such as ">>fra<<"


class MarianTokenizer(Tokenizer):
    """Marian's tokenizer of texts to translate; its `target` is the tokenizer of translations.

    Each has a SentencePiece model, and a vocabulary, usually the same one, with the ids of pieces;
    pieces that it lacks become the unknown token. The ids equal those of Hugging Face's tokenizer
    of the same name, which does not normalise punctuation either. As there, ">>fra<<" or anything
    else between these marks at the start of a text is one token, which tells multilingual models
    the language to translate to: an entry of the vocabulary, or else the unknown token.

    Args:
        source, target: paths of model files such as `source.spm`, or their bytes.
        vocabulary: list of str, the entries in the order of their ids, or path of a `vocab.json`.
        target_vocabulary: the same for translations; None if there is one vocabulary for both.
        eos_token, pad_token, unknown_token: str; the first two may be None.
        additional_special_tokens: list of str, entries that plain text is never tokenized to.
        clean_up: bool; see `SentencePieceTokenizer`.

    Raises:
        FileNotFoundError: if a file does not exist.
        ValueError: if a file is damaged, or a vocabulary lacks a special token.

    Example:

        tokenizer = MarianTokenizer("source.spm", "target.spm", "vocab.json")
        ids = tokenizer(["some text"])
        labels = tokenizer.target(["ein Text"])
        tokenizer.target.detokenize(labels)  # [b"ein Text"]

    Reference: Tiedemann and Thottingal 2020, "OPUS-MT", https://aclanthology.org/2020.eamt-1.61.
    """

    ROLES = ("eos", "pad", "unknown")

    def __init__(
        self,
        source: Any,
        target: Any,
        vocabulary: Sequence[str] | PathLike,
        target_vocabulary: Any = None,
        eos_token: str = "</s>",
        pad_token: str = "<pad>",
        unknown_token: str = "<unk>",
        additional_special_tokens: Sequence[str] = (),
        clean_up: bool = False,
        name: str | None = None,
    ):
        vocabulary = _read_vocabulary(vocabulary)
        roles = dict(zip(self.ROLES, (eos_token, pad_token, unknown_token), strict=True))
        super().__init__(vocabulary, roles, additional_special_tokens, name=name)
        if unknown_token is None:
            raise ValueError("`unknown_token` is None; name the entry for pieces without an id.")
        self.clean_up: bool = bool(clean_up)
        model = models.read_model(source)
        self._pieces = self._make_pieces(model)
        self._numbers = self._make_numbers(self._pieces.vocabulary)
        self._foreign = self._aligner = self._lite = self._lite_numbers = None
        self._find_foreign(model)
        entries = {t: i for t, i in self._vocabulary.ids.items() if re.fullmatch(LANGUAGE, t)}
        self._languages = self._make_table(entries)

        other = models.read_model(target)
        entries = vocabulary if target_vocabulary is None else _read_vocabulary(target_vocabulary)
        if other != model or entries != vocabulary:
            self._target = type(self)(other, other, entries, **self.get_config())

    def _make_pieces(self, model):
        """Return the tokenizer with a model's own ids, which never returns special tokens."""
        pieces = {piece.piece for piece in models.parse_model(model).pieces}
        special = [t for t in self._vocabulary.all_special_tokens if t in pieces]
        return SentencePieceTokenizer(
            model, additional_special_tokens=special, clean_up=self.clean_up
        )

    def _make_numbers(self, pieces):
        unknown, ids = self.special_id("unknown"), self._vocabulary.ids
        with tf.init_scope():
            return tf.constant([ids.get(piece, unknown) for piece in pieces])

    def _make_table(self, ids):
        unknown = self.special_id("unknown")
        ids = ids | {self.id_to_token(unknown): unknown}  # a table must not be empty
        with tf.init_scope():
            return lookup_table(ids, unknown)

    def _find_foreign(self, model):
        """Find entries, of the other language, that only have characters the model lacks.

        The reference also looks up runs of unknown characters in the vocabulary.
        """
        if self._pieces._has_bytes:  # nothing is unknown
            return
        proto = models.Model()
        proto.CopyFrom(self._pieces._proto)
        # That table merges unknown characters; here they must stay as they are.
        original = models.parse_model(model).normalizer_spec.precompiled_charsmap
        proto.normalizer_spec.precompiled_charsmap = original
        known = frozenset().union(*(p.piece for p in proto.pieces if p.type == NORMAL))
        special = self._vocabulary.all_special_tokens
        foreign = {
            token: i
            for token, i in self._vocabulary.ids.items()
            if known.isdisjoint(token) and token not in special
        }
        if not foreign:
            return
        try:
            with tf.init_scope():
                self._aligner = Aligner(proto, original)
        except ValueError:  # not all characters are pieces: runs of unknown ones cannot be found
            return
        self._foreign = self._make_table(foreign)

    # === Text to ids ===

    def _tokenize(self, text, special):
        text = strings.valid_utf8(text)
        return (
            strings.tokenize_parts(self, text, special, self._plain)
            if special
            else self._plain(text)
        )

    def _plain(self, text, begin_text=None):
        language, text = _split_language(text)
        ids = self._in_vocabulary(self._pieces(text), text)
        return tf.concat([self._of_languages(language), ids], 1)

    def _of_languages(self, language):
        """Return the ids of (B,) languages, ragged (B, 1 or 0): none for an empty string."""
        is_there = language != ""
        ids = self._languages.lookup(tf.boolean_mask(language, is_there))
        lengths = tf.cast(is_there, tf.int64)
        return tf.RaggedTensor.from_row_lengths(ids, lengths, validate=False)

    def _in_vocabulary(self, ids, text):
        """Return the vocabulary's ids for the model's, both ragged (B, S), of (B,) texts."""
        values = tf.gather(self._numbers, ids.values)
        if self._foreign is not None:
            is_unknown = ids.values == self._pieces.special_id("unknown")

            def with_foreign():
                rows, _ = tf.unique(tf.boolean_mask(strings.row_ids(ids), is_unknown))
                characters = self._aligner(tf.gather(text, rows))
                foreign = tf.boolean_mask(characters.pieces, characters.are_unknown)
                foreign = self._foreign.lookup(foreign)
                return tf.tensor_scatter_nd_update(values, tf.where(is_unknown), foreign)

            values = tf.cond(tf.reduce_any(is_unknown), with_foreign, lambda: values)
        return ids.with_values(values)

    def _tokenize_with_offsets(self, text, special=()):
        language, text = _split_language(strings.valid_utf8(text))
        ids, starts, ends = self._pieces._tokenize_with_offsets(text)
        ids = tf.concat([self._of_languages(language), self._in_vocabulary(ids, text)], 1)
        length = size(language)
        before = tf.gather(length, strings.row_ids(starts))
        starts, ends = (x.with_values(x.values + before) for x in (starts, ends))
        is_there = tf.cast(length > 0, tf.int64)
        first = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(length, length > 0), is_there, validate=False
        )
        return ids, tf.concat([tf.zeros_like(first), starts], 1), tf.concat([first, ends], 1)

    def tokenize_lite(self, text: Tensor) -> Any:
        """Return ragged (B, S) ids of (B,) texts like a call, with operations that LiteRT has.

        The ids are the same for valid UTF-8, with two exceptions: a language such as ">>fra<<" is
        found at the start of any word, if a space follows and the vocabulary has it; and runs of
        characters without a piece are unknown, even if the vocabulary has them for the other
        language.

        Raises:
            ValueError: see `SentencePieceTokenizer.tokenize_lite`.
        """
        if self._lite is None:
            languages = [t for t in self._vocabulary.tokens if re.fullmatch(LANGUAGE, t)]
            proto = models.parse_model(self._pieces._data)
            for token in languages:
                proto.pieces.add(piece=SPACE + token, score=0.0)  # more than all others
            self._lite = self._make_pieces(proto.SerializeToString())
            self._lite_numbers = self._make_numbers([*self._pieces.vocabulary, *languages])
        ids = self._lite.tokenize_lite(text)
        return ids.with_values(tf.gather(self._lite_numbers, ids.values))

    def _begins_word(self, token):
        return self._pieces._begins_word(token) or self._ends_word(token)

    def _ends_word(self, token):
        return bool(re.fullmatch(LANGUAGE, token))

    # === Ids to text ===

    def _join(self, entries):
        return self._pieces._join(entries)

    def _spellings_alone(self):
        _, *changes = self._pieces._spellings_alone()
        return [*map(self._pieces._spelling, self.vocabulary)], *changes

    # === Files ===

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"clean_up": self.clean_up}

    def save_assets(self, folder: PathLike) -> None:
        for tokenizer, name in zip((self, self.target), MODELS, strict=True):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(tokenizer._pieces._data)
        _write_vocabulary(os.path.join(folder, VOCABULARY), self.vocabulary)
        if self.target.vocabulary != self.vocabulary:
            path = os.path.join(folder, TARGET_VOCABULARY)
            _write_vocabulary(path, self.target.vocabulary)

    @classmethod
    def from_assets(cls, folder: PathLike, config: dict[str, Any]) -> Self:
        source, target, both, other = (
            os.path.join(folder, name) for name in (*MODELS, VOCABULARY, TARGET_VOCABULARY)
        )
        return cls(source, target, both, other if os.path.isfile(other) else None, **config)

    @classmethod
    def from_files(cls, folder: PathLike, **overrides: Any) -> Self:
        """Return the tokenizer that a folder with a published checkpoint describes.

        Reads `source.spm`, `target.spm`, `vocab.json`, `target_vocab.json` if the vocabularies are
        separate, and the settings of Hugging Face's JSON files, if they exist.

        Raises:
            FileNotFoundError: if there is neither model.
            ValueError: if another file is missing or damaged, or asks for something that this class
                does not do.
        """
        with published_files.reading(folder):
            files, settings = _read_folder(folder)
        return cls(*files, **{**settings, **overrides})


def _split_language(text):
    """Return the language that each of (B,) texts begins with, or "", and the rest of the text."""
    rest = tf.strings.regex_replace(text, LANGUAGE, "", replace_global=False)
    length = tf.strings.length(text) - tf.strings.length(rest)
    return tf.strings.substr(text, tf.zeros_like(length), length), rest


def _read_vocabulary(vocabulary):
    if not isinstance(vocabulary, (str, os.PathLike)):
        return vocabulary
    remedy = "give the path of the checkpoint's vocab.json, or the list of its entries."
    return read_entries(vocabulary, remedy)


def _write_vocabulary(path, vocabulary):
    with open(path, "w", encoding="utf-8") as file:
        ids = {token: i for i, token in enumerate(vocabulary)}
        json.dump(ids, file, ensure_ascii=False, indent=0)


def _read_folder(folder):
    """Return the paths of a folder's models and vocabularies, and its settings."""
    files = published_files.TokenizerFolder(folder, WHO)
    is_there = {name: os.path.isfile(os.path.join(folder, name)) for name in os.listdir(folder)}
    if not any(is_there.get(name) for name in MODELS):
        raise FileNotFoundError(
            f"`folder` {os.fspath(folder)!r} holds neither {MODELS[0]} nor {MODELS[1]}; copy both "
            "of the checkpoint's SentencePiece models there."
        )
    needed = [*MODELS, VOCABULARY]
    if files.config.get("separate_vocabs", is_there.get(TARGET_VOCABULARY)):
        needed.append(TARGET_VOCABULARY)
    missing = [name for name in needed if not is_there.get(name)]
    if missing:
        raise ValueError(
            f"`folder` {os.fspath(folder)!r} lacks {' and '.join(missing)}: {WHO} needs "
            f"{', '.join(needed)}. Copy the checkpoint's whole folder."
        )
    paths = [os.path.join(folder, name) for name in needed]
    vocabulary = _read_vocabulary(paths[2])
    files.add_tokens(vocabulary, paths[2])
    settings = files.special_tokens(MarianTokenizer.ROLES)
    more = files.more_tokens({"</s>", "<pad>", "<unk>", *settings.values()})
    settings["additional_special_tokens"] = more["additional_special_tokens"]
    settings["clean_up"] = bool(files.config.get("clean_up_tokenization_spaces"))
    return [*paths[:2], vocabulary, *paths[3:]], settings
