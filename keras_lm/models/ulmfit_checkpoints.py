"""What published files of ULMFiT call its weights, and what their configurations say."""

import functools

import numpy as np

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.converters.converter import (
    PYTORCH_LEAVES,
    Converter,
    NameTable,
    join_torch_lstm,
    match_score,
    torch_lstm,
    transpose_torch_lstm,
)
from keras_lm.converters.published_labels import Labels
from keras_lm.models.ulmfit import AWDLSTMBackbone

# fastai's own dropouts, for its language model and for its classifier.
_DROPOUTS = {
    "dropout": ("hidden_p", 0.15, 0.3),
    "embedding_dropout": ("embed_p", 0.02, 0.05),
    "input_dropout": ("input_p", 0.25, 0.4),
    "weight_drop": ("weight_p", 0.2, 0.5),
    "output_dropout": ("output_p", 0.1, 0.4),
}
_MAX_CLASSIFIER_LAYERS = 8

NAMES = NameTable(
    {
        "token_embedding": "encoder",
        **torch_lstm("lstm_{i}", "rnns.{i}.module."),
        **torch_lstm("lstm_{i}/forward", "rnns.{i}.module."),
        **torch_lstm("lstm_{i}/backward", "rnns.{i}.module.", "l0_reverse"),
        # The whole weight; `module.weight_hh_l0` is what the last step's dropout left of it.
        "lstm_{i}/recurrent_kernel": "rnns.{i}.weight_hh_l0_raw",
        "lstm_{i}/forward/recurrent_kernel": "rnns.{i}.weight_hh_l0_raw",
        "token_head": "1.decoder",
        "classifier/norm_{i}": "1.layers.{i}.0",
        "classifier/dense_{i}": "1.layers.{i}.2",
    },
    leaves=PYTORCH_LEAVES | {"moving_mean": ".running_mean", "moving_variance": ".running_var"},
    layout=transpose_torch_lstm,
    join=join_torch_lstm,
    # An encoder may be saved alone, and a classifier's lies in a module that reads chunks.
    prefix=r"(?:0\.)?(?:module\.)?",
    spellings={
        "module.weight_hh_l0_raw": "weight_hh_l0_raw",  # fastai 0.7
        # Without a dropout, the linear layer is the second of its block.
        **{
            f"1.layers.{i}.1.weight": f"1.layers.{i}.2.weight"
            for i in range(_MAX_CLASSIFIER_LAYERS)
        },
    },
    # A counter, and what the last step's dropout left of a recurrent weight.
    ignored=r".*\bnum_batches_tracked|rnns\.\d+\.module\.weight_hh_l0(_reverse)?",
    copies={
        "encoder_dp.emb.weight": "encoder.weight",
        "encoder_with_dropout.embed.weight": "encoder.weight",
        "1.decoder.weight": "encoder.weight",
    },
)


def _fastai_config(checkpoint):
    tensors, names = checkpoint.tensors, NAMES.resolve(checkpoint.tensors)

    def shape(name):
        if name not in names:
            raise CheckpointError(f"{checkpoint.source} lacks the weights {name}.")
        return tensors.shape(names[name])

    vocabulary_size, embedding_dim = shape("encoder.weight")
    num_layers = sum(name.endswith("weight_ih_l0") for name in names)
    bidirectional = "rnns.0.module.weight_ih_l0_reverse" in names
    if "1.decoder.weight" in names and not np.array_equal(
        tensors[names["1.decoder.weight"]], tensors[names["encoder.weight"]]
    ):
        raise CheckpointError(
            f"{checkpoint.source} has a decoder of its own (tie_weights=False), but "
            "AWDLSTMBackbone supports only one that is tied to the embedding."
        )
    classifier = _classifier_shapes(checkpoint)
    config = {
        "vocabulary_size": vocabulary_size,
        "num_layers": num_layers,
        "hidden_dim": shape("rnns.0.weight_hh_l0_raw")[1] * (1 + bidirectional),
        "embedding_dim": embedding_dim,
        "bidirectional": bidirectional,
        "classifier_dims": [rows for rows, _ in classifier[:-1]] if classifier else [50],
        "pooled_length": checkpoint.config.get("max_len", 1440),
        "pooled_chunk": checkpoint.config.get("bptt") or 72,
    }
    for ours, (theirs, *defaults) in _DROPOUTS.items():
        config[ours] = checkpoint.config.get(theirs, defaults[bool(classifier)])
    return config


def _classifier_shapes(checkpoint):
    """The shapes of the linear layers of a classification head, in their order."""
    names = NAMES.resolve(checkpoint.tensors)
    layers = [names.get(f"1.layers.{i}.2.weight") for i in range(_MAX_CLASSIFIER_LAYERS)]
    return [checkpoint.tensors.shape(name) for name in layers if name is not None]


def _fastai_labels(checkpoint):
    shapes = _classifier_shapes(checkpoint)
    return Labels(shapes[-1][0]) if shapes else None


_FASTAI = Converter(
    functools.partial(match_score, model_type=None, own=r"rnns\.0\.(module\.)?weight_hh_l0_raw$"),
    _fastai_config,
    NAMES,
    _fastai_labels,
)
# The names are the same in fastai's `.pth` and in a `model.safetensors`.
AWDLSTMBackbone.CONVERTERS = {"fastai": _FASTAI, "huggingface": _FASTAI}
