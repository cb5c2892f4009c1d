"""What tables of Keras's own models share: those of KerasHub, and of Model Garden's attention."""

from keras_lm.converters.converter import ConfigTable, Fixed, Key
from keras_lm.converters.entries import Entries

KERAS_HUB_LEAVES = {
    "kernel": "/vars/0",
    "bias": "/vars/1",
    "gamma": "/vars/0",
    "beta": "/vars/1",
    "embeddings": "/vars/0",
}

# The arguments that all of KerasHub's backbones have under our names.
KERAS_HUB_SIZES = (
    "vocabulary_size",
    "num_layers",
    "num_heads",
    "hidden_dim",
    "intermediate_dim",
    "dropout",
    "max_sequence_length",
)


def keras_hub_table(model, *more, **only):
    """Return the `ConfigTable` of a KerasHub preset.

    Args:
        model: our class.
        *more: our arguments, beside `KERAS_HUB_SIZES`, that its class has under the same name.
        only: our other arguments → the one value that its code has, or a rule.
    """
    rules = {name: Key(name) for name in (*KERAS_HUB_SIZES, *more)}
    rules |= {
        name: value if hasattr(value, "read") else Fixed(value) for name, value in only.items()
    }
    rules["attention_dropout"] = Fixed(
        None, lambda given: given["attention_dropout"] == given["dropout"]
    )
    entries = Entries(harmless={"name", "trainable", "dtype"})
    return ConfigTable(model, None, rules, entries, inside="config")


def split_heads(path, array, arguments):
    """The inverse of `join_heads` for a backbone of these arguments."""
    num_heads = arguments["num_heads"]
    if path.endswith("query_key_value/kernel"):
        return array.reshape(array.shape[0], num_heads, -1)  # (D, D) → (D, N, H)
    if path.endswith("query_key_value/bias"):
        return array.reshape(num_heads, -1)
    if path.endswith("attention/output/kernel"):
        return array.reshape(num_heads, -1, array.shape[-1])  # (D, D) → (N, H, D)
    return array


def join_heads(path, array):
    """The layout of Keras's attention: kernels and biases have an axis for the heads."""
    if path.endswith("query_key_value/kernel"):
        return array.reshape(array.shape[0], -1)  # (D, N, H) → (D, D)
    if path.endswith("query_key_value/bias"):
        return array.reshape(-1)
    if path.endswith("attention/output/kernel"):
        return array.reshape(-1, array.shape[-1])  # (N, H, D) → (D, D)
    return array
