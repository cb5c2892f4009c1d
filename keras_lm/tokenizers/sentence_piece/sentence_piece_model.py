"""TF Text's SentencePiece operations on a model that lasts."""

import hashlib
import math

import tensorflow as tf
from tensorflow_text.python.ops.sentencepiece_tokenizer import (
    gen_sentencepiece_tokenizer as operations,
)

# It ends the process on a piece of some hundred thousand bytes.
LONGEST_PIECE, MOST_PIECES = 1000, 2**20
PLAIN = {"nbest_size": 0, "alpha": 1.0, "add_bos": False, "add_eos": False, "reverse": False}


class SentencePieceModel(tf.saved_model.experimental.TrackableResource):
    """A serialized `ModelProto` as a resource that SentencePiece's operations take.

    TF Text's own class makes one that TensorFlow drops together with its cache of operations, which
    `tf.random.set_seed` and others clear; from then on a tokenizer fails. This one has a name that
    follows from the model, and lives as long as the process: models of two SavedModels are the same
    only if they are equal.
    """

    def __init__(self, model):
        super().__init__()
        self._bytes = model
        _ = self.resource_handle  # which makes it

    def _create_resource(self):
        name = "keras_lm_" + hashlib.sha256(self._bytes).hexdigest()
        return operations.sentencepiece_op(model=self._bytes, shared_name=name)

    def tokenize(self, text):
        """Return the ids of (B,) texts as a ragged (B, S) int32 tensor."""
        ids, splits = operations.sentencepiece_tokenize_op(
            self.resource_handle, text, out_type=tf.int32, **PLAIN
        )
        return tf.RaggedTensor.from_row_splits(ids, tf.cast(splits, tf.int64), validate=False)

    def pieces_with_offsets(self, text):
        """Return the (T,) pieces of (B,) texts, and in which bytes they begin and end."""
        pieces, _, starts, ends = operations.sentencepiece_tokenize_with_offsets_op(
            self.resource_handle, text, out_type=tf.string, **PLAIN
        )
        return pieces, tf.cast(starts, tf.int64), tf.cast(ends, tf.int64)

    def string_to_id(self, pieces):
        return operations.sentencepiece_string_to_id_op(self.resource_handle, pieces)


def check_pieces(pieces, name):
    """Raise a ValueError if a model has pieces that no published one has; `name` is the model's."""
    if len(pieces) > MOST_PIECES:
        raise ValueError(
            f"{name} has {len(pieces)} pieces, and {MOST_PIECES} are the most: it is no published "
            "model. Copy the file again."
        )
    for number, piece in enumerate(pieces):
        if not isinstance(piece.piece, str):  # as protobuf leaves what is no UTF-8
            raise ValueError(
                f"{name}: piece {number} is {piece.piece[:40]!r}, which is not UTF-8. Copy the "
                "published file again, in binary form."
            )
        size = len(piece.piece.encode("utf-8", "surrogatepass"))
        if not 0 < size <= LONGEST_PIECE or not math.isfinite(piece.score):
            raise ValueError(
                f"{name}: piece {number} has {size} bytes and the score {piece.score}. One has 1 "
                f"to {LONGEST_PIECE} bytes, and a finite score: copy the published file again."
            )
