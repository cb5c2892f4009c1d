"""Reading published configurations, for several models."""

from keras_lm.converters.checked_files import CheckpointError

# Hugging Face's names of activations → ours, where they differ.
ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "swish": "silu",
}


def own_activation(name, names=ACTIVATIONS):
    """Return our name for an activation; what is no name stays as it is."""
    return names.get(name, name) if isinstance(name, str) else name


# What Hugging Face's encoders could be, and ours are not: for `require_only`.
PLAIN_ENCODER = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
}


def require_only(checkpoint, cls, known):
    """Raise a CheckpointError if the configuration has another value for a key than `known`."""
    for key, only in known.items():
        value = checkpoint.config.get(key, only)
        if value != only:
            raise CheckpointError(
                f"{checkpoint.source}: its configuration has {key}={value!r}, and {cls.__name__} "
                f"knows only {only!r}."
            )


def dropouts(dropout, attention_dropout):
    """Return the arguments `dropout` and `attention_dropout` for two published numbers."""
    return {
        "dropout": dropout,
        # If both are equal, overriding `dropout` should change both.
        "attention_dropout": None if attention_dropout == dropout else attention_dropout,
    }
