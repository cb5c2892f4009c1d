"""Training objectives and their losses. Shapes: B batch, M labels per row, V classes."""

import keras
from keras import ops

from keras_lm.layers.batch_parts import count_in_batch
from keras_lm.layers.masks import IGNORED

_BY_KIND, _BY_NAME = {}, {}


class Objective:
    """A training objective: the labels that it makes, the heads that it needs, loss and metrics.

    A subclass sets `heads`, makes labels in `corrupt` and returns `loss` and `metrics`. It may have
    its own `forward`, and further networks (`companions`). With several outputs, labels, outputs,
    loss and metrics are dicts by output name.
    """

    # Names of outputs → the kinds of head that compute them; see `Backbone.make_head`.
    heads = {}
    # Description of labels that must come with the data, for the error if they are missing.
    labels_of_data = None
    # Whether a head reads the backbone's `pooled_output`.
    uses_pooler = False
    # Further built layers and models that training needs, such as a generator. Their trainable
    # weights are trained with the model; a training checkpoint contains all of their weights.
    companions = ()
    # A layer or model to learn from, which does not change: a training checkpoint has a digest of
    # its weights.
    teacher = None
    # A method `forward(task, inputs, labels, training) -> (labels, outputs)` of an objective with
    # its own forward pass; None to call the task.
    forward = None
    # The `keras.random.SeedGenerator` of an objective that draws random numbers.
    seed_generator = None

    def set_tokenizer(self, tokenizer):
        """Read what the objective needs from the task's tokenizer, which may be None."""

    def set_backbone(self, backbone):
        """Read what the objective needs from the task's backbone."""

    def corrupt(self, inputs, training=True):
        """Corrupt a batch, in `keras.ops` and static shapes; return `(inputs, labels)`.

        Without `training`, a batch is corrupted in the same way each time.
        """
        raise NotImplementedError(f"{type(self).__name__} must define corrupt.")

    def counted_labels(self, inputs, labels):
        """Return labels by output, `IGNORED` where those are that its own `forward` will make.

        Micro-batches divide by the number of labels in the whole batch, so they need it before
        `forward`, from the result of `corrupt`. Objectives that have a `forward`, but not this
        method, cannot be trained in micro-batches.
        """
        return {}

    def loss(self):
        """Return the loss: a `MeanLoss`, or a dict of them by output."""
        raise NotImplementedError(f"{type(self).__name__} must define loss.")

    def loss_weights(self):
        """Return the weights of losses in their sum, a dict by output; missing ones are 1."""
        return {}

    def metrics(self):
        """Return the metrics: a list, or a dict of lists by output."""
        return []

    def by_output(self, value):
        if isinstance(value, dict):
            return value
        (name,) = self.heads
        return {name: value}

    @property
    def variables(self):
        """Its variables in a training checkpoint: the random seed and the companions'."""
        seed = [self.seed_generator.state] if self.seed_generator else []
        return seed + [variable for c in self.companions for variable in c.variables]

    @property
    def trainable_weights(self):
        return [weight for c in self.companions for weight in c.trainable_weights]


def register_objective(cls):
    """Register an objective by its name, and as the objective of its heads if it is the first."""
    _BY_NAME[cls.__name__] = cls
    for kind in cls.heads.values():
        _BY_KIND.setdefault(kind, cls)
    return cls


def pretraining_objectives(backbone):
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


# === Losses and metrics over the labels that are not ignored ===


class MeanLoss(keras.losses.Loss):
    """The mean of losses over a batch; a subclass computes their sum and count.

    Under `tf.distribute`, which adds the gradients of all replicas, a replica's sum is divided by
    the count over all replicas. So the gradient is that of the whole batch, however labels are
    distributed. The same holds for micro-batches.
    """

    def __init__(self, name):
        super().__init__(name=name, reduction=None)

    def sum_and_count(self, labels, outputs, sample_weight=None):
        """Return the sum of all losses and their count or weight: two float32 scalars."""
        raise NotImplementedError(f"{type(self).__name__} must define sum_and_count.")

    def count(self, labels, sample_weight=None):
        """Return the count of `sum_and_count`, which only depends on labels and weights."""
        return ops.sum(label_weights(labels, sample_weight))

    def mean(self, labels, outputs, sample_weight=None):
        """Return the scalar loss of this replica alone."""
        return ops.divide_no_nan(*self.sum_and_count(labels, outputs, sample_weight))

    def __call__(self, labels, outputs, sample_weight=None):
        total, count = self.sum_and_count(labels, outputs, sample_weight)
        return ops.divide_no_nan(total, count_in_batch(self, count))

    def get_config(self):
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

    def __init__(self, label_smoothing=0.0, name="masked_crossentropy"):
        super().__init__(name)
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing={label_smoothing!r}: pass a number from 0 to 1.")
        self.label_smoothing = label_smoothing

    def sum_and_count(self, labels, logits, sample_weight=None):
        logits = ops.convert_to_tensor(logits, "float32")
        losses = keras.losses.sparse_categorical_crossentropy(
            ops.where(ops.not_equal(labels, IGNORED), labels, 0), logits, from_logits=True
        )
        if self.label_smoothing:
            evenly = -ops.mean(ops.log_softmax(logits, axis=-1), axis=-1)
            losses += self.label_smoothing * (evenly - losses)
        weight = label_weights(labels, sample_weight)
        return ops.sum(losses * weight), ops.sum(weight)

    def get_config(self):
        return super().get_config() | {"label_smoothing": self.label_smoothing}


@keras.saving.register_keras_serializable("keras_lm")
class MaskedAccuracy(keras.metrics.Mean):
    """Fraction of the labels that are not `IGNORED` whose class has the highest logit."""

    def __init__(self, name="accuracy", **kwargs):
        super().__init__(name=name, **kwargs)

    def update_state(self, labels, logits, sample_weight=None):
        labels = ops.convert_to_tensor(labels)
        right = ops.equal(labels, ops.cast(ops.argmax(logits, axis=-1), labels.dtype))
        return super().update_state(
            ops.cast(right, "float32"), sample_weight=label_weights(labels, sample_weight)
        )


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
