"""GPT-3: a larger GPT-2 in which every other block attends only to the last tokens.

Differs from GPT-2: blocks alternate between dense and locally banded attention. OpenAI published
neither code nor weights, and the paper states neither the band's width nor which kind is first.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import keras

from keras_lm.converters.converter import Converter, Derived, Refused, match_score, score_with
from keras_lm.models.gpt2 import GPT2Backbone
from keras_lm.models.gpt2_checkpoints import HUGGINGFACE_CLASSES, HUGGINGFACE_CONFIG, NAMES
from keras_lm.models.gpt_checkpoints import huggingface_head
from keras_lm.models.sizes import transformer_size
from keras_lm.utils.argument_types import DType, Tensor


@keras.saving.register_keras_serializable("keras_lm")
class GPT3Backbone(GPT2Backbone):
    """The decoder of GPT-3. It is called like `GPT2Backbone`.

    Args:
        attention_windows: sequence of ints and Nones, repeated over the blocks: how many tokens one
            attends to, itself included, at least 1; None for all before it. The default alternates,
            dense first, with the band of GPT-Neo. A folder in Hugging Face's GPT-2 format loads as
            a GPT-3 if its `config.json` has them.
        Other arguments: as `GPT2Backbone`.

    Raises:
        ValueError: if `num_heads` does not divide `hidden_dim`, or a window is less than 1.

    Example:

        backbone = keras_lm.models.GPT3Backbone(
            vocabulary_size=100,
            num_layers=4,
            num_heads=2,
            hidden_dim=16,
            intermediate_dim=32,
            attention_windows=(8, None),  # banded first
        )
        backbone({"token_ids": [[5, 7, 3]]})["sequence_output"].shape  # (1, 3, 16)

    Source: Brown et al. 2020, https://arxiv.org/abs/2005.14165, section 2.1; the band is that of
    the Sparse Transformer, https://arxiv.org/abs/1904.10509.
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
        dropout: float = 0.1,
        attention_dropout: float | None = None,
        activation: str | Callable[[Tensor], Tensor] = "gelu_tanh",
        max_sequence_length: int = 2048,
        layer_norm_epsilon: float = 1e-5,
        dtype: DType = None,
        name: str = "gpt3_backbone",
    ):
        others = {k: v for k, v in self.config.items() if k != "attention_windows"}
        super().__init__(**others, dtype=dtype, name=name)


# Table 2.1. Two of its rows are inconsistent; the values here give the stated number of parameters:
# XL's 24 heads of 128 are wider than its 2048 (16 are not), and 13B's width of 5140 is not a
# multiple of its 40 heads (5120 is, of 128 each).
GPT3Backbone.SIZES = {
    "gpt3_small": transformer_size(50257, 12, 768, 12),
    "gpt3_medium": transformer_size(50257, 24, 1024, 16),
    "gpt3_large": transformer_size(50257, 24, 1536, 16),
    "gpt3_xl": transformer_size(50257, 24, 2048, 16),
    "gpt3_2.7b": transformer_size(50257, 32, 2560, 32),
    "gpt3_6.7b": transformer_size(50257, 32, 4096, 32),
    "gpt3_13b": transformer_size(50257, 40, 5120, 40),
    "gpt3_175b": transformer_size(50257, 96, 12288, 96),
}


def _without_windows(arguments):
    """Write what only this library reads: Hugging Face's GPT-2 has no windows."""
    windows = arguments["attention_windows"]
    if set(windows) != {None}:
        raise Refused("attention_windows", windows, "only blocks without one, [None]")
    return {"attention_windows": list(windows)}


_CONFIG = dataclasses.replace(
    HUGGINGFACE_CONFIG,
    model=GPT3Backbone,
    rules=HUGGINGFACE_CONFIG.rules
    | {
        "attention_windows": Derived(
            lambda config, _: config["attention_windows"],
            _without_windows,
            ("attention_windows",),
        ),
    },
)


_REFINED = functools.partial(score_with, config={"attention_windows": None})

GPT3Backbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(match_score, model_type="gpt2", refine=_REFINED),
        _CONFIG,
        NAMES,
        huggingface_head,
        architectures=HUGGINGFACE_CLASSES,
        tokenizer="GPT2Tokenizer",
    ),
}
