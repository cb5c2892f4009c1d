"""SentencePiece: the tokenizer of ALBERT, XLNet, T5, XLM-R and DeBERTa."""

import dataclasses
import os
import re
import types
from collections.abc import Sequence
from typing import Any, Self

from keras_lm.tensorflow import IS_INSTALLED, tf, tf_text
from keras_lm.tokenizers import published_files, sentence_piece_folders, strings
from keras_lm.tokenizers import sentence_piece_model as files
from keras_lm.tokenizers import sentence_piece_running as running
from keras_lm.tokenizers import sentence_piece_steps as steps
from keras_lm.tokenizers.sentence_piece_lite import LitePlaces
from keras_lm.tokenizers.sentence_piece_model import BYTE_PIECE, MARKS, SPACE
from keras_lm.tokenizers.sentence_piece_normalizer import ALL_MARKS, Preparation
from keras_lm.tokenizers.sentence_piece_resource import SentencePieceModel
from keras_lm.tokenizers.strings import checked_form, size
from keras_lm.tokenizers.tokenizer import Tokenizer, traced
from keras_lm.tokenizers.vocabulary import strings_of
from keras_lm.utils.argument_types import PathLike, Tensor

SPACE_SIZE = len(SPACE.encode())


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
        normalization: str, `"NFC"`, `"NFD"`, `"NFKC"` or `"NFKD"`, Unicode's form in which text is
            put first, or None.
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
    PUBLISHED_FILES = sentence_piece_folders.MODEL_FILES
    has_offsets_of_special = True

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
        preparation = Preparation(
            bool(lowercase),
            strip_accents if strip_accents == ALL_MARKS else bool(strip_accents),
            bool(straighten_quotes),
            bool(collapse_whitespace),
        )
        # (A namespace, because a module would track bare lists and dicts.)
        self._rules = types.SimpleNamespace(
            preparation=preparation,
            split_digit_commas=bool(split_digit_commas),
            added_tokens=added_tokens,
            plain_tokens=[t for t in added_tokens if t not in self._vocabulary.all_special_tokens],
            lstrip_tokens=strings_of("lstrip_tokens", lstrip_tokens),
            rstrip_tokens=strings_of("rstrip_tokens", rstrip_tokens),
            prefix_once=bool(prefix_once),
            keep_first_space=bool(keep_first_space),
            strip_end=bool(strip_end),
            clean_up=bool(clean_up),
            first_space=None,
            has_bytes=proto.trainer_spec.byte_fallback,
            outer_space=running.outer_space(proto.normalizer_spec, collapse_whitespace),
            proto=running.prepared_model(
                proto, preparation, set(self._vocabulary.all_special_tokens)
            ),
        )
        if self._rules.keep_first_space:
            charsmap = self._rules.proto.normalizer_spec.precompiled_charsmap
            self._rules.first_space = steps.first_space(charsmap)
        if running.is_fast(proto):
            running.take_reference_rules(self._rules.proto, preparation)
        with_comma = steps.with_comma(pieces) if split_digit_commas else []
        steps.number_last(self._rules.proto, with_comma)
        serialized = self._rules.proto.SerializeToString()
        if not IS_INSTALLED:
            return
        with tf.init_scope():
            # TF Text has two operations: the fast one adds up scores in float32, like the
            # reference; the other one compares them in double precision, and is right for BPE.
            if running.is_fast(proto):
                self._matcher = tf_text.FastSentencepieceTokenizer(serialized)
            else:
                self._matcher = SentencePieceModel(serialized)
            self._match = traced(self._matcher.tokenize)
            lengths = [self._length(piece.piece) for piece in self._rules.proto.pieces]
            self._lengths = tf.constant(lengths, tf.int64)  # (V,)
            self._begin_with_space = tf.constant([t.startswith(SPACE) for t in self.vocabulary])
        self._splits = steps.CommaSplits(self, with_comma) if with_comma else None
        self._aligner = self._later = self._places = None  # made when they are needed

    @staticmethod
    def _appended(pieces, tokens):
        """Return the added tokens that are not among a model's pieces."""
        own = set(pieces)
        return [token for token in tokens if token not in own]

    def _length(self, piece):
        is_byte = self._rules.has_bytes and re.fullmatch(BYTE_PIECE, piece)
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
        text = strings.in_form(text, self.normalization)
        if not tokens:
            return self._pieces_of_parts(text, tf.ones_like(text, tf.bool))
        sides = self._rules.lstrip_tokens, self._rules.rstrip_tokens
        return steps.tokenize_parts(self, text, tokens, self._pieces_of_parts, *sides)

    def _pieces_of_parts(self, parts, begin_text):
        """Return the ragged (P, S) ids of (P,) parts of texts, which `begin_text` or not."""
        return self._by_prefix(parts, begin_text, lambda one, some: [one._pieces(some)])[0]

    def _by_prefix(self, parts, begin_text, find):
        """Find ragged (P, S) values of parts, some with the model's space before, others without.

        `find` takes a tokenizer and parts, and returns the values, a list.
        """
        rules = self._rules
        if not (rules.prefix_once or rules.keep_first_space):
            return find(self, parts)
        if self._later is None:
            proto = files.parse_model(self._data)
            proto.normalizer_spec.add_dummy_prefix = False
            config = self.get_config() | {"prefix_once": False, "keep_first_space": False}
            with tf.init_scope():
                self._later = type(self)(proto.SerializeToString(), **config)
        is_spaced = tf.ones_like(begin_text)
        if rules.prefix_once:
            is_spaced &= begin_text
        if rules.keep_first_space:
            is_spaced &= ~tf.strings.regex_full_match(parts, rules.first_space)
        some = [
            find(self, tf.boolean_mask(parts, is_spaced)),
            find(self._later, tf.boolean_mask(parts, ~is_spaced)),
        ]
        places = tf.argsort(tf.cast(~is_spaced, tf.int32), stable=True)  # of each part in `parts`
        places = tf.math.invert_permutation(places)
        return [tf.gather(tf.concat(found, 0), places) for found in zip(*some, strict=True)]

    def _stripped(self, text):
        return steps.without_end_space(text) if self._rules.strip_end else text

    def _pieces(self, text):
        ids = self._match(self._stripped(strings.valid_utf8(text))).with_row_splits_dtype(tf.int64)
        return ids if self._splits is None else self._splits(ids)

    def has_offsets(self, parse_special=False):
        try:
            self._find_aligner()
        except ValueError:
            return False
        return True

    def _tokenize_with_offsets(self, text, special=()):
        return strings.offsets_in_form(
            text, self.normalization, lambda text: self._in_normal_form(text, special)
        )

    def _in_normal_form(self, text, special):
        tokens = [*self._rules.plain_tokens, *special]
        parts = steps.part_tokens(text, tokens)  # ragged (B, P)
        ids, starts, ends = self._by_prefix(
            steps.without_tokens(parts.values),
            steps.begin_texts(parts),
            lambda one, some: one._spans(some),
        )  # ragged (P, S)
        if tokens:
            ids = steps.with_tokens(self, parts.values, ids, tokens)
            is_token = steps.is_token(parts.values)  # (P,)
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
                self._aligner = steps.Aligner(self._rules.proto)
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
        # A span leaves out the space that a piece begins with, unless that is all of it.
        is_more = tf.gather(self._begin_with_space, ids.values) & (lengths > SPACE_SIZE)
        before = SPACE_SIZE * tf.cast(is_more, tf.int64)
        ends = tf.cumsum(lengths)
        places = tf.cumsum(characters.lengths, exclusive=True)
        first = tf.searchsorted(places, ends - lengths + before, "right", tf.int64) - 1
        last = tf.searchsorted(places, ends - 1, "right", tf.int64) - 1
        starts, ends = tf.gather(characters.starts, first), tf.gather(characters.ends, last)
        return ids, ids.with_values(starts), ids.with_values(ends)

    def tokenize_lite(self, text: Tensor) -> Any:
        """Return ragged (B, S) ids of (B,) texts like a call, with operations that LiteRT has.

        The ids are the same for all valid UTF-8 without added tokens, which are not found, if it is
        in the form of `normalization` already, and without other white space than spaces at its end
        if `strip_end` is given.

        Raises:
            ValueError: if this is not a plain unigram model, the only kind for which LiteRT's
                kernel is right.
        """
        is_fast = isinstance(self._matcher, tf_text.FastSentencepieceTokenizer)
        if not is_fast or self._rules.keep_first_space:
            raise ValueError(
                "this SentencePiece model is not a plain unigram model, for which alone LiteRT has "
                "a kernel: TF Text's FastSentencepieceTokenizer. Export as a SavedModel instead."
            )
        ids = self._matcher.tokenize(text)
        # LiteRT cannot return empty tensors from custom operations, but it can from its own.
        ids = ids.with_values(tf.concat([ids.values, [0]], 0)[:-1])
        return ids if self._splits is None else self._splits.lite(ids)

    def tokenize_lite_with_offsets(self, text: Tensor) -> Any:
        """Return what `tokenize_lite` does, and where tokens start and end in characters.

        Places are those of a call, unless normalisation joins characters, as a letter and a mark
        after it: then those of later tokens of the same word, up to a space, may be one off.
        """
        if self._places is None:
            with tf.init_scope():
                self._places = LitePlaces(self, self._find_aligner())
        return self._places(text)

    def plain_model(self):
        """Return a parsed model, with which the package `sentencepiece` alone finds the ids.

        It has no added tokens. With `split_digit_commas`, it does without the pieces that are to be
        split, which seldom finds others than splitting them.
        """
        proto, special = files.parse_model(self._data), set(self._vocabulary.all_special_tokens)
        model = running.prepared_model(proto, self._rules.preparation, special)
        if self._rules.split_digit_commas:
            for i in steps.with_comma([piece.piece for piece in model.pieces]):
                model.pieces[i].type = files.CONTROL
        return model

    def _begins_word(self, token):
        is_first = token.startswith((SPACE, "<")) and not re.fullmatch(BYTE_PIECE, token)
        return is_first or token in MARKS

    # === Ids to text ===

    def _join(self, entries):
        if self._rules.has_bytes:
            entries = entries.with_values(running.bytes_of_pieces(entries.values))
        text = strings.join(entries)
        if self._rules.has_bytes:
            text = strings.valid_utf8(text)
        text = tf.strings.regex_replace(text, SPACE, " ")
        text = tf.strings.regex_replace(text, self._rules.outer_space, "")
        return strings.cleaned_up(text) if self._rules.clean_up else text

    # === Files ===

    def get_config(self):
        names = ("split_digit_commas", "added_tokens", "lstrip_tokens", "rstrip_tokens")
        names = (*names, "prefix_once", "keep_first_space", "strip_end", "clean_up")
        rules = {name: getattr(self._rules, name) for name in names}
        return super().get_config() | {
            **dataclasses.asdict(self._rules.preparation),
            **{name: list(x) if isinstance(x, list) else x for name, x in rules.items()},
            "normalization": self.normalization,
            "template": self.template,
        }

    def save_assets(self, folder):
        with open(os.path.join(folder, "spiece.model"), "wb") as file:
            file.write(self._data)

    @classmethod
    def from_assets(cls, folder, config):
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
            data, settings = sentence_piece_folders.read_folder(folder, family, usual_family)
        return cls(data, **{**settings, **overrides})
