"""Training objectives, and the random numbers of a batch."""

import itertools
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import keras
from keras import ops

from keras_lm.layers.backend import num_replicas
from keras_lm.layers.masks import IGNORED
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


class Term(typing.NamedTuple):
    """A part of the training loss: `weight` times a sum, divided by its count in a whole batch.

    `name` is that of an output, or None if there is one; `"added"` if it does not compare labels.
    """

    total: object
    count: object
    weight: float = 1.0
    name: str | None = "added"


def label_weights(labels, sample_weight=None):
    """Return the weight of each label (B, …), float32 of the same shape.

    It is 0 for `IGNORED`, otherwise the weight of the label or of its row (B,); 1 without weights.
    """
    known = ops.cast(ops.not_equal(labels, IGNORED), "float32")
    if sample_weight is None:
        return known
    weight = ops.convert_to_tensor(sample_weight, "float32")
    missing = len(known.shape) - len(weight.shape)
    return known * ops.reshape(weight, (*ops.shape(weight), *[1] * missing))


class MeanLoss(keras.losses.Loss):
    """The mean of losses over a batch; a subclass computes their sum and count.

    A training step divides the sum of each replica, or micro-batch, by the count in the whole
    batch: however labels are distributed, the gradient is that of the whole batch.
    """

    def __init__(self, name: str):
        super().__init__(name=name, reduction=None)

    def sum_and_count(
        self, labels: Tensor, outputs: Tensor, sample_weight: Tensor | None = None
    ) -> tuple[Any, Any]:
        """Return the sum of all losses and their count or weight: two float32 scalars."""
        raise NotImplementedError(f"{type(self).__name__} must define sum_and_count.")

    def count(self, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        """Return the count of `sum_and_count`, which only depends on labels and weights."""
        return ops.sum(label_weights(labels, sample_weight))

    def __call__(
        self, labels: Tensor, outputs: Tensor, sample_weight: Tensor | None = None
    ) -> Tensor:
        """Return the scalar mean."""
        return ops.divide_no_nan(*self.sum_and_count(labels, outputs, sample_weight))

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name}


@keras.saving.register_keras_serializable("keras_lm")
class MaskedCrossentropy(MeanLoss):
    """Cross-entropy over the labels that are not `IGNORED`, divided by their number.

    The mean is over the tokens of the whole batch, not over rows, as in google-research/bert,
    `get_masked_lm_output`.

    Args:
        label_smoothing: float from 0 to 1. The share of a label's probability that is spread evenly
            over all V classes, including its own; 0.1 in the Transformer, where it improves BLEU
            but not perplexity.

    Call: `loss(labels, logits, sample_weight=None)`, (B, M) int and (B, M, V) float, or (B,) and
    (B, V); a weight per row, (B,), or per label makes it a weighted mean.

    Source of label smoothing: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 5.4;
    Szegedy et al. 2015, https://arxiv.org/abs/1512.00567, section 7.
    """

    def __init__(self, label_smoothing: float = 0.0, name: str = "masked_crossentropy"):
        super().__init__(name)
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing={label_smoothing!r}: pass a number from 0 to 1.")
        self.label_smoothing = label_smoothing

    def sum_and_count(
        self, labels: Tensor, logits: Tensor, sample_weight: Tensor | None = None
    ) -> tuple[Any, Any]:
        logits = ops.convert_to_tensor(logits, "float32")
        losses = keras.losses.sparse_categorical_crossentropy(
            ops.where(ops.not_equal(labels, IGNORED), labels, 0), logits, from_logits=True
        )
        if self.label_smoothing:
            evenly = -ops.mean(ops.log_softmax(logits, axis=-1), axis=-1)
            losses += self.label_smoothing * (evenly - losses)
        weight = label_weights(labels, sample_weight)
        return ops.sum(losses * weight), ops.sum(weight)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"label_smoothing": self.label_smoothing}


@keras.saving.register_keras_serializable("keras_lm")
class MeanOfKnown(MeanLoss):
    """Mean of losses that a head has computed over the labels that are not `IGNORED`.

    Call: `loss(labels, losses, sample_weight=None)`, (B, …) int and float of one shape; a weight
    for each row, (B,), makes it a weighted mean.
    """

    def __init__(self, name: str = "mean_of_known"):
        super().__init__(name)

    def sum_and_count(
        self, labels: Tensor, losses: Tensor, sample_weight: Tensor | None = None
    ) -> tuple[Any, Any]:
        weight = label_weights(labels, sample_weight)
        return ops.sum(ops.convert_to_tensor(losses, "float32") * weight), ops.sum(weight)


