"""What a model is trained for, and which objective goes with which head of a checkpoint."""

_BY_KIND = {}


class Objective:
    """What a model is trained for: the labels it makes, the heads it needs, its loss and metrics.

    A subclass states `heads`, makes labels in `corrupt` and gives `loss` and `metrics`. It may read
    a batch in a way of its own (`forward`), and bring further networks (`companions`).

    An objective with several outputs gives labels, outputs, loss and metrics as dicts by their
    names; with one, as they are.
    """

    # The names of outputs → the kinds of head that give them; see `Backbone.make_head`.
    heads = {}
    # What labels that only the data can give say, for an error where they are missing; else None.
    labels_of_data = None
    # Whether a head reads the backbone's `pooled_output`.
    uses_pooler = False
    # Built layers and models that take part in training and are no part of the model: a generator,
    # a teacher. Their trainable weights are trained with it; a training checkpoint holds them all.
    companions = ()
    # A method `forward(task, inputs, labels, training) -> (labels, outputs)` of an objective that
    # reads in a way of its own what it corrupted; None if calling the task does it.
    forward = None
    # The `keras.random.SeedGenerator` of an objective that leaves something to chance.
    seed_generator = None

    def set_tokenizer(self, tokenizer):
        """Take what the objective needs to know of a task's tokenizer, None where it has none."""

    def corrupt(self, inputs, training=True):
        """Hide what is to be predicted, in `keras.ops` and static shapes.

        Args:
            inputs: packed dict.
            training: bool. False does the same with the same batch each time.

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
        """Return what the objective gives as a dict from its outputs' names."""
        if isinstance(value, dict):
            return value
        (name,) = self.heads
        return {name: value}

    @property
    def variables(self):
        """What a training checkpoint holds of it: its random seed, and its companions."""
        seed = [self.seed_generator.state] if self.seed_generator else []
        return seed + [variable for c in self.companions for variable in c.variables]

    @property
    def trainable_weights(self):
        """The weights of its companions that training changes."""
        return [weight for c in self.companions for weight in c.trainable_weights]


def register_objective(cls):
    """Make an objective the one that a checkpoint's heads of its kinds were pretrained with."""
    _BY_KIND.update(dict.fromkeys(cls.heads.values(), cls))
    return cls


def pretraining_objectives(backbone):
    """Return the objectives that a backbone was pretrained with, by the kinds of its heads.

    Args:
        backbone: `keras_lm.models.Backbone`; its `PRETRAINING_HEADS` say the kinds.

    Returns:
        list of `Objective`.

    Raises:
        ValueError: if it states no heads, or one that no objective is registered for.
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
