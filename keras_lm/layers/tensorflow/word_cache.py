"""The vectors of known words."""

from keras_lm.layers.tensorflow.tracing import is_for_lite
from keras_lm.tensorflow import tf


class WordCache:
    """A cache of the vectors (V, D) of words, looked up by the words' characters (V, C).

    A word is looked up by a fingerprint of its ids, which are then compared, so that words cannot
    be confused. `cache(character_ids, compute)` with (W, C) returns (W, D); `compute` is called
    with the rows that are not in the cache.
    """

    def __init__(self, character_ids, vectors):
        keys = self._keys(character_ids)
        order = tf.argsort(keys)
        with tf.init_scope():
            self.keys = tf.Variable(tf.gather(keys, order), trainable=False, name="keys")
            ids = tf.cast(tf.gather(character_ids, order), tf.uint16)
            self.character_ids = tf.Variable(ids, trainable=False, name="character_ids")
            vectors = tf.gather(vectors, order)
            self.vectors = tf.Variable(vectors, trainable=False, name="vectors")

    @staticmethod
    def _keys(character_ids):
        data = tf.cast(character_ids, tf.int32)
        return tf.bitcast(tf.raw_ops.Fingerprint(data=data, method="farmhash64"), tf.int64)

    def __call__(self, character_ids, compute):
        if is_for_lite():
            return compute(character_ids)
        place = tf.searchsorted(self.keys, self._keys(character_ids))
        place = tf.minimum(place, self.keys.shape[0] - 1)
        stored = tf.cast(tf.gather(self.character_ids, place), character_ids.dtype)
        is_new = tf.reduce_any(stored != character_ids, axis=-1)  # (W,)
        return tf.tensor_scatter_nd_update(
            tf.gather(self.vectors, place),
            tf.where(is_new),
            compute(tf.boolean_mask(character_ids, is_new)),
        )
