"""Adversarial smoothing: answers that small changes of the embeddings do not change.

Shapes: B batch, S sequence, D width of an embedding, C classes.
"""

from typing import Any, Self

import keras
from keras import ops

from keras_lm.layers.embedding_hook import changed, token_embedding_of
from keras_lm.tensorflow import tf
from keras_lm.utils.argument_types import Tensor


@keras.saving.register_keras_serializable("keras_lm")
class AdversarialSmoothing:
    """A term of the training loss: how far an answer moves if the embeddings move against it.

    From random noise, the embeddings of each text take one step in the direction in which the
    answer changes most, of length `radius`; the term is what it changes there: the symmetric
    divergence of a classifier's probabilities, the squared difference of a regressor's numbers. A
    training step computes three forward passes instead of one. With `micro_batch_size` the term is
    that of the whole batch.

    This is the regularisation of SMART, with a step of given length (L2, over a text) in place of
    its projection into a cube, and without its proximal updates.

    Args:
        weight: float, 0 or more. Weight of the term in the loss.
        radius: float above 0. Length of the change, over all tokens of a text.
        noise: float above 0. Standard deviation of the change from which the step starts.

    Raises:
        ValueError: if an argument is out of range.

    Example:

        smoothing = keras_lm.training.AdversarialSmoothing(weight=1.0, radius=0.3)
        task.compile(smoothing=smoothing)
        task.fit(texts, labels)

    Source: SMART, Jiang et al. 2020, https://arxiv.org/abs/1911.03437, section 3.1; the step as in
    virtual adversarial training, Miyato et al. 2017, https://arxiv.org/abs/1704.03976, section 3.2.
    """

    def __init__(self, weight: float = 1.0, radius: float = 0.3, noise: float = 1e-3):
        if weight < 0:
            raise ValueError(f"weight={weight} is negative: use 0 for none.")
        for name, value in (("radius", radius), ("noise", noise)):
            if not value > 0:
                raise ValueError(f"{name}={value} is not positive.")
        self.weight, self.radius, self.noise = weight, radius, noise

    def get_config(self) -> dict[str, Any]:
        return {"weight": self.weight, "radius": self.radius, "noise": self.noise}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**config)

    def check(self, task: keras.Model) -> None:
        """Raise a ValueError if a task cannot be smoothed."""
        if not hasattr(task, "divergence"):
            raise ValueError(
                f"smoothing compares the answers to whole texts, and {type(task).__name__} has "
                "none: it is for classifiers, regressors and multiple choice."
            )
        if token_embedding_of(task.backbone) is None:
            raise ValueError(
                f"smoothing moves the embeddings of tokens, of which {type(task.backbone).__name__}"
                " has no layer: leave it out."
            )
        if task.distribute_strategy.num_replicas_in_sync > 1:
            raise ValueError(
                "smoothing is computed on one device only: leave it out inside of strategy.scope()."
            )

    def __call__(self, task: keras.Model, inputs: dict[str, Tensor], outputs: Any) -> Tensor:
        """Return the term for a batch, a float32 scalar, from its inputs and the task's outputs."""
        total, rows, weight = self.sum_and_count(task, inputs, outputs)
        return weight * total / rows

    def sum_and_count(
        self, task: keras.Model, inputs: dict[str, Tensor], outputs: Any
    ) -> tuple[Tensor, Tensor, float]:
        """Return the term as a sum over a batch, the number of its rows, and the weight."""
        embedding = token_embedding_of(task.backbone)
        fixed = ops.stop_gradient(outputs)
        starts = []
        with tf.GradientTape(watch_accessed_variables=False) as tape:

            def start(x):
                starts.append(self.noise * tf.random.normal(ops.shape(x)))
                tape.watch(starts[-1])
                return x + ops.cast(starts[-1], x.dtype)

            with changed(embedding, start):
                moved = task(inputs, training=True)
            change = ops.sum(task.divergence(moved, fixed))
        direction = tape.gradient(change, starts[-1])  # (B, S, D)
        length = ops.sqrt(ops.sum(ops.square(direction), axis=(1, 2), keepdims=True))
        step = ops.stop_gradient(self.radius * tf.math.divide_no_nan(direction, length))
        with changed(embedding, lambda x: x + ops.cast(step, x.dtype)):
            moved = task(inputs, training=True)
        divergence = ops.cast(task.divergence(moved, outputs), "float32")  # (B,)
        return ops.sum(divergence), ops.cast(ops.shape(divergence)[0], "float32"), self.weight


def symmetric_divergence(logits, others):
    """Return the two Kullback-Leibler divergences between softmaxes (…, C), summed: (…,)."""
    p, q = (ops.log_softmax(ops.cast(x, "float32"), axis=-1) for x in (logits, others))
    return ops.sum((ops.exp(p) - ops.exp(q)) * (p - q), axis=-1)
