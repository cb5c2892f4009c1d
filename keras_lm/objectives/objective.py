"""Training objectives, and which one goes with which head of a checkpoint."""

_BY_KIND = {}


class Objective:
    """A training objective: the labels it makes, the heads it needs, its loss and metrics.

    A subclass sets `heads`, makes labels in `corrupt` and returns `loss` and `metrics`. It may have
    its own `forward`, and further networks (`companions`).

    An objective with several outputs has labels, outputs, loss and metrics in dicts by output name;
    one with a single output has them as they are.
    """

    # Names of outputs → the kinds of head that compute them; see `Backbone.make_head`.
    heads = {}
    # Description of labels that must come with the data, for the error if they are missing.
    labels_of_data = None
    # Whether a head reads the backbone's `pooled_output`.
    uses_pooler = False
    # Built layers and models that training needs beside the model: a generator, a teacher. Their
    # trainable weights are trained with it; a training checkpoint holds all of them.
    companions = ()
    # A method `forward(task, inputs, labels, training) -> (labels, outputs)` of an objective with
    # its own forward pass; None to call the task.
    forward = None
    # The `keras.random.SeedGenerator` of an objective that draws random numbers.
    seed_generator = None

    def set_tokenizer(self, tokenizer):
        """Read what the objective needs from the task's tokenizer, None if it has none."""

    def corrupt(self, inputs, training=True):
        """Corrupt a batch and make its labels, in `keras.ops` and static shapes.

        Args:
            inputs: packed dict.
            training: bool. False corrupts the same batch in the same way each time.

        Returns:
            `(inputs, labels)`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what its labels are.")

    def loss(self):
        """Return the loss: a `MeanLoss`, or a dict of them by output."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its loss is.")

    def metrics(self):
        """Return the metrics: a list, or a dict of lists by output."""
        return []

    def by_output(self, value):
        """Return labels, losses or the like as a dict by output name."""
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
        """The trainable weights of its companions."""
        return [weight for c in self.companions for weight in c.trainable_weights]


def register_objective(cls):
    """Register an objective as the one that heads of its kinds were pretrained with."""
    _BY_KIND.update(dict.fromkeys(cls.heads.values(), cls))
    return cls


def pretraining_objectives(backbone):
    """Return the objectives that a backbone was pretrained with, a list of `Objective`.

    Args:
        backbone: `keras_lm.models.Backbone` with `PRETRAINING_HEADS`.

    Raises:
        ValueError: if it has no heads, or one without a registered objective.
    """
    kinds = backbone.PRETRAINING_HEADS.values()
    unknown = [kind for kind in kinds if kind not in _BY_KIND]
    if unknown or not kinds:
        raise ValueError(
            f"{type(backbone).__name__} states no pretraining objectives that are known here"
            + (f" ({', '.join(unknown)})" if unknown else "")
            + ": pass objectives=[…]."
        )
    return [_BY_KIND[kind]() for kind in kinds]
