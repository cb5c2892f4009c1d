"""How large a model is and what it computes: it is built without weights, so any size will do."""

import functools
import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keras

from keras_lm.utils.registry import sizes as all_sizes

# The parameters of all sizes by name; `python docs/tables.py` writes it.
COUNTED = Path(__file__).with_name("parameters.json")
# Bytes a parameter takes in training: itself, its gradient, and the two moments of Adam.
TRAINING_BYTES = 4 * 4


def estimate(cls, **arguments):
    """Return parameters, memory and FLOPs of a backbone, from its class and arguments.

    The dict has `parameters`, an exact int; `memory`, a dict of bytes: the weights in float32 and
    in bfloat16, training in float32 (weights, gradients and Adam's two moments, without
    activations), and for models that have one the cache of one full sequence, or the state that is
    carried from text to text, in float32; and `flops_per_token`, a dict: `forward`, two per weight
    of the blocks (and of the output matrix of a causal model) and four per channel and attended
    token, for the last token of a full sequence; and `training`, three times as many; for models
    that were pretrained by masking or by replaced tokens also `pretraining`, with the heads for
    this, at the published rate of 15 %. A token of ELMo is a word with all of its characters: each
    filter counts at each position. One of an encoder-decoder is a token of a source and one of a
    target, for T5 of 512 each, for RNNs of 50.

    Raises:
        ValueError: if the model has no `forward_flops`.

    Example:

        estimate(GPT3Backbone, **GPT3Backbone.SIZES["gpt3_175b"])["parameters"]  # 174604259328

    Source: Kaplan et al. 2020, https://arxiv.org/abs/2001.08361, section 2.1.
    """
    if cls.forward_flops is None:
        raise ValueError(
            f"{cls.__name__}: there are estimates of models that define forward_flops only."
        )
    return without_weights(_estimate, cls, arguments)


def without_weights(function, *arguments):
    """Return what a function returns where new variables have shapes, but no values."""

    def call():
        with keras.StatelessScope(initialize_variables=False):
            return function(*arguments)

    # Keras keeps a list of such variables, in each thread its own, to give them values later: that
    # of a new thread is gone with it.
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(call).result()


def parameters_of(name):
    """Return the number of parameters of a size, such as `"bert_base_en_uncased"`."""
    cls = all_sizes()[name]
    return _counted().get(name) or estimate(cls, **cls.SIZES[name])["parameters"]


def transformer_size(
    vocabulary_size, num_layers, hidden_dim, num_heads=None, intermediate_dim=None, **others
):
    """Return the arguments of a size of a Transformer, with what most have in common.

    That is 64 units for each head, and four times as many inside a block as outside.
    """
    return {
        "vocabulary_size": vocabulary_size,
        "num_layers": num_layers,
        "num_heads": num_heads or hidden_dim // 64,
        "hidden_dim": hidden_dim,
        "intermediate_dim": intermediate_dim or 4 * hidden_dim,
    } | others


def kernels(layers):
    """Return the number of weights that layers multiply with; one that occurs twice counts twice.

    Args:
        layers: list of built layers.
    """
    weights = [weight for layer in layers for weight in layer.weights]
    return sum(math.prod(weight.shape) for weight in weights if weight.name.endswith("kernel"))


@functools.cache
def _counted():
    return json.loads(COUNTED.read_text(encoding="utf-8"))


def _estimate(cls, arguments):
    backbone = cls(**arguments)
    forward, parameters = backbone.forward_flops(), backbone.count_params()
    memory = {
        "weights_float32": 4 * parameters,
        "weights_bfloat16": 2 * parameters,
        "training_float32": TRAINING_BYTES * parameters,
    }
    if backbone.is_causal and backbone.state_name and not backbone.carries_state:
        memory["cache_float32"] = backbone.cache_bytes()
    if backbone.carries_state:
        state = keras.tree.flatten(backbone.state_spec())
        memory["state_float32"] = 4 * sum(math.prod(part.shape[1:]) for part in state)
    flops = {"forward": forward, "training": 3 * forward}
    heads = [_head_flops(backbone, kind) for kind in backbone.PRETRAINING_HEADS.values()]
    if any(heads):
        flops["pretraining"] = 3 * (forward + round(sum(heads)))
    return {"parameters": parameters, "memory": memory, "flops_per_token": flops}


def _head_flops(backbone, kind):
    """Return the FLOPs of a head per token, 0 for one that reads each text once."""
    head = backbone.make_head(kind)
    share = getattr(head, "share_of_tokens", 0)
    if not share:
        return 0
    head(backbone.output, backbone.input)
    multiplied = kernels([head])
    if backbone.HEADS[kind].reads_embedding:
        multiplied += math.prod(head.token_embedding.embeddings.shape)
    return share * 2 * multiplied
