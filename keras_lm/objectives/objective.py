"""Training objectives, and the random numbers of a batch."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import keras
from keras import ops

from keras_lm.objectives.losses import label_weights
from keras_lm.utils.argument_types import Tensor


class Draws:
    """The random numbers for a batch, from a seed generator; without one they are always equal."""

    def __init__(self, seed_generator=None):
        self.seeds = itertools.repeat(seed_generator) if seed_generator else itertools.count()

    def uniform(self, shape):
        """Return float32 numbers in [0, 1)."""
        return keras.random.uniform(shape, seed=next(self.seeds))

    def integers(self, shape, stop):
        """Return int32 numbers in [0, stop)."""
        return keras.random.randint(shape, 0, stop, dtype="int32", seed=next(self.seeds))


_BY_KIND, _BY_NAME = {}, {}
AnyClass = TypeVar("AnyClass", bound=type)


class Objective:
    """A training objective: the labels that it makes, the heads that it needs, loss and metrics.

    A subclass sets `heads`, makes labels in `corrupt` and returns `loss` and `metrics`. It may have
    its own `forward`, and further networks (`companions`). With several outputs, labels, outputs,
    loss and metrics are dicts by output name.
    """

    # Names of outputs → the kinds of head that compute them; see `Backbone.make_head`.
    heads: dict[str, str] = {}
    # Names of inputs that it reads or makes for heads, beside the backbone's; None for any.
    row_names: tuple[str, ...] | None = None
    # Description of labels that must come with the data, for the error if they are missing.
    labels_of_data: str | None = None
    # Whether a head reads the backbone's `pooled_output`.
    uses_pooler = False
    # Further built layers and models that training needs, such as a generator. Their trainable
    # weights are trained with the model; a training checkpoint contains all of their weights.
    companions: Sequence[Any] = ()
    # A layer or model to learn from, which does not change: a training checkpoint has a digest of
    # its weights.
    teacher: keras.layers.Layer | None = None
    # A method `forward(task, inputs, labels, training) -> (labels, outputs)` of an objective with
    # its own forward pass; None to call the task.
    forward: Callable[..., tuple[Any, Any]] | None = None
    # The `keras.random.SeedGenerator` of an objective that draws random numbers.
    seed_generator: keras.random.SeedGenerator | None = None

    def set_tokenizer(self, tokenizer: Any) -> None:
        """Read what the objective needs from the task's tokenizer, which may be None."""

    def set_backbone(self, backbone: keras.Model) -> None:
        """Read what the objective needs from the task's backbone."""

    def corrupt(
        self, inputs: dict[str, Tensor], training: bool | None = True
    ) -> tuple[dict[str, Tensor], Any]:
        """Corrupt a batch, in `keras.ops` and static shapes; return `(inputs, labels)`.

        Without `training`, a batch is corrupted in the same way each time.
        """
        raise NotImplementedError(f"{type(self).__name__} must define corrupt.")

    def counted_labels(self, inputs: dict[str, Tensor], labels: Tensor) -> Any:
        """Return labels by output, `IGNORED` where those are that its own `forward` will make.

        Micro-batches divide by the number of labels in the whole batch, so they need it before
        `forward`, from the result of `corrupt`. Objectives that have a `forward`, but not this
        method, cannot be trained in micro-batches.
        """
        return {}

    def loss(self) -> Any:
        """Return the loss: a `MeanLoss`, or a dict of them by output."""
        raise NotImplementedError(f"{type(self).__name__} must define loss.")

    def loss_weights(self) -> dict[str, float]:
        """Return the weights of losses in their sum, a dict by output; missing ones are 1."""
        return {}

    def metrics(self) -> Any:
        """Return the metrics: a list, or a dict of lists by output."""
        return []

    def by_output(self, value: Any) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        (name,) = self.heads
        return {name: value}

    @property
    def variables(self) -> list[keras.Variable]:
        """Its variables in a training checkpoint: the random seed and the companions'."""
        seed = [self.seed_generator.state] if self.seed_generator else []
        return seed + [variable for c in self.companions for variable in c.variables]

    @property
    def trainable_weights(self) -> list[keras.Variable]:
        return [weight for c in self.companions for weight in c.trainable_weights]


def register_objective(cls: AnyClass) -> AnyClass:
    """Register an objective by its name, and as the objective of its heads if it is the first."""
    _BY_NAME[cls.__name__] = cls
    for kind in cls.heads.values():
        _BY_KIND.setdefault(kind, cls)
    return cls


def pretraining_objectives(backbone: keras.Model) -> list[Objective]:
    """Return the objectives that a backbone was pretrained with, a list of `Objective`.

    Args:
        backbone: `keras_lm.models.Backbone` with `PRETRAINING_HEADS`, or its class.

    Raises:
        ValueError: if it has no pretraining heads, or one without a registered objective.
    """
    kinds = backbone.PRETRAINING_HEADS.values()
    unknown = [kind for kind in kinds if kind not in _BY_KIND]
    if unknown or not kinds:
        raise ValueError(
            f"{type(backbone).__name__} has no pretraining objectives that are known here"
            + (f" ({', '.join(unknown)})" if unknown else "")
            + ": pass objectives=[…]."
        )
    named = backbone.PRETRAINING_OBJECTIVES
    return [(_BY_NAME[named[kind]] if kind in named else _BY_KIND[kind])() for kind in kinds]


@keras.saving.register_keras_serializable("keras_lm")
class MaskedAccuracy(keras.metrics.Mean):
    """Fraction of the labels that are not `IGNORED` whose class has the highest logit."""

    def __init__(self, name: str = "accuracy", **kwargs: Any):
        super().__init__(name=name, **kwargs)

    def update_state(
        self, labels: Any, logits: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        labels = ops.convert_to_tensor(labels)
        right = ops.equal(labels, ops.cast(ops.argmax(logits, axis=-1), labels.dtype))
        return super().update_state(
            ops.cast(right, "float32"), sample_weight=label_weights(labels, sample_weight)
        )
