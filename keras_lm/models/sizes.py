"""How large a model is, from its arguments alone: nothing is built, so any size will do."""

import inspect

# Bytes a parameter takes in training: itself, its gradient, and the two moments of Adam.
_TRAINING_BYTES = 4 * 4
# Fraction of the tokens that masking predicts.
_MASKED = 0.15


def estimate(cls, **arguments):
    """Return parameters, memory and FLOPs of a backbone, from its class and arguments.

    The dict has `parameters`, an exact int; `memory`, a dict of bytes: the weights in float32 and
    in bfloat16, training in float32 (weights, gradients and Adam's two moments, without
    activations), and the cache of one full sequence in float32 for models that have one; and
    `flops_per_token`, a dict: `forward`, two per weight of the blocks (and of the output matrix of
    a causal model) and four per channel and attended token, for the last token of a full sequence;
    and `training`, three times as many; for models that were pretrained by masking or by replaced
    tokens also `pretraining`, with the heads for this, at the published rate of 15 %. A token of
    ELMo is a word with all of its characters: each filter counts at each position. One of an
    encoder-decoder is a token of a source and one of a target, for T5 of 512 each, for RNNs of 50.

    Example:

        estimate(GPT3Backbone, **GPT3Backbone.SIZES["gpt3_175b"])["parameters"]  # 174604259328

    Source: Kaplan et al. 2020, https://arxiv.org/abs/2001.08361, section 2.1.
    """
    count = _COUNTS.get(cls.__name__)
    if count is None:
        raise ValueError(f"{cls.__name__}: there are estimates of {sorted(_COUNTS)} only.")
    defaults = {
        name: parameter.default for name, parameter in inspect.signature(cls).parameters.items()
    }
    config = defaults | arguments
    parameters, forward, cache = count(config)
    memory = {
        "weights_float32": 4 * parameters,
        "weights_bfloat16": 2 * parameters,
        "training_float32": _TRAINING_BYTES * parameters,
    }
    if cache:
        memory["cache_float32"] = 4 * cache
    flops = {"forward": forward, "training": 3 * forward}
    heads = [_HEADS[kind](config) for kind in cls.PRETRAINING_HEADS.values() if kind in _HEADS]
    if heads:
        flops["pretraining"] = 3 * (forward + round(2 * sum(heads)))
    return {"parameters": parameters, "memory": memory, "flops_per_token": flops}


# === Each returns the parameters, forward FLOPs per token, and numbers in a cache ===


def _transformer(beside, is_causal=True):
    """Return how to count a Transformer; `beside` counts all but blocks, tokens and positions."""

    def count(config):
        layers, width = config["num_layers"], config["hidden_dim"]
        inside, positions = config["intermediate_dim"], config["max_sequence_length"]
        kernels = 4 * width**2 + 2 * width * inside  # of a block
        biases_and_norms = 3 * width + width + inside + width + 4 * width
        parameters = (
            layers * (kernels + biases_and_norms)
            + (config["vocabulary_size"] + positions) * width
            + beside(config)
        )
        multiplied = layers * kernels + is_causal * config["vocabulary_size"] * width
        windows = config.get("attention_windows", [None])
        windows = [windows[i % len(windows)] or positions for i in range(layers)]
        attended = sum(min(window, positions) for window in windows)
        cache = is_causal * 2 * layers * positions * width
        return parameters, 2 * multiplied + 4 * attended * width, cache

    return count


def _albert(config):
    width, inside, narrow = (
        config[key] for key in ("hidden_dim", "intermediate_dim", "embedding_dim")
    )
    repetitions, shared = config["num_inner_repetitions"], config["sharing"]
    groups, layers = config["num_groups"], config["num_layers"]
    kernels = {"attention": 4 * width**2, "feedforward": 2 * width * inside}
    biases = {"attention": 4 * width, "feedforward": inside + width}
    # How often each part of a block is there; the two norms go with neither.
    times = {part: groups if shared in ("all", part) else layers for part in kernels}
    parameters = sum(times[part] * (kernels[part] + biases[part]) for part in kernels)
    parameters += (groups if shared == "all" else layers) * 4 * width
    rows = config["vocabulary_size"] + config["max_sequence_length"] + config["num_segments"] + 2
    projection = (narrow + 1) * width * (config["always_project"] or narrow != width)
    pooler = config["use_pooler"] * (width + 1) * width
    multiplied = layers * repetitions * sum(kernels.values()) + narrow * width * (projection > 0)
    attended = layers * repetitions * config["max_sequence_length"]
    return (
        repetitions * parameters + rows * narrow + projection + pooler,
        2 * multiplied + 4 * attended * width,
        0,
    )


