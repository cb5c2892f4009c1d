"""What published files of ModernBERT call its weights, and what their configurations say."""

import functools

from keras_lm.converters.checked_files import CheckpointError, Entries
from keras_lm.converters.converter import (
    Activation,
    ConfigTable,
    Converter,
    Derived,
    Key,
    PyTorchNames,
    Refused,
    architectures,
    match_score,
)
from keras_lm.converters.published_labels import huggingface_labels
from keras_lm.models.modernbert import POOLINGS, ModernBertBackbone

NAMES = PyTorchNames(
    {
        "token_embedding": "embeddings.tok_embeddings",
        "embedding_norm": "embeddings.norm",
        "block_{i}/attention/query_key_value": "layers.{i}.attn.Wqkv",
        "block_{i}/attention/output": "layers.{i}.attn.Wo",
        "block_{i}/attention_norm": "layers.{i}.attn_norm",
        "block_{i}/feedforward/intermediate": "layers.{i}.mlp.Wi",
        "block_{i}/feedforward/output": "layers.{i}.mlp.Wo",
        "block_{i}/feedforward_norm": "layers.{i}.mlp_norm",
        "final_norm": "final_norm",
        "classifier/transformation/dense": "head.dense",
        "classifier/transformation/norm": "head.norm",
        "classifier/logits": "classifier",
        "span_head/transformation/dense": "head.dense",
        "span_head/transformation/norm": "head.norm",
        "span_head/logits": "classifier",
        "token_head/transformation/dense": "head.dense",
        "token_head/transformation/norm": "head.norm",
        "token_head/bias": "decoder.bias",
    },
    prefix=r"model\.",
    copies={"decoder.weight": "embeddings.tok_embeddings.weight"},
)

_KINDS = ("full_attention", "sliding_attention")


def _rope(config, kind):
    """Return what a configuration in the newer form states of positions in one kind of block."""
    parameters = (config.get("rope_parameters") or {}).get(kind)
    return parameters if isinstance(parameters, dict) else {}


def _check(checkpoint):
    """Raise a CheckpointError for other kinds of blocks or of positions."""
    config = checkpoint.config
    kinds = config.get("layer_types")
    if kinds is not None and (
        len(kinds) != config["num_hidden_layers"] or not set(kinds) <= {*_KINDS}
    ):
        raise CheckpointError(
            f"{checkpoint.source}: its configuration has layer_types={kinds!r}, and it must be a "
            f"list of num_hidden_layers={config['num_hidden_layers']} entries, each "
            f"{' or '.join(_KINDS)}."
        )
    # Version 5 of transformers takes half of the window from here, version 4 does not.
    half, width = config.get("sliding_window"), config.get("local_attention", 128)
    if half is not None and half != width // 2:
        raise CheckpointError(
            f"{checkpoint.source}: its configuration has sliding_window={half!r}, and "
            f"local_attention={width!r} asks for {width // 2}: delete the one that is wrong."
        )
    for kind in config.get("rope_parameters") or {}:
        if kind not in _KINDS:
            raise CheckpointError(
                f"{checkpoint.source}: its configuration has rope_parameters of {kind!r}; "
                f"supported are those of {' and '.join(_KINDS)}."
            )
    for kind in _KINDS:
        rope_type = _rope(config, kind).get("rope_type", "default")
        if rope_type != "default":
            raise CheckpointError(
                f"{checkpoint.source}: its configuration has rope_type={rope_type!r}, and "
                f"{ModernBertBackbone.__name__} supports only 'default'."
            )


def _read_windows(config, tensors):
    width, kinds = config.get("local_attention", 128), config.get("layer_types")
    if kinds is None:
        turn = min(config.get("global_attn_every_n_layers", 3), len(tensors))
        return [None, *[width] * (turn - 1)]
    return [None if kind == "full_attention" else width for kind in kinds]


def _write_windows(arguments):
    windows, number = arguments["attention_windows"], arguments["num_layers"]
    windows = [windows[i % len(windows)] for i in range(number)]
    widths = sorted({width for width in windows if width is not None})
    if len(widths) > 1:
        raise Refused("attention_windows", windows, "one width in all blocks that have a window")
    config = {"layer_types": [_KINDS[width is not None] for width in windows]}
    config |= {"local_attention": widths[0]} if widths else {}
    # Version 4 of transformers reads this alone.
    turn = next((i for i in range(1, number) if windows[i] is None), number)
    is_regular = all((width is None) == (i % turn == 0) for i, width in enumerate(windows))
    return config | ({"global_attn_every_n_layers": turn} if is_regular else {})


