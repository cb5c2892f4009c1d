"""GPT-Neo: EleutherAI's open replication of GPT-3, with its dense and banded blocks.

Differs from GPT-3: attention scores are not divided by the square root of the heads' width, and
query, key and value have no biases.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_lm.layers import PreNormBlock, SelfAttention
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

    def make_block(self, num_layers: int, **options: Any) -> PreNormBlock:
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
