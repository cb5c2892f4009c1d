"""GPT-Neo: EleutherAI's open replication of GPT-3, with its dense and banded blocks.

Differs from GPT-3: attention scores are not divided by the square root of the heads' width, and
query, key and value have no biases.
"""

import functools
from collections.abc import Callable, Sequence

import keras

from keras_lm.converters.converter import (
    Activation,
    ConfigTable,
    Converter,
    Derived,
    Key,
    Refused,
    dropout_rules,
    match_score,
)
from keras_lm.converters.entries import Entries
from keras_lm.converters.names import PYTORCH_LEAVES, NameTable, transpose_kernels
from keras_lm.converters.published_labels import huggingface_labels
from keras_lm.layers import (
    PreNormBlock,
    SelfAttention,
)
from keras_lm.models.gpt import HUGGINGFACE_IGNORED, inner_width
from keras_lm.models.gpt3 import GPT3Backbone
from keras_lm.models.sizes import transformer_size
from keras_lm.utils.argument_types import DType, Tensor


@keras.saving.register_keras_serializable("keras_lm")
class GPTNeoAttention(SelfAttention):
    """Causal self-attention without scaling, and without biases of query, key and value."""

    has_biases = False

    def make_scale(self):
        return 1.0


@keras.saving.register_keras_serializable("keras_lm")
class GPTNeoBlock(PreNormBlock):
    """The block of GPT-2 with GPT-Neo's attention."""

    attention_class = GPTNeoAttention


@keras.saving.register_keras_serializable("keras_lm")
class GPTNeoBackbone(GPT3Backbone):
    """The decoder of GPT-Neo. It is called like `GPT2Backbone`.

    Args:
        attention_windows: as `GPT3Backbone`.
        Other arguments: as `GPT2Backbone`.

    Raises:
        ValueError: if `num_heads` does not divide `hidden_dim`, or a window is less than 1.

    Example:

        backbone = keras_lm.models.GPTNeoBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
        )
        backbone({"token_ids": [[5, 7, 3]]})["sequence_output"].shape  # (1, 3, 16)

    Source: Black et al. 2021, https://doi.org/10.5281/zenodo.5297715;
    https://github.com/EleutherAI/gpt-neo.
    """

    SIZES = {}
    PUBLISHED = {}
    CONVERTERS = {}

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        attention_windows: Sequence[int | None] = (None, 256),
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        activation: str | Callable[[Tensor], Tensor] = "gelu_tanh",
        max_sequence_length: int = 2048,
        layer_norm_epsilon: float = 1e-5,
        dtype: DType = None,
        name: str = "gpt_neo_backbone",
    ):
        super().__init__(**self.config, dtype=dtype, name=name)

    def make_block(self, num_layers, **options):
        return GPTNeoBlock(**options)


GPTNeoBackbone.SIZES = {
    "gpt_neo_125m": transformer_size(50257, 12, 768, 12),
    "gpt_neo_1.3b": transformer_size(50257, 24, 2048, 16),
    "gpt_neo_2.7b": transformer_size(50257, 32, 2560, 20),
}
GPTNeoBackbone.PUBLISHED = {
    "gpt_neo_125m": "hf://EleutherAI/gpt-neo-125m",
    "gpt_neo_1.3b": "hf://EleutherAI/gpt-neo-1.3B",
    "gpt_neo_2.7b": "hf://EleutherAI/gpt-neo-2.7B",
}

# === Checkpoints ===

NAMES = NameTable(
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
    leaves=PYTORCH_LEAVES,
    layout=transpose_kernels,
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