def _elmo(config):
    layers, width, units = config["num_layers"], config["hidden_dim"], config["cell_dim"]
    characters, highways = config["embedding_dim"], config["num_highways"]
    total = sum(number for _, number in config["filters"])
    kernels = [(size, size * characters * number) for size, number in config["filters"]]
    places = config["characters_per_word"] + 1
    convolved = sum(kernel * (places - size) for size, kernel in kernels)
    highway = 2 * total**2
    projection = total * width if config["project_words"] else 0
    # Of one direction.
    lstm = 2 * width * 4 * units + (units * width if config["project_cells"] else 0)
    biases = total + highways * 2 * total + (width if projection else 0) + 2 * layers * 4 * units
    others = highways * highway + projection + 2 * layers * lstm
    embedding = config["vocabulary_size"] * characters
    parameters = embedding + sum(kernel for _, kernel in kernels) + others + biases
    return parameters, 2 * (convolved + others), 0


def _t5(config):
    width, heads = config["hidden_dim"], config["num_heads"]
    inside = heads * (config["head_dim"] or width // heads)
    encoder = config["num_layers"]
    decoder = config["num_decoder_layers"] or encoder
    feedforward = (3 if config["gated"] else 2) * width * config["intermediate_dim"]
    kernels = encoder * (4 * width * inside + feedforward)
    kernels += decoder * (8 * width * inside + feedforward)
    norms = (2 * encoder + 3 * decoder + 2) * width
    embedding = config["vocabulary_size"] * width
    parameters = embedding + kernels + norms + 2 * config["num_buckets"] * heads
    attended = (encoder + 2 * decoder) * 512
    return parameters, 2 * (kernels + embedding) + 4 * attended * inside, 0


def _encoder_decoder(config):
    width, inside = config["hidden_dim"], config["intermediate_dim"]
    encoder = config["num_layers"]
    decoder = config["num_decoder_layers"] or encoder
    feedforward = 2 * width * inside
    kernels = encoder * (4 * width**2 + feedforward) + decoder * (8 * width**2 + feedforward)
    # Of each attention four biases, of each norm a scale and an offset.
    attentions, blocks = encoder + 2 * decoder, encoder + decoder
    norms = attentions + blocks + 2 * config.get("final_norms", False)
    biases = attentions * 4 * width + blocks * (inside + width) + norms * 2 * width
    of_target = config["decoder_vocabulary_size"]
    parameters = (config["vocabulary_size"] + (of_target or 0)) * width + kernels + biases
    multiplied = kernels + (of_target or config["vocabulary_size"]) * width
    attended = attentions * config["max_sequence_length"]
    return parameters, 2 * multiplied + 4 * attended * width, 0


def _tensor2tensor(config):
    parameters, flops, cache = _encoder_decoder(config | {"final_norms": config["pre_norm"]})
    width, encoder = config["hidden_dim"], config["num_layers"]
    attentions = encoder + 2 * (config["num_decoder_layers"] or encoder)
    spaces = 32 * (config["target_space"] is not None)
    return parameters + (spaces - 4 * attentions) * width, flops, cache


def _awd_lstm(config):
    embedding = config["vocabulary_size"] * config["embedding_dim"]
    widths = [config["hidden_dim"]] * (config["num_layers"] - 1) + [config["embedding_dim"]]
    # Each of two directions has half of the units.
    units = [width // (2 if config["bidirectional"] else 1) for width in widths]
    inputs = [config["embedding_dim"], *widths]
    kernels = sum(
        4 * width * (read + unit) for read, width, unit in zip(inputs, widths, units, strict=False)
    )
    # The tied embedding multiplies too, for the logits.
    return embedding + kernels + 4 * sum(widths), 2 * (kernels + embedding), 0


def _rnn_encoder_decoder(config):
    width, cells = config["hidden_dim"], {"lstm": 4, "gru": 3}[config["cell"]]
    narrow, attention = config["embedding_dim"] or width, config["attention"]
    is_additive, both = attention == "additive", attention in ("additive", "concat")
    # Each of two directions has half of the units.
    units = width // (2 if config["bidirectional"] else 1)
    encoder = config["num_layers"]
    decoder = config["num_decoder_layers"] or encoder
    kernels = cells * width * (narrow + (encoder - 1) * width + encoder * units)
    kernels += cells * width * (narrow + (decoder - 1) * width + decoder * width)
    kernels += (is_additive or config["input_feeding"]) * cells * width**2
    kernels += (both + (attention not in (None, "dot"))) * width**2  # of queries, and of keys
    readout = 2 * width * (2 * width + narrow) if is_additive else 2 * width**2
    kernels += (attention is not None) * readout
    biases = cells * width * (encoder + decoder) + both * width + is_additive * 2 * width
    starts = is_additive * decoder * (units + 1) * width  # once a text
    rows = config["decoder_vocabulary_size"]
    embeddings = (config["vocabulary_size"] + (rows or 0)) * narrow
    multiplied = kernels + (rows or config["vocabulary_size"]) * width
    attended = (attention is not None) * 50  # words, the longest that Bahdanau et al. trained on
    return embeddings + kernels + biases + starts, 2 * multiplied + 4 * attended * width, 0


def _token_head(config):
    width, rows = config["hidden_dim"], config["vocabulary_size"]
    return _MASKED * (config.get("embedding_dim") or width) * (width + rows)


def _span_boundary_head(config):
    width, rows = config["hidden_dim"], config["vocabulary_size"]
    return _MASKED * width * (2 * width + 200 + width + rows)  # 200 for the position


# The kind of a pretraining head → its multiplications per token; those of a whole text are few.
_HEADS = {
    "token": _token_head,
    "span_boundary": _span_boundary_head,
    "replaced": lambda c: (c["hidden_dim"] + 1) * c["hidden_dim"],
}


def _beside_electra(config):
    """Embeddings of another width, their segments and norm, and the projection if they differ."""
    narrow, wide = config["embedding_dim"] or config["hidden_dim"], config["hidden_dim"]
    rows = config["vocabulary_size"] + config["max_sequence_length"]
    others = (config["num_segments"] + 2) * narrow
    return rows * (narrow - wide) + others + (narrow != wide) * (narrow + 1) * wide


_BERT = _transformer(
    lambda c: (
        (c["num_segments"] + 2) * c["hidden_dim"]
        + c["use_pooler"] * (c["hidden_dim"] + 1) * c["hidden_dim"]
    ),
    is_causal=False,
)
_ELECTRA = _transformer(_beside_electra, is_causal=False)
_COUNTS = {
    "AlbertBackbone": _albert,
    "BertBackbone": _BERT,
    "SpanBertBackbone": _BERT,
    "TinyBertBackbone": _BERT,
    "ElectraBackbone": _ELECTRA,
    "ElectraGeneratorBackbone": _ELECTRA,
    "RobertaBackbone": _transformer(
        lambda c: (
            (c["first_position"] + c["num_segments"] + 2) * c["hidden_dim"]
            + c["use_pooler"] * (c["hidden_dim"] + 1) * c["hidden_dim"]
        ),
        is_causal=False,
    ),
    # The norm of the embeddings.
    "DistilBertBackbone": _transformer(lambda c: 2 * c["hidden_dim"], is_causal=False),
    "GPTBackbone": _transformer(lambda c: 0),
    "GPT2Backbone": _transformer(lambda c: 2 * c["hidden_dim"]),  # the final norm
    "GPT3Backbone": _transformer(lambda c: 2 * c["hidden_dim"]),
    # The final norm; its blocks lack the biases of query, key and value.
    "GPTNeoBackbone": _transformer(lambda c: (2 - 3 * c["num_layers"]) * c["hidden_dim"]),
    "ElmoBackbone": _elmo,
    "AWDLSTMBackbone": _awd_lstm,
    "RNNEncoderDecoderBackbone": _rnn_encoder_decoder,
    "T5Backbone": _t5,
    "MarianBackbone": _encoder_decoder,
    "TransformerBackbone": _encoder_decoder,
    "Tensor2TensorBackbone": _tensor2tensor,
}
