"""Around SentencePiece's operation: parting commas from numbers, finding places in texts."""

import hashlib
import typing

import tensorflow as tf
import tensorflow_text as tf_text

from keras_lm.tokenizers import ragged, sentence_piece_files


def named_operation(model, **kwargs):
    """Return TF Text's `SentencepieceTokenizer` of a serialized model, under a name of its own.

    Where SavedModels are loaded, models are found by name, those of all SavedModels in a process:
    two that had one name would be one.
    """
    name = "sentencepiece_" + hashlib.sha256(model).hexdigest()[:16]
    return tf_text.SentencepieceTokenizer(model, name=name, **kwargs)


class CommaSplits(tf.Module):
    """Parts the comma from pieces such as "▁1990,"; what they become stands in tables."""

    def __init__(self, tokenizer):
        super().__init__()
        pieces, unknown = tokenizer.vocabulary, tokenizer.special_id("unknown")
        found = {
            i: piece
            for i, piece in enumerate(pieces)
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
        }
        numbers = [piece[:-1].replace(sentence_piece_files.SPACE, "") for piece in found.values()]
        ids = tokenizer._match(tf.constant(numbers, tf.string)).to_list()
        table, lengths = [[i] for i in range(len(pieces))], [[0] for _ in pieces]
        for (i, piece), parts in zip(found.items(), ids):
            parts = [pieces[part] for part in parts]
            if parts and piece[0] != sentence_piece_files.SPACE:
                parts[0] = parts[0].removeprefix(sentence_piece_files.SPACE)
            parts = [part for part in parts if part] + [","]
            if "".join(parts) == piece:
                table[i] = [tokenizer._vocabulary.ids.get(part, unknown) for part in parts]
                lengths[i] = [len(part.encode()) for part in parts]
        with tf.init_scope():
            self._table = _ragged(table, tf.int32)
            self._lengths = _ragged(lengths, tf.int64)
            # For LiteRT, which cannot gather ragged rows: 0, or the row of a dense table.
            split = [row for row in table if len(row) > 1]
            width = max(map(len, split), default=1)
            numbers = iter(range(1, len(split) + 1))
            self._rows = tf.constant([next(numbers) if len(r) > 1 else 0 for r in table], tf.int32)
            self._dense = tf.constant(
                [[-1] * width] + [row + [-1] * (width - len(row)) for row in split], tf.int32
            )

    def __call__(self, ids):
        parts = tf.gather(self._table, ids.values)
        return tf.RaggedTensor.from_row_splits(
            parts.values, tf.gather(parts.row_splits, ids.row_splits), validate=False
        )

    def lengths(self, ids, lengths):
        """Return the lengths in bytes of what (T,) pieces of these lengths become."""
        parts = tf.gather(self._lengths, ids)
        return tf.where(parts.values > 0, parts.values, tf.gather(lengths, ragged.row_ids(parts)))

    def lite(self, ids):
        """Do as calling does, without ragged gathers."""
        row = tf.gather(self._rows, ids.values)
        parts = tf.gather(self._dense, row)
        first = tf.where(row > 0, parts[:, 0], ids.values)
        parts = tf.concat([first[:, tf.newaxis], parts[:, 1:]], 1)
        is_there = parts >= 0
        ends = tf.cumsum(tf.reduce_sum(tf.cast(is_there, ids.row_splits.dtype), 1))
        splits = tf.gather(tf.concat([tf.zeros_like(ids.row_splits[:1]), ends], 0), ids.row_splits)
        return tf.RaggedTensor.from_row_splits(
            tf.boolean_mask(parts, is_there), splits, validate=False
        )


def _ragged(rows, dtype):
    # `tf.ragged.constant` takes seconds for tens of thousands of rows.
    values = tf.constant([value for row in rows for value in row], dtype)
    return tf.RaggedTensor.from_row_lengths(values, [len(row) for row in rows])


class Aligner(tf.Module):
    """Finds where in a text its pieces stand.

    A model of single characters with the same normalizer says for each normalised character which
    bytes of the text it came from. Runs of characters that have no piece are one unknown token
    there as in the model itself, and so tell the lengths of those.
    """

    def __init__(self, proto):
        super().__init__()
        model = sentence_piece_files.Model()
        model.CopyFrom(proto)
        del model.pieces[:]
        model.pieces.extend(p for p in proto.pieces if _is_character(p))
        model.trainer_spec.model_type = sentence_piece_files.CHARACTER
        self._has_bytes = model.trainer_spec.byte_fallback
        known = {piece.piece for piece in model.pieces}
        for piece in proto.pieces:
            is_normal = piece.type == sentence_piece_files.NORMAL
            if is_normal and not self._has_bytes and not known.issuperset(piece.piece):
                raise ValueError(
                    f"offsets cannot be told: `model` holds the piece {piece.piece!r}, and not "
                    "each of its characters as a piece."
                )
        self._model = named_operation(model.SerializeToString(), out_type=tf.string)
        unknown = [i for i, p in enumerate(model.pieces) if p.type == sentence_piece_files.UNKNOWN]
        self._unknown = unknown[0]

    def __call__(self, text):
        """Return flat tensors about all normalised characters of (B,) texts, in their order."""
        pieces, starts, ends = self._model.tokenize_with_offsets(text)
        lengths = size(pieces.values)
        if self._has_bytes:
            is_byte = tf.strings.regex_full_match(pieces.values, sentence_piece_files.BYTE_PIECE)
            lengths = tf.where(is_byte, tf.ones_like(lengths), lengths)
        are_unknown = self._model.string_to_id(pieces.values) == self._unknown
        return Characters(lengths, starts.values, ends.values, are_unknown)


class Characters(typing.NamedTuple):
    """All normalised characters of some texts, one after the other."""

    lengths: tf.Tensor  # in bytes, normalised
    starts: tf.Tensor  # in the text
    ends: tf.Tensor
    are_unknown: tf.Tensor


def size(text):
    """Return how many bytes (T,) strings have, in int64."""
    return tf.cast(tf.strings.length(text), tf.int64)


def _is_character(piece):
    kinds = sentence_piece_files
    if piece.type in (kinds.NORMAL, kinds.USER_DEFINED):
        return len(piece.piece) == 1
    return piece.type in (kinds.UNKNOWN, kinds.BYTE)
