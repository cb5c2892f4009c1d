"""SentencePiece: the tokenizer of ALBERT, XLNet, T5, XLM-R and DeBERTa.

`sentence_piece_model` reads model files and runs models in the graph, `sentence_piece_normalizer`
makes their tables of characters, and `sentence_piece_files` reads published folders.

Shapes: B batch, P parts of texts, S pieces of a text, T pieces of all texts, C characters, W words.
"""

import dataclasses
import functools
import os
import re
import typing
from collections.abc import Sequence
from typing import Any, Self

from keras_lm.tensorflow import INSTALL_TEXT, IS_INSTALLED, tf, tf_text
from keras_lm.tokenizers import (
    published_files,
    sentence_piece_files,
    strings,
    unicode_forms,
    unicode_ranges,
)
from keras_lm.tokenizers import sentence_piece_model as files
from keras_lm.tokenizers.lite_operations import (
    cleaning,
    without_first_space,
    without_outer_spaces,
)
from keras_lm.tokenizers.sentence_piece_lite import (
    ALWAYS,
    IF_SPACE,
    NEVER,
    UNLESS_SPACE,
    CharacterFinder,
    CharacterModel,
    LitePlaces,
    LiteSentencePiece,
)
from keras_lm.tokenizers.sentence_piece_model import BYTE_PIECE, MARKS, SPACE, SentencePieceModel
from keras_lm.tokenizers.sentence_piece_normalizer import (
    ALL_MARKS,
    Preparation,
    Table,
    compose,
    shorten_unknown,
)
from keras_lm.tokenizers.strings import checked_form, has_text_operations, regex_literal, size
from keras_lm.tokenizers.tokenizer import Tokenizer, in_form, offsets_in_form, traced
from keras_lm.tokenizers.vocabulary import strings_of
from keras_lm.utils.argument_types import PathLike, Tensor

SPACE_SIZE = len(SPACE.encode())


@dataclasses.dataclass(frozen=True)
class Rules:
    """The settings of `SentencePieceTokenizer` (a `tf.Module` would track bare lists).

    Args:
        preparation: `Preparation`, the settings that change text.
        plain_tokens: list of str, those of `added_tokens` that are not special: they are found in
            every text.
        split_digit_commas, added_tokens, lstrip_tokens, rstrip_tokens, prefix_once,
        keep_first_space, strip_end, clean_up: the arguments of the same names.
    """

    preparation: Preparation
    plain_tokens: list[str]
    split_digit_commas: bool
    added_tokens: list[str]
    lstrip_tokens: list[str]
    rstrip_tokens: list[str]
    prefix_once: bool
    keep_first_space: bool
    strip_end: bool
    clean_up: bool


