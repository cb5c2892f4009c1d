"""What published files of GPT-Neo call its weights, and what their configurations say."""

import functools

from keras_lm.converters.checked_files import Entries
from keras_lm.converters.converter import (
    Activation,
    ConfigTable,
    Converter,
    Derived,
    Key,
    PyTorchNames,
    Refused,
    dropout_rules,
    match_score,
)
from keras_lm.converters.published_labels import huggingface_labels
from keras_lm.models.gpt_checkpoints import HUGGINGFACE_IGNORED, inner_width
from keras_lm.models.gpt_neo import GPTNeoBackbone

NAMES = PyTorchNames(
    {
        "token_embedding": "wte",
        "position_embedding": "wpe",
        "block_{i}/attention/query_key_value": tuple(
            f"h.{{i}}.attn.attention.{part}_proj" for part in ("q", "k", "v")
        ),
        "block_{i}/attention/output": "h.{i}.attn.attention.out_proj",
        "block_{i}/attention_norm": "h.{i}.ln_1",
        "block_{i}/feedforward/intermediate": "h.{i}.mlp.c_fc",
        "block_{i}/feedforward/output": "h.{i}.mlp.c_proj",
        "block_{i}/feedforward_norm": "h.{i}.ln_2",
        "final_norm": "ln_f",
        "classifier/logits": "score",
    },
    prefix=r"transformer\.",
    ignored=HUGGINGFACE_IGNORED,
    copies={"lm_head.weight": "wte.weight"},
)


def _read_windows(config, tensors):
    kinds = config.get("attention_layers")
    if kinds is None:  # run-length encoded: [[["global", "local"], 12]]
        most = len(tensors)  # or a few bytes could ask for a list without end
        turns = config["attention_types"]
        kinds = [kind for turn, times in turns for kind in turn * min(times, most)]
    return [config["window_size"] if kind == "local" else None for kind in kinds]


def _write_windows(arguments):
    windows, number = arguments["attention_windows"], arguments["num_layers"]
    windows = [windows[i % len(windows)] for i in range(number)]
    widths = sorted({width for width in windows if width is not None})
    if len(widths) > 1:
        raise Refused("attention_windows", windows, "one width in all blocks that have a window")
    kinds = ["global" if width is None else "local" for width in windows]
    stated = {"attention_layers": kinds, "attention_types": [[kinds, 1]]}
    return stated | ({"window_size": widths[0]} if widths else {})


_CONFIG = ConfigTable(
    GPTNeoBackbone,
    "gpt_neo",
    {
        "vocabulary_size": Key("vocab_size"),
        "num_layers": Key("num_layers"),
        "num_heads": Key("num_heads"),
        "hidden_dim": Key("hidden_size"),
        "intermediate_dim": Derived(
            lambda config, _: config.get("intermediate_size") or 4 * config["hidden_size"],
            lambda arguments: {"intermediate_size": inner_width(arguments)},
        ),
        "attention_windows": Derived(_read_windows, _write_windows),
        **dropout_rules("resid_dropout", "attention_dropout", 0.0, 0.0),
        "activation": Activation("activation_function", "gelu_new"),
        "max_sequence_length": Key("max_position_embeddings"),
        "layer_norm_epsilon": Key("layer_norm_epsilon", 1e-5),
    },
    Entries(
        read={"attention_layers", "attention_types", "intermediate_size", "window_size"},
        harmless={
            "summary_activation",
            "summary_first_dropout",
            "summary_proj_to_labels",
            "summary_type",
            "summary_use_proj",
        },
    ),
    rates={"classifier_dropout": (0.1,), "embed_dropout": ("resid_dropout", 0.0)},
    aliases={"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
)


GPTNeoBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(match_score, model_type="gpt_neo"),
        _CONFIG,
        NAMES,
        lambda checkpoint: huggingface_labels(checkpoint, "score.weight"),
        architectures={
            "": "GPTNeoModel",
            "causal_lm": "GPTNeoForCausalLM",
            "classification": "GPTNeoForSequenceClassification",
        },
        tokenizer="GPT2Tokenizer",
    ),
}
