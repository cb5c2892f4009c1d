"""A softmax over many words. Shapes: D hidden, V words, N predictions, K words of a sample."""

from typing import Any

import keras
from keras import ops

from keras_lm.layers.backend import Dropout
from keras_lm.layers.masks import MASKED
from keras_lm.utils.argument_types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_lm")
class WordSoftmax(keras.layers.Layer):
    """A softmax over a list of words; in training, over a sample of them.

    Each batch has a new sample, in which frequent words are more likely, so the list must be sorted
    from the most frequent word to the rarest. The random state is part of the layer, so that an
    interrupted training run can continue with it.

    Args:
        vocabulary_size: int, V.
        num_candidates: int, 1 or more. The size of the sample. If it is V or more, or None,
            training uses the whole list, too.
        dropout: float. Fraction of the features dropped in training.

    Call: `softmax(x)` with (…, D) returns logits (…, V), float32. `softmax(x, labels)` with labels
    (…) int32 returns their cross-entropy (…), float32: with `training=True` over the sample, else
    over the whole list.

    Raises:
        ValueError: if `num_candidates` is less than 1.

    Source: Jean et al. 2014, "On Using Very Large Target Vocabulary for Neural Machine
    Translation", https://arxiv.org/abs/1412.2007, section 3.
    """

    def __init__(
        self,
        vocabulary_size: int,
        num_candidates: int | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if num_candidates is not None and num_candidates < 1:
            raise ValueError(f"num_candidates={num_candidates}: pass 1 or more, or None for all.")
        self.vocabulary_size = vocabulary_size
        self.num_candidates = num_candidates
        self.dropout_rate = dropout
        self.dropout = Dropout(dropout, dtype=self.dtype_policy)
        self.seed_generator = keras.random.SeedGenerator()

    def build(self, x_shape: Shape, labels_shape: Shape | None = None) -> None:
        # A row per word, so that a sample is a look-up; in float32, like all softmaxes.
        self.kernel: keras.Variable = self.add_weight(
            name="kernel",
            shape=(self.vocabulary_size, x_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=x_shape[-1] ** -0.5),
            autocast=False,
        )
        self.bias: keras.Variable = self.add_weight(
            name="bias", shape=(self.vocabulary_size,), initializer="zeros", autocast=False
        )

    def call(self, x: Tensor, labels: Any = None, training: bool | None = None) -> Tensor:
        x = ops.cast(self.dropout(x, training=training), "float32")
        shape = ops.shape(x)[:-1]
        x = ops.reshape(x, (-1, x.shape[-1]))
        if labels is None:
            return ops.reshape(self._logits(x), (*shape, self.vocabulary_size))
        labels = ops.reshape(labels, (-1,))
        if training and self.num_candidates and self.num_candidates < self.vocabulary_size:
            losses = self._sampled_crossentropy(x, labels)
        else:
            losses = keras.losses.sparse_categorical_crossentropy(
                labels, self._logits(x), from_logits=True
            )
        return ops.reshape(losses, shape)

    def _logits(self, x):
        return ops.matmul(x, ops.transpose(self.kernel)) + self.bias

    def _sampled_crossentropy(self, x, labels):
        """Cross-entropies over the right word and a sample: (N, D) and (N,) → (N,)."""
        sample, log_expected = self._sample()
        # A single look-up for all, so that its gradient has a single part.
        ids = ops.concatenate([ops.cast(labels, "int32"), sample])
        rows, biases = ops.take(self.kernel, ids, axis=0), ops.take(self.bias, ids, axis=0)
        biases -= ops.take(log_expected, ids)  # corrects for frequent words being sampled more
        number = ops.shape(labels)[0]
        right = ops.sum(x * rows[:number], axis=-1) + biases[:number]  # (N,)
        others = ops.matmul(x, ops.transpose(rows[number:])) + biases[number:]  # (N, K)
        is_right = ops.equal(ops.expand_dims(ids[:number], -1), sample)
        others = ops.where(is_right, MASKED, others)
        logits = ops.concatenate([ops.expand_dims(right, -1), others], axis=-1)
        return ops.logsumexp(logits, axis=-1) - right

    def _sample(self):
        """Draw K different words (K,), and return all words' log-probabilities of being drawn (V,).

        Words arrive at rates that follow Zipf's law: the arrival time of a word is an exponential
        random number, and the sample is the first K words. The arrival time of the next word
        determines the probability that a word is in the sample.
        """
        rank = ops.arange(1, self.vocabulary_size + 1, dtype="float32")
        rate = ops.log1p(1 / rank) / ops.log(self.vocabulary_size + 1.0)
        chance = keras.random.uniform((self.vocabulary_size,), 1e-7, 1.0, seed=self.seed_generator)
        first_come, words = ops.top_k(ops.log(chance) / rate, self.num_candidates + 1)
        end = -first_come[-1]
        return words[:-1], ops.log(-ops.expm1(-rate * end))

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "vocabulary_size": self.vocabulary_size,
            "num_candidates": self.num_candidates,
            "dropout": self.dropout_rate,
        }
