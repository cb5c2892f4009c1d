"""The heads that a model declares, a dict of their kinds → `Head`."""


class Head:
    """One entry of the table of heads that a model has: how the layer is made.

    An option that is a function, such as `own("dropout")`, is called with the backbone.

    Args:
        layer: class of the layer, called with a backbone's outputs and inputs.
        name: str. The layer's name, which the paths of its weights begin with.
        **options: arguments of the layer.
    """

    def __init__(self, layer, name, **options):
        self.layer = layer
        self.name = name
        self.options = options

    @property
    def reads_embedding(self):
        """Whether the output matrix is the backbone's token embedding."""
        return "token_embedding" in self.options

    def make(self, backbone, **options):
        """Return the layer, unbuilt; `options` replace those that were declared."""
        own = {name: of(backbone) if callable(of) else of for name, of in self.options.items()}
        return self.layer(name=self.name, dtype=backbone.dtype_policy, **own | options)


def own(*names):
    """Return what reads an argument or a layer from a backbone: the first of these not None."""

    def read(backbone):
        config = backbone.config
        found = (config[name] if name in config else getattr(backbone, name) for name in names)
        return next((value for value in found if value is not None), None)

    return read