# === What `compile` was given ===


class CompiledLosses:
    """The losses of `compile`, by output: a task's own, and Keras's as means over rows.

    `loss` and `loss_weights` are as Keras's `compile` takes them: one for all outputs, None for
    none, or a dict by output. With several, `means` are metrics of each, for the logs.
    """

    def __init__(self, loss=None, loss_weights=None):
        if isinstance(loss, (list, tuple)) and len(loss) == 1:
            (loss,) = loss
        losses = loss if isinstance(loss, dict) else {None: loss}
        weights = loss_weights if isinstance(loss_weights, dict) else {None: loss_weights}
        self.by_output = {}  # name or None → (weight, loss)
        for name, given in losses.items():
            if given is not None:
                weight = 1.0 if weights.get(name) is None else weights[name]
                mean_loss = given if isinstance(given, MeanLoss) else MeanOfRows(given)
                self.by_output[name] = weight, mean_loss
        names = self.by_output if len(self.by_output) > 1 else ()
        self.means = {name: keras.metrics.Mean(f"{name}_loss") for name in names}

    def of(self, labels):
        """Return what compares labels with outputs: name of an output → (weight, loss).

        The name None is for all labels and outputs there are.
        """
        if isinstance(labels, dict) and None in self.by_output:
            return dict.fromkeys(labels, self.by_output[None])
        return self.by_output

    def note(self, name, mean, rows):
        """Note the loss of one of several outputs for the logs, which weigh it by its rows."""
        if name in self.means:
            self.means[name].update_state(mean, sample_weight=rows)


def label_terms(losses, labels, outputs, sample_weight=None):
    """Return a `Term` for each of the losses of `CompiledLosses.of`."""
    terms = []
    for name, (weight, loss) in losses.items():
        given = (_named(values, name) for values in (labels, outputs, sample_weight))
        terms.append(Term(*loss.sum_and_count(*given), weight, name))
    return terms


def label_counts(losses, labels, sample_weight=None):
    """Return the count by which each of the losses is divided, by its name.

    Raises:
        ValueError: if the labels of one are not among those.
    """
    counts = {}
    for name, (_, loss) in losses.items():
        given = _named(labels, name)
        if given is None:
            raise ValueError(
                f"The labels of {name!r} are not known before the forward pass, so its loss cannot "
                "be computed in parts: compile without micro_batch_size."
            )
        counts[name] = loss.count(given, _named(sample_weight, name))
    return counts


def _named(value, name):
    """Return what a dict by output has for one, None if nothing; else the value itself."""
    return value.get(name) if isinstance(value, dict) and name is not None else value


class MeanOfRows(MeanLoss):
    """A loss of Keras's, or a function or name of one: its mean over the rows of a batch."""

    def __init__(self, loss):
        super().__init__(getattr(loss, "name", "loss"))
        self.loss = loss

    def sum_and_count(self, labels, outputs, sample_weight=None):
        rows = ops.cast(ops.shape(keras.tree.flatten(outputs)[0])[0], "float32")
        mean = self._loss_for(labels, outputs)(labels, outputs, sample_weight)
        # Keras divides by the number of replicas.
        return ops.cast(mean, "float32") * rows * num_replicas(), rows

    def count(self, labels, sample_weight=None):
        return ops.cast(ops.shape(keras.tree.flatten(labels)[0])[0], "float32")

    def _loss_for(self, labels, outputs):
        loss = self.loss
        if loss in ("crossentropy", "ce"):
            is_number = len(labels.shape) < len(outputs.shape) or labels.shape[-1] == 1
            loss = "sparse_categorical_crossentropy" if is_number else "categorical_crossentropy"
            loss = "binary_crossentropy" if outputs.shape[-1] == 1 else loss
        loss = keras.losses.get(loss)
        return loss if isinstance(loss, keras.losses.Loss) else _OfFunction(loss)


class _OfFunction(keras.losses.Loss):
    def __init__(self, function):
        super().__init__("loss")  # a name scope: a function's own name may not be one
        self.call = function
