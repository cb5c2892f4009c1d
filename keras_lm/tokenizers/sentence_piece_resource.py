"""A SentencePiece model in the graph: operations of TF Text. Shapes: B texts, S ids, T pieces."""

import hashlib

from keras_lm.tensorflow import gen_sentencepiece_tokenizer as operations
from keras_lm.tensorflow import tf

PLAIN = {"nbest_size": 0, "alpha": 1.0, "add_bos": False, "add_eos": False, "reverse": False}


class SentencePieceModel(tf.saved_model.experimental.TrackableResource):
    """A serialized model as a resource for SentencePiece's operations.

    TensorFlow drops the resource of TF Text's own class whenever its cache of operations is
    cleared, as by `tf.random.set_seed`, and the tokenizer fails from then on. This one lives as
    long as the process. Its name depends on the model, so that SavedModels share only equal ones.
    """

    def __init__(self, model):
        super().__init__()
        self._bytes = model
        _ = self.resource_handle  # creates it

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
        """Return the (T,) pieces of (B,) texts, and the bytes where they begin and end."""
        return self.rows_with_offsets(text)[1:]

    def rows_with_offsets(self, text):
        """Return the row splits (B + 1,), and what `pieces_with_offsets` does."""
        pieces, splits, starts, ends = operations.sentencepiece_tokenize_with_offsets_op(
            self.resource_handle, text, out_type=tf.string, **PLAIN
        )
        return splits, pieces, tf.cast(starts, tf.int64), tf.cast(ends, tf.int64)

    def string_to_id(self, pieces):
        return operations.sentencepiece_string_to_id_op(self.resource_handle, pieces)
