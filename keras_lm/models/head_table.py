"""The heads that a model declares, a dict of their kinds → `Head`."""


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
