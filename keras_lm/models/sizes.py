"""How large a model is, from its arguments alone: nothing is built, so that any size can be asked.

Shapes: V vocabulary, L blocks, D hidden, I inside the feed-forward network, T positions.
"""

import inspect

from keras_lm.models.causal import CausalBackbone

# Parameters beside the blocks and the embeddings of tokens and positions.
_BESIDE = {
    "BertBackbone": lambda c: (
        (c["num_segments"] + 2) * c["hidden_dim"]
        + c["use_pooler"] * (c["hidden_dim"] + 1) * c["hidden_dim"]
    ),
    "GPTBackbone": lambda c: 0,
    "GPT2Backbone": lambda c: 2 * c["hidden_dim"],  # the final norm
    "GPT3Backbone": lambda c: 2 * c["hidden_dim"],
    # The final norm; its blocks lack the biases of query, key and value.
    "GPTNeoBackbone": lambda c: (2 - 3 * c["num_layers"]) * c["hidden_dim"],
}
# Bytes a parameter takes in training: itself, its gradient, and the two moments of Adam.
_TRAINING_BYTES = 4 * 4


def estimate(cls, **arguments):
    """Return parameters, memory and operations of a backbone that need not fit anywhere.

    Args:
        cls: a subclass of `Backbone`.
        **arguments: what it would be made with, such as `cls.SIZES["gpt3_175b"]`.

    Returns:
        dict of `parameters`, an int, exact; `memory`, a dict of bytes: the weights in float32 and
        in bfloat16, what training keeps in float32 (weights, gradients and Adam's two moments, but
        no activations), and for models with a cache that of one full sequence in float32;
        `flops_per_token`, a dict: `forward`, two a weight of the blocks and of the product that
        gives logits where the model is causal, and four a channel and token that a token attends
        to, counted at a full sequence's last one; and `training`, three times as many.

    Raises:
        ValueError: if nothing is known of how `cls` is built.

    Example:

        estimate(GPT3Backbone, **GPT3Backbone.SIZES["gpt3_175b"])["parameters"]  # 174604259328

    Source: Kaplan et al. 2020, https://arxiv.org/abs/2001.08361, section 2.1.
    """
    if cls.__name__ not in _BESIDE:
        raise ValueError(f"{cls.__name__}: there are estimates of {sorted(_BESIDE)} only.")
    defaults = {
        name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()
    }
    config = defaults | arguments
    layers, width = config["num_layers"], config["hidden_dim"]
    inside, positions = config["intermediate_dim"], config["max_sequence_length"]
    kernels = 4 * width**2 + 2 * width * inside  # of a block
    biases_and_norms = 3 * width + width + inside + width + 4 * width
    parameters = (
        layers * (kernels + biases_and_norms)
        + (config["vocabulary_size"] + positions) * width
        + _BESIDE[cls.__name__](config)
    )
    memory = {
        "weights_float32": 4 * parameters,
        "weights_bfloat16": 2 * parameters,
        "training_float32": _TRAINING_BYTES * parameters,
    }
    multiplied = layers * kernels
    if issubclass(cls, CausalBackbone):
        memory["cache_float32"] = 4 * 2 * layers * positions * width
        multiplied += config["vocabulary_size"] * width
    windows = config.get("attention_windows", [None])
    windows = [windows[i % len(windows)] or positions for i in range(layers)]
    attended = sum(min(window, positions) for window in windows)
    forward = 2 * multiplied + 4 * attended * width
    return {
        "parameters": parameters,
        "memory": memory,
        "flops_per_token": {"forward": forward, "training": 3 * forward},
    }