def _write_wavelengths(arguments):
    wavelength = arguments["rope_max_wavelength"]
    bases = (wavelength, arguments["local_rope_max_wavelength"] or wavelength)
    parameters = {
        kind: {"rope_type": "default", "rope_theta": base}
        for kind, base in zip(_KINDS, bases, strict=True)
    }
    older = {"global_rope_theta": bases[0], "local_rope_theta": bases[1]}
    return {"rope_parameters": parameters, **older}


def _rate(key):
    """Return the rule of a fraction to drop, None if it is `dropout`."""

    def read(config, tensors):
        rate = config.get(key, 0.0)
        return None if rate == config.get("mlp_dropout", 0.0) else rate

    return Derived(
        read,
        lambda arguments: {key: arguments["dropout"] if arguments[key] is None else arguments[key]},
    )


_CONFIG = ConfigTable(
    ModernBertBackbone,
    "modernbert",
    {
        # The ids that transformers takes for granted may be more than there are.
        "vocabulary_size": Derived(
            lambda config, _: config["vocab_size"],
            lambda arguments: (
                {"vocab_size": arguments["vocabulary_size"]}
                | dict.fromkeys(f"{role}_token_id" for role in ("pad", "bos", "eos", "cls", "sep"))
            ),
        ),
        "num_layers": Key("num_hidden_layers"),
        "num_heads": Key("num_attention_heads"),
        "hidden_dim": Key("hidden_size"),
        "intermediate_dim": Key("intermediate_size"),
        "attention_windows": Derived(_read_windows, _write_windows),
        "rope_max_wavelength": Derived(
            lambda config, _: _rope(config, _KINDS[0]).get(
                "rope_theta", config.get("global_rope_theta", 160000.0)
            ),
            _write_wavelengths,
        ),
        "local_rope_max_wavelength": Derived(
            lambda config, _: _rope(config, _KINDS[1]).get(
                "rope_theta", config.get("local_rope_theta", 10000.0)
            )
        ),
        "dropout": Key("mlp_dropout", 0.0),
        "attention_dropout": _rate("attention_dropout"),
        "embedding_dropout": _rate("embedding_dropout"),
        "classifier_dropout": _rate("classifier_dropout"),
        "activation": Activation("hidden_activation"),
        "classifier_activation": Activation("classifier_activation"),
        "classifier_pooling": Derived(
            lambda config, _: POOLINGS.get(name := config.get("classifier_pooling", "cls"), name),
            lambda arguments: {
                "classifier_pooling": {ours: theirs for theirs, ours in POOLINGS.items()}[
                    arguments["classifier_pooling"]
                ]
            },
        ),
        "max_sequence_length": Key("max_position_embeddings", 8192),
        "layer_norm_epsilon": Key("norm_eps", 1e-5),
    },
    Entries(
        read={
            "attention_dropout",
            "classifier_dropout",
            "classifier_pooling",
            "embedding_dropout",
            "global_attn_every_n_layers",
            "global_rope_theta",
            "layer_types",
            "local_attention",
            "local_rope_theta",
            "rope_parameters",
            "sliding_window",
            "vocab_size",
        },
        harmless={
            "deterministic_flash_attn",
            "initializer_cutoff_factor",
            "layer_norm_eps",  # published beside norm_eps, which is read, as the next but two
            "position_embedding_type",
            "reference_compile",
            "repad_logits_with_grad",
            "sparse_pred_ignore_index",
            "sparse_prediction",
        },
        refused={
            "norm_bias": (False,),
            "attention_bias": (False,),
            "mlp_bias": (False,),
            "classifier_bias": (False,),
            "decoder_bias": (True,),
            "rope_scaling": (),
        },
    ),
    _check,
)

ModernBertBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(
            match_score,
            model_type="modernbert",
            tensors=["layers.0.attn.Wqkv.weight"],
            prefix="model.",
        ),
        _CONFIG,
        NAMES,
        lambda checkpoint: huggingface_labels(checkpoint, "classifier.weight"),
        architectures=architectures("ModernBert"),
    ),
}
