"""What several models read off a published configuration."""

# Hugging Face's names of activations → ours, where they differ.
ACTIVATIONS = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "swish": "silu",
}


def require_only(checkpoint, cls, known):
    """Refuse a `config.json` that asks for what a model does not do.

    Args:
        checkpoint: `keras_lm.converters.Checkpoint`.
        cls: the backbone that reads it.
        known: dict of a key → its one value that the backbone knows, which is also what a missing
            key means.

    Raises:
        ValueError: if a key has another value.
    """
    for key, only in known.items():
        value = checkpoint.config.get(key, only)
        if value != only:
            raise ValueError(
                f"{checkpoint.source}: config.json has {key}={value!r}, and {cls.__name__} knows "
                f"only {only!r}."
            )


def dropouts(dropout, attention_dropout):
    """Return the arguments `dropout` and `attention_dropout` for two published numbers."""
    return {
        "dropout": dropout,
        # Where both are one number, whoever overrides `dropout` means both.
        "attention_dropout": None if attention_dropout == dropout else attention_dropout,
    }
