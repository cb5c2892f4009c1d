"""A conditional random field over sequences. Shapes: B batch, S sequence, C classes."""

import dataclasses
from typing import Any

import keras
from keras import ops

from keras_lm.layers.backend import scan, softmax
from keras_lm.layers.masks import MASKED
from keras_lm.utils.argument_types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_lm")
class CRF(keras.layers.Layer):
    """A linear-chain CRF over the classes of a sequence, with learned transition scores.

    The score of a sequence is the sum of its logits, its transitions, and the start and end scores
    of its first and last class. Its probability is the exponential of the score, divided by the sum
    over all sequences. Positions where the mask is 0 are skipped, wherever they are.

    Args:
        num_classes: int. C.

    All methods take `logits` (B, S, C) and `mask` (B, S) int32; all numbers are float32.

    Example:

        crf = CRF(num_classes=3)
        crf.build()
        crf.log_likelihood(logits, labels, mask)  # (B,), to maximize in training
        crf.decode(logits, mask)  # (B, S) int32

    Source: Lafferty et al. 2001, https://repository.upenn.edu/handle/20.500.14332/6188; Lample et
    al. 2016, https://arxiv.org/abs/1603.01360, section 2.2.
    """

    def __init__(self, num_classes: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.num_classes = num_classes

    def build(self, input_shape: Shape | None = None) -> None:
        size = self.num_classes
        self.transitions: keras.Variable = self.add_weight(
            name="transitions", shape=(size, size)
        )  # (from, to)
        self.start: keras.Variable = self.add_weight(
            name="start", shape=(size,), initializer="zeros"
        )
        self.end: keras.Variable = self.add_weight(name="end", shape=(size,), initializer="zeros")
        self.built = True

    def call(self, logits: Tensor) -> Tensor:
        """Return the logits; only the loss and decoding use the transitions."""
        return logits

    def log_likelihood(self, logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Return the log-probability (B,) of labels (B, S) int; 0 for a fully masked row."""
        chain = self._chain(logits, mask)
        _, last = self._forward(chain, lambda x: ops.logsumexp(x, axis=1))
        log_sum = ops.logsumexp(last + chain.end, axis=-1)
        has_any = ops.any(chain.is_real[:, :, 0], axis=0)
        return ops.where(has_any, self._score(chain, labels) - log_sum, 0.0)

    def decode(self, logits: Tensor, mask: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return the likeliest classes, (B, S) int32, 0 where the mask is 0.

        `allowed` is `(transitions, start, end)`, 1 or 0: which classes may follow each other,
        (C, C), and which may be first and last, (C,); by default all.
        """
        chain = self._chain(logits, mask, allowed)
        best, _ = self._forward(chain, lambda x: ops.max(x, axis=1))

        def step(carry, xs):
            (following,) = carry  # (B,) int32
            best, is_real, is_last = xs
            onward = ops.take(ops.transpose(chain.transitions), following, axis=0)  # (B, C)
            onward = ops.where(is_last, chain.end, onward)
            # LiteRT only supports Keras's argmax for integers.
            label = ops.cast(ops.top_k(best + onward, 1)[1][:, 0], "int32")
            label = ops.where(is_real[:, 0], label, following)
            return (label,), label

        start = ops.zeros((ops.shape(mask)[0],), "int32")
        _, labels = scan(step, (start,), (best, chain.is_real, chain.is_last), reverse=True)
        return ops.transpose(labels) * ops.cast(mask, "int32")

    def marginals(self, logits: Tensor, mask: Tensor, allowed: Tensor | None = None) -> Tensor:
        """Return the probability of each class at each position, (B, S, C)."""
        chain = self._chain(logits, mask, allowed)
        before, _ = self._forward(chain, lambda x: ops.logsumexp(x, axis=1))

        def step(carry, xs):
            (onward,) = carry  # (B, C): logits of the following position, and all after it
            logits, is_real, is_last = xs
            after = ops.logsumexp(chain.transitions + onward[:, None, :], axis=-1)
            after = ops.where(is_last, chain.end, after)
            return (ops.where(is_real, logits + after, onward),), after

        start = ops.zeros((ops.shape(mask)[0], self.num_classes))
        _, after = scan(step, (start,), (chain.logits, chain.is_real, chain.is_last), reverse=True)
        return ops.transpose(softmax(before + after), (1, 0, 2))

    def _chain(self, logits, mask, allowed=None):
        transitions, start, end = (
            ops.cast(weight, "float32") for weight in (self.transitions, self.start, self.end)
        )
        if allowed is not None:
            transitions, start, end = (
                score + (1.0 - ops.cast(may, "float32")) * MASKED
                for score, may in zip((transitions, start, end), allowed, strict=True)
            )
        is_real = ops.expand_dims(ops.cast(ops.transpose(mask), "bool"), -1)  # (S, B, 1)
        count = ops.cumsum(ops.cast(is_real, "int32"), axis=0)
        total = ops.sum(ops.cast(is_real, "int32"), axis=0)
        return _Chain(
            transitions,
            start,
            end,
            logits=ops.transpose(ops.cast(logits, "float32"), (1, 0, 2)),
            is_real=is_real,
            is_first=ops.logical_and(is_real, ops.equal(count, 1)),
            is_last=ops.logical_and(is_real, ops.equal(count, total)),
        )

    def _forward(self, chain, reduce):
        """Return the scores of sequences ending in each class, (S, B, C), and the last ones."""

        def step(carry, xs):
            (sofar,) = carry  # (B, C)
            logits, is_real, is_first = xs
            reached = reduce(ops.expand_dims(sofar, 2) + chain.transitions)
            reached = ops.where(is_first, chain.start, reached) + logits
            sofar = ops.where(is_real, reached, sofar)
            return (sofar,), sofar

        start = ops.zeros((ops.shape(chain.logits)[1], self.num_classes))
        (last,), all_of_them = scan(step, (start,), (chain.logits, chain.is_real, chain.is_first))
        return all_of_them, last

    def _score(self, chain, labels):
        labels = ops.cast(ops.transpose(labels), "int32")  # (S, B)
        real = chain.is_real[:, :, 0]
        labels = ops.maximum(labels, 0)  # also where there is no label
        logits = ops.take_along_axis(chain.logits, ops.expand_dims(labels, -1), axis=-1)[:, :, 0]
        flat = ops.reshape(chain.transitions, (-1,))

        def step(carry, xs):
            score, before = carry  # (B,), (B,) int32
            logit, label, is_real, is_first = xs
            onward = ops.take(flat, before * self.num_classes + label)
            onward = ops.where(is_first, ops.take(chain.start, label), onward)
            score = ops.where(is_real, score + onward + logit, score)
            return (score, ops.where(is_real, label, before)), score

        rows = (ops.shape(real)[1],)
        carry = (ops.zeros(rows), ops.zeros(rows, "int32"))
        (score, last), _ = scan(step, carry, (logits, labels, real, chain.is_first[:, :, 0]))
        return score + ops.take(chain.end, last)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"num_classes": self.num_classes}


@dataclasses.dataclass(frozen=True)
class _Chain:
    """Inputs of the recursions, in float32, with positions first."""

    transitions: object  # (C, C)
    start: object  # (C,)
    end: object  # (C,)
    logits: object  # (S, B, C)
    is_real: object  # (S, B, 1), as the next two
    is_first: object
    is_last: object
