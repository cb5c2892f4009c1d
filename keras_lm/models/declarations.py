"""What a model declares: its inputs, and its heads, a dict of their kinds → `Head`."""

import dataclasses
from collections.abc import Callable

from keras import ops


@dataclasses.dataclass(frozen=True)
class Input:
    """One entry of the dict that a backbone takes.

    `shape` is without the batch axis. `default` fills a missing input: an int fills (B, S), a
    callable computes it from the input called `like`, and with None the input is required. With
    `is_state` it is what an earlier call returned under the same key, by default the initial state.

    Example:

        Input(default=1, like="token_ids")  # a mask: every token is real
    """

    shape: tuple = (None,)
    dtype: str = "int32"
    default: int | Callable | None = None
    like: str | None = None
    is_state: bool = False

    def make_default(self, like):
        """Return the default for the input `like`, (B, S) or (B, S, …)."""
        if callable(self.default):
            return self.default(like)
        like = like[:, :, 0] if len(like.shape) == 3 else like
        return ops.cast(ops.full_like(like, self.default), self.dtype)


class Head:
    """One entry of the table of heads that a model has: how the layer is made.

    An option that is a function, such as `own("dropout")`, is called with the backbone.

    Args:
        layer: class of the layer, called with a backbone's outputs and inputs.
        name: str. The layer's name, which the paths of its weights begin with.
        template: `keras_lm.packers.Template`. The special tokens that fine-tuning adds for this
            head, where pretraining had none; None for the model's `TEMPLATE`.
        lm_loss_weight: float. The weight of the language model's loss beside this head's in
            training, if the user passes none.
        **options: arguments of the layer.
    """

    def __init__(self, layer, name, template=None, lm_loss_weight=0.0, **options):
        self.layer = layer
        self.name = name
        self.template = template
        self.lm_loss_weight = lm_loss_weight
        self.options = options

    @property
    def reads_embedding(self):
        """Whether the output matrix is the backbone's token embedding."""
        return "token_embedding" in self.options

    def make(self, backbone, **options):
        """Return the layer, unbuilt; `options` replace those that were declared."""
        declared = {
            name: value(backbone) if callable(value) else value
            for name, value in self.options.items()
        }
        return self.layer(name=self.name, dtype=backbone.dtype_policy, **declared | options)


def own(*names):
    """Return what reads an argument or a layer from a backbone: the first of these not None."""

    def read(backbone):
        config = backbone.config
        found = (config[name] if name in config else getattr(backbone, name) for name in names)
        return next((value for value in found if value is not None), None)

    return read
