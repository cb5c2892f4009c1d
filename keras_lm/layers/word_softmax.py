"""A softmax over a large list of words.

Shapes: D hidden, V words of the list; … any axes.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_lm")
class WordSoftmax(keras.layers.Layer):
    """Predict a word of a list; in training, tell it from a sample of the others.

    The sample is drawn anew for each batch, frequent words more often: the list must be sorted from
    the most frequent word to the rarest.

    Args:
        vocabulary_size: int, V.
        num_candidates: int. The size of the sample. Where it is V or more, or None, training takes
            the whole list, too.
        dropout: float. Share of the vectors' numbers dropped in training.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call: `softmax(x)` with (…, D) returns logits (…, V), float32. `softmax(x, labels)` with labels
    (…) int32 returns their cross-entropy (…), float32: with `training=True` over the sample, else
    over the whole list.

    Raises:
        ValueError: if `num_candidates` is less than 1.

    Source: Jean et al. 2014, "On Using Very Large Target Vocabulary for Neural Machine
    Translation", https://arxiv.org/abs/1412.2007, section 3.
    """

    def __init__(self, vocabulary_size, num_candidates=None, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        if num_candidates is not None and num_candidates < 1:
            raise ValueError(f"num_candidates={num_candidates}: pass 1 or more, or None for all.")
        self.vocabulary_size = vocabulary_size
        self.num_candidates = num_candidates
        self.dropout_rate = dropout
        self.dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, x_shape, labels_shape=None):
        # A row a word, so that a sample is a look-up; in float32, as a softmax is.
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.vocabulary_size, x_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=x_shape[-1] ** -0.5),
            autocast=False,
        )
        self.bias = self.add_weight(
            name="bias", shape=(self.vocabulary_size,), initializer="zeros", autocast=False
        )

    def call(self, x, labels=None, training=None):
        x = ops.cast(self.dropout(x, training=training), "float32")
        shape = ops.shape(x)[:-1]
        x = ops.reshape(x, (-1, x.shape[-1]))
        if labels is None:
            return ops.reshape(self._logits(x), (*shape, self.vocabulary_size))
        labels = ops.reshape(labels, (-1,))
        if training and self.num_candidates and self.num_candidates < self.vocabulary_size:
            from keras_lm.layers.tensorflow import sampled_crossentropy

            losses = sampled_crossentropy(self.kernel, self.bias, labels, x, self.num_candidates)
        else:
            losses = keras.losses.sparse_categorical_crossentropy(
                labels, self._logits(x), from_logits=True
            )
        return ops.reshape(losses, shape)

    def _logits(self, x):
        return ops.matmul(x, ops.transpose(self.kernel)) + self.bias

    def get_config(self):
        return super().get_config() | {
            "vocabulary_size": self.vocabulary_size,
            "num_candidates": self.num_candidates,
            "dropout": self.dropout_rate,
        }