class SentencePieceTokenizer(Tokenizer):
    """SentencePiece, unigram or BPE, in the graph: normalise, then find the best pieces.

    The ids equal those of the `sentencepiece` package (0.2.3), and with ALBERT's or XLNet's
    settings those of the models' own code. Settings that change text become part of the model's
    table of characters, so they cost no time and apply wherever the model runs. Text that spells a
    special token becomes ordinary pieces, even if the model was trained to see a token there
    (`user_defined_symbols`).

    Ties and near-ties between pieces are broken as in the package: scores are added up in float32,
    and pieces that the model keeps whole (`user_defined_symbols`, such as the "£" of ALBERT and
    XLNet) have the same scores. A million lines of random pieces, letters and unknown characters
    show no difference. There are four known ones:

    - Invalid UTF-8 becomes U+FFFD first, as in all tokenizers here, so that it has offsets. The
      table of T5 and others turns that into a space; the package has an unknown token.
    - In texts of more than about 40,000 characters, the package rounds differently: it restarts a
      unigram model's sum at 0 when it falls below -100,000, and TF Text's operation does not. Up to
      one piece in 20,000 differs in texts of 100,000 characters.
    - Models that come as a tokenizer.json have the ids of `tokenizers`, which adds up scores in
      double precision: of several ways that are equally good, as in runs of one letter, it may take
      another. And a "▁" in the text is an ordinary space here, as in the package, while
      `tokenizers` keeps those at the end of a text or beside a space.
    - A unigram model with `byte_fallback` runs in TF Text's other operation, which compares scores
      in double precision: pieces whose scores differ in the seventh digit may be others.

    Args:
        model: path of a model file such as `spiece.model`, or its bytes; it names the unknown
            token.
        lowercase: bool. Lower-case text first.
        strip_accents: bool, or `"all_marks"`. Decompose characters (NFKD) and drop combining marks
            first, or all marks, such as the vowel signs of Thai and Hindi.
        straighten_quotes: bool. Replace `` and '' by a straight double quote first.
        collapse_whitespace: bool. Replace white space of any kind and length by one space first.
        split_digit_commas: bool. Split the comma from pieces that end with a digit and a comma, and
            split the number into pieces again, as ALBERT and XLNet do.
        cls_token, sep_token, pad_token, mask_token, bos_token, eos_token: str or None.
        additional_special_tokens: list of str, entries that plain text is never tokenized to.
        added_tokens: list of str, entries that follow the model's own, such as T5's extra ids, if
            not among them. Those that are not special are found in text before it is split.
        lstrip_tokens, rstrip_tokens: list of str, the tokens that include white space before and
            after them if text spells them.
        prefix_once: bool. Add the model's space only at the beginning of a text, and not after a
            token that it spells, like T5's tokenizer with `legacy: false`.
        keep_first_space: bool. Add the model's space only before text that does not begin with one,
            like the "Metaspace" of `tokenizers`.
        normalization: str, `"NFC"`, `"NFD"`, `"NFKC"` or `"NFKD"`, the Unicode normal form to
            apply first, or None.
        strip_end: bool. Drop white space of any kind at the end of text first.
        clean_up: bool. Leave out the space before punctuation and English clitics in what
            `detokenize` returns.
        template: see `Tokenizer`.

    Raises:
        FileNotFoundError: if the model file does not exist.
        ValueError: if the model is damaged, has no unknown token or lacks a special token.

    Example:

        tokenizer = SentencePieceTokenizer("spiece.model", pad_token="<pad>")
        ids = tokenizer(["some text"])
        tokenizer.detokenize(ids)            # [b"some text"]

    Reference: Kudo and Richardson 2018, "SentencePiece", arXiv:1808.06226; Kudo 2018, "Subword
    Regularization", arXiv:1804.10959.
    """

    ROLES = files.ROLES
    PUBLISHED_FILES = sentence_piece_files.MODEL_FILES
    has_offsets_of_special = True
    MADE_LATER = Tokenizer.MADE_LATER | dict.fromkeys(
        ("_proto", "_first_space", "_joins_spaces", "_has_own_space", "_drops_space", "_matcher")
        + ("_match", "_lengths", "_begin_with_space", "_splits"),
        "_build",
    )

    def __init__(
        self,
        model: PathLike | bytes,
        lowercase: bool = False,
        strip_accents: bool | str = False,
        straighten_quotes: bool = False,
        collapse_whitespace: bool = False,
        split_digit_commas: bool = False,
        cls_token: str | None = None,
        sep_token: str | None = None,
        pad_token: str | None = None,
        mask_token: str | None = None,
        bos_token: str | None = None,
        eos_token: str | None = None,
        additional_special_tokens: Sequence[str] = (),
        added_tokens: Sequence[str] = (),
        lstrip_tokens: Sequence[str] = (),
        rstrip_tokens: Sequence[str] = (),
        prefix_once: bool = False,
        keep_first_space: bool = False,
        normalization: str | None = None,
        strip_end: bool = False,
        clean_up: bool = False,
        template: Sequence[str] | None = None,
        name: str | None = None,
    ):
        self._data = files.read_model(model)
        proto = files.parse_model(self._data)
        pieces = [piece.piece for piece in proto.pieces]
        added_tokens = strings_of("added_tokens", added_tokens)
        unknown = next(p.piece for p in proto.pieces if p.type == files.UNKNOWN)
        roles = (cls_token, sep_token, pad_token, mask_token, bos_token, eos_token, unknown)
        super().__init__(
            [*pieces, *self._appended(pieces, added_tokens)],
            dict(zip((*self.ROLES, "unknown"), roles)),
            additional_special_tokens,
            template,
            name=name,
        )
        self.normalization = checked_form(normalization)
        marks = strip_accents if strip_accents == ALL_MARKS else bool(strip_accents)
        texts = bool(lowercase), marks, bool(straighten_quotes), bool(collapse_whitespace)
        self._rules = Rules(
            preparation=Preparation(*texts),
            plain_tokens=_without(self._vocabulary.all_special_tokens, added_tokens),
            split_digit_commas=bool(split_digit_commas),
            added_tokens=added_tokens,
            lstrip_tokens=strings_of("lstrip_tokens", lstrip_tokens),
            rstrip_tokens=strings_of("rstrip_tokens", rstrip_tokens),
            prefix_once=bool(prefix_once),
            keep_first_space=bool(keep_first_space),
            strip_end=bool(strip_end),
            clean_up=bool(clean_up),
        )
        self._has_bytes = proto.trainer_spec.byte_fallback
        self._outer_space = outer_space(proto.normalizer_spec, collapse_whitespace)
        self._aligner = self._later = self._places = None  # made when they are needed
        Table(proto.normalizer_spec.precompiled_charsmap).read()  # refuses a damaged one
        if IS_INSTALLED and not has_text_operations():
            self._build()  # refuses some kinds of models

    def _build(self):
        """Make the model to run from the one that the file has, and the graph's tables."""
        proto = files.Model.FromString(self._data)
        self._proto = self._prepared(proto)
        charsmap = self._proto.normalizer_spec.precompiled_charsmap
        self._first_space = first_space(charsmap)
        spec = self._proto.normalizer_spec
        self._joins_spaces = spec.remove_extra_whitespaces
        self._has_own_space = spec.name == files.OWN_SPACE
        spec.add_dummy_prefix |= self._has_own_space  # which stands for it
        is_fast = runs_fast(proto)
        # What the reference drops before a text, the fast operation turns into the model's space.
        self._drops_space = is_fast and self._joins_spaces and not spec.add_dummy_prefix
        if is_fast:
            take_reference_rules(self._proto, self._rules.preparation)
        with_comma = []
        if self._rules.split_digit_commas:
            with_comma = pieces_with_comma([piece.piece for piece in proto.pieces])
        number_last(self._proto, with_comma)
        serialized = self._proto.SerializeToString()
        # TF Text has two operations: the fast one adds up scores in float32, like the
        # reference; the other one compares them in double precision, and is right for BPE.
        if not has_text_operations():
            self._matcher = None
            try:
                lite = self._make_lite(ALWAYS)
            except ValueError as error:
                raise ImportError(
                    f"SentencePieceTokenizer: this model's kind {INSTALL_TEXT}. ({error})"
                ) from error
            self._match = traced(lite, autograph=False)
        elif is_fast:
            self._matcher = tf_text.FastSentencepieceTokenizer(serialized)
        else:
            self._matcher = SentencePieceModel(serialized)
        if self._matcher is not None:
            self._match = traced(self._matched)
        lengths = [self._length(piece.piece) for piece in self._proto.pieces]
        self._lengths = tf.constant(lengths, tf.int64)  # (V,)
        self._begin_with_space = tf.constant([t.startswith(SPACE) for t in self.vocabulary])
        self._splits = CommaSplits(self, with_comma) if with_comma else None

    def _matched(self, text):
        if self._drops_space:
            text = tf.strings.regex_replace(text, f"^(?:{self._first_space})+", "")
        return self._matcher.tokenize(text)

    def _prepared(self, proto):
        special = set(self._vocabulary.all_special_tokens)
        return prepared_model(proto, self._rules.preparation, special)

    @staticmethod
    def _appended(pieces, tokens):
        """Return the added tokens that are not among a model's pieces."""
        own = set(pieces)
        return [token for token in tokens if token not in own]

    def _length(self, piece):
        is_byte = self._has_bytes and re.fullmatch(BYTE_PIECE, piece)
        return 1 if is_byte else len(piece.encode())

    # === Further words ===

    def _entries_of_word(self, word):
        ids = self([word])
        if self.special_id("unknown") not in ids.values.numpy():  # else it is not readable
            word = self.detokenize(ids)[0].numpy().decode()
        return [SPACE + word]

    def _grown(self, entries, config):
        config["added_tokens"] += entries
        return type(self)(self._data, **config)

    def _with_entries(self, entries):
        proto = files.parse_model(self._data)
        if proto.trainer_spec.model_type != files.UNIGRAM:
            raise ValueError(
                "This SentencePiece model is a BPE, which makes words by merges alone: it cannot "
                "take further ones."
            )
        own = [piece.piece for piece in proto.pieces]
        appended = self._appended(own, self._rules.added_tokens)
        if appended:
            raise ValueError(
                "The tokens that follow this SentencePiece model's own, such as "
                f"{appended[0]!r}, have the ids that further words would take."
            )
        scores = {p.piece: p.score for p in proto.pieces if p.type == files.NORMAL}
        pieces = self.tokens(self([entry.removeprefix(SPACE) for entry in entries])).to_list()
        for entry, parts in zip(entries, pieces):
            # As likely as the rarest of its pieces, so likelier than all of them together.
            score = min(scores.get(part.decode(), min(scores.values())) for part in parts)
            proto.pieces.add(piece=entry, score=score)
        return type(self)(proto.SerializeToString(), **self.get_config())

    # === Text to ids ===

    def _tokenize(self, text, special):
        tokens = [*self._rules.plain_tokens, *special]
        text = in_form(text, self.normalization)
        if not tokens:
            return self._pieces_of_parts(text, tf.ones_like(text, tf.bool))
        sides = self._rules.lstrip_tokens, self._rules.rstrip_tokens
        return strings.tokenize_parts(self, text, tokens, self._pieces_of_parts, *sides)

    def _pieces_of_parts(self, parts, begin_text):
        """Return the ragged (P, S) ids of (P,) parts of texts, which `begin_text` or not."""
        return self._by_prefix(parts, begin_text, lambda one, some: [one._pieces(some)])[0]

    def _by_prefix(self, parts, begin_text, find):
        """Find ragged (P, S) values of parts, some with the model's space before, others without.

        `find` takes a tokenizer and parts, and returns the values, a list.
        """
        rules = self._rules
        if not (rules.prefix_once or rules.keep_first_space or self._has_own_space):
            return find(self, parts)
        if self._later is None:
            proto = files.parse_model(self._data)
            proto.normalizer_spec.add_dummy_prefix = False
            proto.normalizer_spec.name = ""
            config = self.get_config() | {"prefix_once": False, "keep_first_space": False}
            with tf.init_scope():
                self._later = type(self)(proto.SerializeToString(), **config)
        is_spaced = tf.fill(tf.shape(begin_text), not self._has_own_space)
        if rules.prefix_once:
            is_spaced &= begin_text
        begins_with_space = tf.strings.regex_full_match(parts, f"(?s){self._first_space}.*")
        if self._joins_spaces:  # the model's space stands for those of the part
            is_spaced |= begins_with_space
        elif rules.keep_first_space:
            is_spaced &= ~begins_with_space
        some = [
            find(self, tf.boolean_mask(parts, is_spaced)),
            find(self._later, tf.boolean_mask(parts, ~is_spaced)),
        ]
        places = tf.argsort(tf.cast(~is_spaced, tf.int32), stable=True)  # of each part in `parts`
        places = tf.math.invert_permutation(places)
        return [tf.gather(tf.concat(pair, 0), places) for pair in zip(*some, strict=True)]

    def _stripped(self, text):
        return without_end_space(text) if self._rules.strip_end else text

    def _pieces(self, text):
        ids = self._match(self._stripped(strings.valid_utf8(text))).with_row_splits_dtype(tf.int64)
        return ids if self._splits is None else self._splits(ids)

    def has_offsets(self, parse_special: bool = False) -> bool:
        try:
            self._find_aligner()
        except ValueError:
            return False
        return True

    def _tokenize_with_offsets(self, text, special=()):
        return offsets_in_form(
            text, self.normalization, lambda text: self._in_normal_form(text, special)
        )

    def _in_normal_form(self, text, special):
        tokens = [*self._rules.plain_tokens, *special]
        parts = strings.part_tokens(text, tokens)  # ragged (B, P)
        ids, starts, ends = self._by_prefix(
            strings.without_tokens(parts.values),
            strings.begin_texts(parts),
            lambda one, some: one._spans(some),
        )  # ragged (P, S)
        if tokens:
            ids = strings.with_tokens(self, parts.values, ids, tokens)
            is_token = strings.is_token(parts.values)  # (P,)
            number = tf.cast(is_token, tf.int64)
            length = size(parts.values) - number
            whole = tf.RaggedTensor.from_row_lengths(
                tf.boolean_mask(length, is_token), number, validate=False
            )  # ragged (P, 1 or 0)
            starts = tf.concat([starts, tf.zeros_like(whole)], 1)
            ends = tf.concat([ends, whole], 1)
            # Offsets in a part become offsets in its text.
            before = tf.cumsum(length, exclusive=True)
            first = tf.gather(tf.concat([before, [0]], 0), parts.row_starts())
            before = (before - tf.gather(first, strings.row_ids(parts)))[:, tf.newaxis]
            starts, ends = starts + before, ends + before
        return tuple(parts.with_values(x).merge_dims(1, 2) for x in (ids, starts, ends))

    def _find_aligner(self):
        if self._aligner is None:
            with tf.init_scope():
                self._aligner = Aligner(self._proto, self._charsmap)
        return self._aligner

    def _spans(self, text):
        """Return ragged (B, S) `(ids, starts, ends)` of (B,) texts of valid UTF-8."""
        text = self._stripped(text)
        characters = self._find_aligner()(text)
        ids = self._match(text).with_row_splits_dtype(tf.int64)
        lengths = tf.gather(self._lengths, ids.values)  # (T,) in bytes of normalised text
        # Each unknown token is a run of unknown characters, in the same order.
        is_unknown = ids.values == self.special_id("unknown")
        runs = tf.boolean_mask(characters.lengths, characters.are_unknown)
        runs = tf.gather(tf.concat([[0], runs], 0), tf.cumsum(tf.cast(is_unknown, tf.int32)))
        lengths = tf.where(is_unknown, runs, lengths)
        if self._splits is not None:
            lengths = self._splits.lengths(ids.values, lengths)
            ids = self._splits(ids)
        before = self._size_of_space(ids.values, lengths)
        ends = tf.cumsum(lengths)
        places = tf.cumsum(characters.lengths, exclusive=True)
        first = tf.searchsorted(places, ends - lengths + before, "right", tf.int64) - 1
        last = tf.searchsorted(places, ends - 1, "right", tf.int64) - 1
        starts, ends = tf.gather(characters.starts, first), tf.gather(characters.ends, last)
        return ids, ids.with_values(starts), ids.with_values(ends)

    def tokenize_lite(self, text: Tensor) -> Tensor:
        """Return ragged (B, S) ids of (B,) texts like a call, with operations that LiteRT has.

        The ids are the same for all valid UTF-8 without added tokens, which are not found; with
        TensorFlow Text's operations, if it is in the form of `normalization` already; and without
        other white space than spaces at its end if `strip_end` is given.

        Raises:
            ValueError: with TensorFlow Text's operations, if this is not a plain unigram model, the
                only kind for which its kernel in LiteRT is right.
        """
        if self.normalization and not has_text_operations():

            def find(text):
                return (self._ids_lite(text),)

            return unicode_forms.tokens_in_form_lite(text, self.normalization, find)[0]
        return self._ids_lite(text)

    def _ids_lite(self, text):
        ids = self._model_ids_lite(text)
        return ids if self._splits is None else self._splits.lite(ids)

    def _model_ids_lite(self, text):
        """Return what `tokenize_lite` does, before pieces with a comma are split."""
        if not has_text_operations():
            return self._lite(text)
        is_fast = isinstance(self._matcher, tf_text.FastSentencepieceTokenizer)
        if not is_fast or self._rules.keep_first_space or self._drops_space:
            raise ValueError(
                "this SentencePiece model is not a plain unigram model, for which alone LiteRT has "
                "a kernel: TF Text's FastSentencepieceTokenizer. Export with tokenizer='bytes', or "
                "as a SavedModel."
            )
        ids = self._lite_matcher.tokenize(text)
        # LiteRT cannot return empty tensors from custom operations, but it can from its own.
        return ids.with_values(tf.concat([ids.values, [0]], 0)[:-1])

    @functools.cached_property
    def _lite_matcher(self):
        if not self._has_own_space:
            return self._matcher
        proto = files.Model.FromString(self._proto.SerializeToString())
        proto.normalizer_spec.add_dummy_prefix = False  # the operation leaves one at the start
        with tf.init_scope():
            return tf_text.FastSentencepieceTokenizer(proto.SerializeToString())

    @functools.cached_property
    def _lite(self):
        with tf.init_scope():
            return self._make_lite(self._prefix)

    def _make_lite(self, prefix):
        return LiteSentencePiece(self._proto, self._charsmap, prefix)

    @property
    def _prefix(self):
        """Which texts the model's space is added to, see `LiteSentencePiece`."""
        if self._has_own_space:  # it stands for those that a text begins with
            return IF_SPACE if self._joins_spaces else NEVER
        keeps = self._rules.keep_first_space and not self._joins_spaces
        return UNLESS_SPACE if keeps else ALWAYS

    @property
    def _charsmap(self):
        """The table of characters, before characters without a piece become one byte."""
        return self._prepared(files.parse_model(self._data)).normalizer_spec.precompiled_charsmap

    def tokenize_lite_with_offsets(self, text: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what `tokenize_lite` does, and where tokens start and end in characters."""
        if self._places is None:
            with tf.init_scope():
                model = characters_of(self._proto)
                find = CharacterFinder(model, self._charsmap, self._prefix)
                self._places = LitePlaces(find, self._has_bytes)
        if self.normalization and not has_text_operations():
            find = self._spans_lite
            return unicode_forms.tokens_in_form_lite(text, self.normalization, find)
        return self._spans_lite(text)

    def _spans_lite(self, text):
        ids = self._model_ids_lite(text)
        lengths = tf.gather(tf.cast(self._lengths, tf.int32), ids.values)
        split = self._splits.lite_with_lengths if self._splits else lambda *both: both
        return self._places(
            text, ids, lengths, self.special_id("unknown"), split, self._size_of_space
        )

    def _size_of_space(self, ids, lengths):
        """Return the size of the space that each piece begins with, 0 if that is all of it."""
        is_more = tf.gather(self._begin_with_space, ids) & (lengths > SPACE_SIZE)
        return SPACE_SIZE * tf.cast(is_more, lengths.dtype)

    @property
    def _added_in_text(self):
        return [] if self._rules.prefix_once else self._rules.plain_tokens

    def _sides(self, tokens):
        if self._rules.prefix_once:
            raise ValueError(
                "prefix_once=True: LiteRT does not find special tokens in text of such a "
                "SentencePiece model. Export as a SavedModel instead."
            )
        return self._rules.lstrip_tokens, self._rules.rstrip_tokens

    def plain_model(self) -> Any:
        """Return a parsed model, with which the package `sentencepiece` alone finds the ids.

        It has no added tokens. With `split_digit_commas`, it does without the pieces that are to be
        split, which seldom finds others than splitting them.
        """
        model = self._prepared(files.parse_model(self._data))
        if self._rules.split_digit_commas:
            for i in pieces_with_comma([piece.piece for piece in model.pieces]):
                model.pieces[i].type = files.CONTROL
        return model

    def _begins_word(self, token):
        is_first = token.startswith((SPACE, "<")) and not re.fullmatch(BYTE_PIECE, token)
        return is_first or token in MARKS

    # === Ids to text ===

    def _join(self, entries):
        if self._has_bytes:
            entries = entries.with_values(bytes_of_pieces(entries.values))
        text = strings.join(entries)
        if self._has_bytes:
            text = strings.valid_utf8(text)
        text = tf.strings.regex_replace(text, SPACE, " ")
        text = tf.strings.regex_replace(text, self._outer_space, "")
        return strings.cleaned_up(text) if self._rules.clean_up else text

    def _spellings_alone(self):
        outer = {"^ +| +$": [without_outer_spaces], "^ ": [without_first_space], "^$": []}
        changes = *outer[self._outer_space], *cleaning(self._rules.clean_up)
        return [*map(self._spelling, self.vocabulary)], *changes

    def _spelling(self, piece):
        if self._has_bytes and re.fullmatch(BYTE_PIECE, piece):
            return bytes([int(piece[3:5], 16)])
        return piece.replace(SPACE, " ").encode()

    # === Files ===

    def get_config(self) -> dict[str, Any]:
        rules = dataclasses.asdict(self._rules)
        del rules["plain_tokens"]
        return super().get_config() | {
            **rules.pop("preparation"),
            **rules,
            "normalization": self.normalization,
            "template": self.template,
        }

    def save_assets(self, folder: PathLike) -> None:
        with open(os.path.join(folder, "spiece.model"), "wb") as file:
            file.write(self._data)

    @classmethod
    def from_assets(cls, folder: PathLike, config: dict[str, Any]) -> Self:
        return cls(os.path.join(folder, "spiece.model"), **config)

    @classmethod
    def from_files(
        cls,
        folder: PathLike,
        family: str | None = None,
        usual_family: str = "plain",
        **overrides: Any,
    ) -> Self:
        """Return the tokenizer that a folder with a published checkpoint describes.

        Reads the model (`spiece.model`, `spm.model`, `sentencepiece.bpe.model`, `tokenizer.model`
        and the names that google-research and KerasHub use) or else `tokenizer.json`, and the
        settings of Hugging Face's other JSON files, if they exist. What these do not state depends
        on the family: `"albert"`, `"xlnet"`, `"t5"`, `"xlm_roberta"` (whose ids are not its
        model's), `"deberta"`, or `"plain"` for SentencePiece and nothing else. None takes the
        family that the folder's configurations state, or else `usual_family`.

        Raises:
            FileNotFoundError: if there is no model.
            ValueError: if a file is damaged or asks for something that this class does not do.
        """
        with published_files.reading(folder):
            data, settings = sentence_piece_files.read_folder(folder, family, usual_family)
        return cls(data, **{**settings, **overrides})


def _without(others, tokens):
    """Return a list of tokens without some others."""
    others = {*others}
    return [token for token in tokens if token not in others]


# === From a model's file to the one that TF Text's operations run ===


def runs_fast(proto):
    """Whether TF Text's fast operation is right for a model.

    It only knows unigram models, and takes tabs and ends of lines for spaces.
    """
    spec = proto.trainer_spec
    if spec.model_type != files.UNIGRAM or spec.byte_fallback:
        return False
    return not any(letter in piece.piece for piece in proto.pieces for letter in "\t\n\r")


def prepared_model(proto, preparation, special):
    """Return the model to run: it prepares text, and never returns special tokens."""
    prepared = files.Model()
    prepared.CopyFrom(proto)
    normalizer = prepared.normalizer_spec
    if preparation:
        normalizer.precompiled_charsmap = compose(normalizer.precompiled_charsmap, preparation)
    if preparation.collapse_whitespace:
        normalizer.remove_extra_whitespaces = True
    for i, piece in enumerate(prepared.pieces):
        if piece.type == files.UNKNOWN:
            # The fast operation reads this number, which other tools may leave wrong.
            prepared.trainer_spec.unk_id = i
        elif piece.piece in special or (
            # (The model never sees what preparation changes.)
            piece.type == files.USER_DEFINED and preparation(piece.piece) != piece.piece
        ):
            piece.type = files.CONTROL
            if len(piece.piece) == 1:
                # A model of byte pairs fails on a character that is one: no text has NUL after it.
                piece.piece += "\0"
    return prepared


def take_reference_rules(model, preparation):
    """Change a parsed model so that the fast operation agrees with the reference."""
    kept = [p for p in model.pieces if p.type == files.USER_DEFINED]
    for piece in kept:
        # Whatever the file says: another score would also change how later sums are rounded.
        piece.score = 0.1 * (len(piece.piece.encode()) - 1)
    known = frozenset().union(*(piece.piece for piece in model.pieces))
    # (Twice because of `` and '', which preparation changes as a whole.)
    texts = {p.piece for p in kept if preparation(2 * p.piece) == 2 * p.piece}
    model.normalizer_spec.precompiled_charsmap = shorten_unknown(
        model.normalizer_spec.precompiled_charsmap,
        known,
        frozenset(text for text in texts if text and "\0" not in text),
    )


# === Spaces, and bytes that are pieces ===


def first_space(charsmap):
    """Return a pattern of what becomes a space, once a table has changed it."""
    table = Table(charsmap)
    table.read()
    single = {key: text for key, text in table.rules.items() if len(key) == 1}
    spaces = [key for key, text in single.items() if text.startswith(" ")]
    dropped = [key for key, text in single.items() if not text]
    before = f"[{regex_literal(dropped)}]*" if dropped else ""
    return f"{before}[{regex_literal([' ', SPACE, *spaces])}]"


def without_end_space(text):
    """Return (B,) texts without white space at their ends."""
    white = unicode_ranges.character_class(unicode_ranges.WHITE_SPACE)
    return tf.strings.regex_replace(text, f"[{white}]+$", "")


def outer_space(normalizer, collapse_whitespace):
    """Return a pattern of the spaces around text that the model adds."""
    if normalizer.remove_extra_whitespaces or collapse_whitespace:
        return "^ +| +$"
    return "^ " if normalizer.add_dummy_prefix else "^$"


def bytes_of_pieces(pieces):
    """Replace those of (T,) pieces that stand for a byte by that byte."""
    places = tf.where(tf.strings.regex_full_match(pieces, BYTE_PIECE))
    digits = tf.strings.substr(tf.gather_nd(pieces, places), 3, 2)
    digits = tf.cast(tf.io.decode_raw(digits, tf.uint8, fixed_length=2), tf.int32) - ord("0")
    digits = tf.where(digits > 9, digits - (ord("A") - ord("9") - 1), digits)  # (found, 2)
    table = tf.constant([bytes([i]) for i in range(256)])
    return tf.tensor_scatter_nd_update(
        pieces, places, tf.gather(table, digits[:, 0] * 16 + digits[:, 1])
    )


# === Commas after numbers ===


def pieces_with_comma(pieces):
    """Return the ids of pieces that end with a digit and a comma, such as "▁1990,"."""
    return [
        i
        for i, piece in enumerate(pieces)
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
    ]


def number_last(model, ids):
    """Move some pieces of a parsed model to the end; the ids of all others stay."""
    for i in ids:
        model.pieces.add().CopyFrom(model.pieces[i])
        # The old piece becomes one that no text has: with NUL.
        model.pieces[i].piece += "\0"
        model.pieces[i].type = files.CONTROL


class CommaSplits(tf.Module):
    """Splits the comma from pieces that end with a digit and a comma.

    Such pieces are rare. One comparison finds them, because `number_last` moved them to the end.
    """

    def __init__(self, tokenizer, ids):
        super().__init__()
        pieces, unknown = tokenizer.vocabulary, tokenizer.special_id("unknown")
        numbers = [pieces[i][:-1].replace(SPACE, "") for i in ids]
        table, lengths = [], []
        for i, parts in zip(ids, tokenizer._match(tf.constant(numbers)).to_list()):
            parts = [pieces[part] for part in parts]
            if parts and pieces[i][0] != SPACE:
                parts[0] = parts[0].removeprefix(SPACE)
            parts = [part for part in parts if part] + [","]
            if "".join(parts) != pieces[i]:
                parts = [pieces[i]]
            table.append([tokenizer._vocabulary.ids.get(part, unknown) for part in parts])
            lengths.append([len(part.encode()) for part in parts])
        self._num_rows = len(ids)
        self._first = len(tokenizer._proto.pieces) - self._num_rows
        with tf.init_scope():
            # The row after these is empty, and comes after the last piece of all texts.
            self._table = tf.ragged.constant([*table, []], tf.int32, row_splits_dtype=tf.int64)
            self._lengths = tf.ragged.constant([*lengths, []], tf.int64, row_splits_dtype=tf.int64)
            # For LiteRT, which cannot gather ragged rows; row 0 is for all other pieces.
            self._dense, self._dense_lengths = (
                tf.pad(tf.cast(x.to_tensor(-1), tf.int32), [[1, 0], [0, 0]], constant_values=-1)
                for x in (self._table, self._lengths)
            )

    def __call__(self, ids):
        """Return the vocabulary's ids for the model's, both ragged (B, S)."""
        places = tf.where(ids.values >= self._first)[:, 0]
        values, shifts = self._replace(ids.values, ids.values, places, self._table)
        splits = ids.row_splits + tf.gather(shifts, tf.searchsorted(places, ids.row_splits))
        return tf.RaggedTensor.from_row_splits(values, splits, validate=False)

    def lengths(self, ids, lengths):
        """Return the lengths in bytes of what the model's (T,) ids become, given their own."""
        places = tf.where(ids >= self._first)[:, 0]
        return self._replace(lengths, ids, places, self._lengths)[0]

    def _replace(self, values, ids, places, table):
        """Put a table's rows at some places; also return by how much later values move."""
        # Places are few. So what is between two of them is a row, copied as a whole.
        size = tf.size(values, tf.int64)
        starts, ends = tf.concat([[0], places + 1], 0), tf.concat([places, [size]], 0)
        bounds = tf.reshape(tf.stack([starts, ends], 1), [-1])  # kept, replaced, kept, …, kept
        rows = tf.RaggedTensor.from_row_splits(
            tf.concat([values, table.values], 0),
            tf.concat([bounds, size + table.row_splits[1:]], 0),
            validate=False,
        )
        kept = 2 * tf.range(tf.size(starts))
        replaced = tf.concat([tf.gather(ids, places) - self._first, [self._num_rows]], 0)
        replaced += 2 * tf.size(starts) - 1
        joined = tf.gather(rows, tf.reshape(tf.stack([kept, replaced], 1), [-1]))
        return joined.values, joined.row_splits[:-1:2] - starts

    def lite(self, ids):
        """Return ids like a call, without ragged gathers."""
        return self._in_parts(ids, ids.values, self._dense)

    def lite_with_lengths(self, ids, lengths):
        """Return ids like `lite`, and their lengths, given those of the model's (T,) ids."""
        return self.lite(ids), self._in_parts(ids, lengths, self._dense_lengths).values

    def _in_parts(self, ids, values, table):
        rows = tf.maximum(ids.values - self._first + 1, 0)
        parts = tf.gather(table, rows)
        first = tf.where(rows > 0, parts[:, 0], values)
        parts = tf.concat([first[:, tf.newaxis], parts[:, 1:]], 1)
        is_there = parts >= 0
        ends = tf.cumsum(tf.reduce_sum(tf.cast(is_there, ids.row_splits.dtype), 1))
        splits = tf.gather(tf.concat([tf.zeros_like(ids.row_splits[:1]), ends], 0), ids.row_splits)
        return tf.RaggedTensor.from_row_splits(
            tf.boolean_mask(parts, is_there), splits, validate=False
        )


# === Offsets ===


class Aligner(tf.Module):
    """Finds the offsets of pieces in a text.

    A model of single characters with the same normalizer maps each normalised character to the
    bytes of the text that it came from. A run of characters without pieces is one unknown token in
    both models, so that its length is known.

    Args:
        proto: the parsed model.
        charsmap: bytes, its table of characters, in which unknown ones keep their length.
    """

    def __init__(self, proto, charsmap):
        super().__init__()
        model = characters_of(proto)
        self._has_bytes = model.trainer_spec.byte_fallback
        known = {piece.piece for piece in model.pieces}
        for piece in proto.pieces:
            is_normal = piece.type == files.NORMAL
            if is_normal and not self._has_bytes and not known.issuperset(piece.piece):
                raise ValueError(
                    f"offsets are unknown: `model` holds the piece {piece.piece!r}, and not "
                    "each of its characters as a piece."
                )
        if has_text_operations():
            self._model = SentencePieceModel(model.SerializeToString())
        else:
            self._model = CharacterModel(model, charsmap)
        unknown = [i for i, p in enumerate(model.pieces) if p.type == files.UNKNOWN]
        self._unknown = unknown[0]

    def __call__(self, text):
        """Return the normalised characters of (B,) texts, one text after the other."""
        return self.rows(text)[1]

    def rows(self, text):
        """Return the row splits (B + 1,), and the characters."""
        splits, pieces, starts, ends = self._model.rows_with_offsets(text)
        lengths = size(pieces)
        if self._has_bytes:
            is_byte = tf.strings.regex_full_match(pieces, files.BYTE_PIECE)
            lengths = tf.where(is_byte, tf.ones_like(lengths), lengths)
        are_unknown = self._model.string_to_id(pieces) == self._unknown
        return splits, Characters(pieces, lengths, starts, ends, are_unknown)


def characters_of(proto):
    """Return a parsed model with the same normalizer, whose pieces are single characters."""
    model = files.Model()
    model.CopyFrom(proto)
    del model.pieces[:]
    model.pieces.extend(p for p in proto.pieces if _is_character(p))
    model.trainer_spec.model_type = files.CHARACTER
    return model


class Characters(typing.NamedTuple):
    """All normalised characters of some texts: (N,) tensors."""

    pieces: tf.Tensor  # normalised
    lengths: tf.Tensor  # of these, in bytes
    starts: tf.Tensor  # in the text
    ends: tf.Tensor
    are_unknown: tf.Tensor


def _is_character(piece):
    if piece.type == files.NORMAL:
        return len(piece.piece) == 1
    # Models of characters also keep what the user defined whole.
    return piece.type in (files.UNKNOWN, files.USER_DEFINED, files.BYTE)
