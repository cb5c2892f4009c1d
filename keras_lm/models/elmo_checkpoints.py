"""What published files of ELMo call its weights, and what their configurations say."""

import numpy as np
from keras import ops

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.converters.converter import Converter, NameTable
from keras_lm.models.elmo_layers import CHARACTERS

_CELL = "RNN_{}/RNN/MultiRNNCell/Cell{{i}}/LSTMCell/{}"
NAMES = NameTable(
    {
        "character_cnn/embedding/embeddings": "char_embed",
        "character_cnn/convolution_{i}/kernel": "CNN/W_cnn_{i}",
        "character_cnn/convolution_{i}/bias": "CNN/b_cnn_{i}",
        "character_cnn/highway_{i}/transform/kernel": "CNN_high_{i}/W_transform",
        "character_cnn/highway_{i}/transform/bias": "CNN_high_{i}/b_transform",
        "character_cnn/highway_{i}/gate/kernel": "CNN_high_{i}/W_carry",
        "character_cnn/highway_{i}/gate/bias": "CNN_high_{i}/b_carry",
        "character_cnn/projection/kernel": "CNN_proj/W_proj",
        "character_cnn/projection/bias": "CNN_proj/b_proj",
        **{
            f"layer_{{i}}/{direction}/{ours}": _CELL.format(number, theirs)
            for number, direction in enumerate(("forward", "backward"))
            for ours, theirs in (
                ("kernel", "W_0"),
                ("recurrent_kernel", "W_0"),
                ("bias", "B"),
                ("projection_kernel", "W_P_0"),
            )
        },
    },
    leaves={},
    layout=lambda path, array: _LAYOUTS.get(path.rpartition("/")[2], lambda _, a: a)(path, array),
    # A single layer is saved without the wrapper of several.
    spellings={"RNN/LSTMCell": "RNN/MultiRNNCell/Cell0/LSTMCell"},
)
_LAYOUTS = {
    # Trained without an id for padding, so a row of zeros is prepended. Rows beyond the tokenizer's
    # ids are never looked up, in AllenNLP neither.
    "embeddings": lambda path, array: np.pad(array, [(1, 0), (0, 0)])[:CHARACTERS],
    # Filters are (1, width, E, number). W_0 has the rows of the input, then those of the state,
    # which is as wide.
    "kernel": lambda path, array: (
        array[0]
        if "convolution" in path
        else array[: len(array) // 2]
        if "layer_" in path
        else array
    ),
    "recurrent_kernel": lambda path, array: array[len(array) // 2 :],
}


def _config(checkpoint):
    options, tensors = checkpoint.config, checkpoint.tensors
    if "char_cnn" not in options:
        raise CheckpointError(
            f"{checkpoint.source}: its options have no char_cnn, so the model reads whole words "
            "and not characters: take an ELMo that reads characters."
        )
    lstm, cnn = options["lstm"], options["char_cnn"]
    if "char_embed" in tensors and tensors.shape("char_embed")[0] < CHARACTERS - 1:
        raise CheckpointError(
            f"{checkpoint.source}: char_embed has {tensors.shape('char_embed')[0]} rows, but "
            f"ELMo's characters need {CHARACTERS - 1}: take a model over UTF-8 bytes."
        )
    num_filters = sum(number for _, number in cnn["filters"])
    activation = cnn["activation"]
    if activation not in ("relu", "tanh"):
        raise CheckpointError(
            f"{checkpoint.source}: char_cnn.activation is {activation!r}; supported: 'relu' and "
            "'tanh'."
        )
    return {
        "num_layers": int(lstm.get("n_layers", 1)),
        "hidden_dim": lstm["projection_dim"],
        "cell_dim": lstm["dim"],
        "filters": cnn["filters"],
        "embedding_dim": cnn["embedding"]["dim"],
        "num_highways": cnn.get("n_highway") or 0,
        "vocabulary_size": CHARACTERS,
        "characters_per_word": cnn["max_characters_per_token"],
        "activation": activation,
        "cell_clip": lstm.get("cell_clip"),
        "projection_clip": lstm.get("proj_clip"),
        "residual": bool(lstm.get("use_skip_connections")),
        "project_words": "CNN_proj/W_proj" in tensors or num_filters != lstm["projection_dim"],
        "project_cells": any(name.endswith("/W_P_0") for name in tensors)
        or lstm["dim"] != lstm["projection_dim"],
        "dropout": options.get("dropout", 0.0),
    }


def options_of(config):
    """The inverse of `_config`."""
    if config["vocabulary_size"] != CHARACTERS:
        raise ValueError(
            f"vocabulary_size={config['vocabulary_size']}: AllenNLP reads models of {CHARACTERS} "
            "characters."
        )
    return {
        "bidirectional": True,
        "dropout": config["dropout"],
        "lstm": {
            "n_layers": config["num_layers"],
            "projection_dim": config["hidden_dim"],
            "dim": config["cell_dim"],
            "cell_clip": config["cell_clip"],
            "proj_clip": config["projection_clip"],
            "use_skip_connections": config["residual"],
        },
        "char_cnn": {
            "filters": config["filters"],
            "embedding": {"dim": config["embedding_dim"]},
            "n_highway": config["num_highways"],
            "n_characters": config["vocabulary_size"],
            "max_characters_per_token": config["characters_per_word"],
            "activation": config["activation"],
        },
    }


def tensors_of(variables):
    """The inverse of `NAMES` and its layouts: name in the HDF5 file → array."""
    stored = {}
    for variable in variables:
        for name in NAMES.sources(variable.path):
            array = ops.convert_to_numpy(variable).astype("float32")
            leaf = variable.path.rpartition("/")[2]
            if leaf == "embeddings":
                array = array[1:]
            elif leaf == "kernel" and "convolution" in variable.path:
                array = array[np.newaxis]
            stored.setdefault(name, []).append(array)
    return {name: np.concatenate(parts) for name, parts in stored.items()}


CONVERTERS = {
    "allennlp": Converter(lambda checkpoint: True, _config, NAMES),
}
