"""GPT-2: a Transformer decoder with layer normalisation before each part of a block.

Shapes: B batch, S sequence, D hidden.
"""

from collections.abc import Callable
from typing import Any

import keras

from keras_lm.layers import CausalBias, PositionEmbedding, PreNormBlock
from keras_lm.layers.attention import KeyValueCache, block_options
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import make_norm, make_token_embedding
from keras_lm.models.backbone import CausalBackbone
from keras_lm.models.sizes import transformer_size
from keras_lm.tokenizers.byte_pair import BytePairTokenizer
from keras_lm.utils.argument_types import DType, Tensor


@keras.saving.register_keras_serializable("keras_lm")
class GPT2Backbone(CausalBackbone):
    """The decoder of GPT-2.

    Args:
        vocabulary_size, num_layers, hidden_dim: int. V, the number of blocks, and D.
        num_heads: int. Attention heads per block; must divide `hidden_dim`.
        intermediate_dim: int. Width inside a block's feed-forward network.
        dropout: float. Fraction dropped in training of the embeddings and of what each part of a
            block adds.
        attention_dropout: float, or None for `dropout`. The same for attention probabilities.
        activation: str. See `keras_lm.layers.get_activation`.
        max_sequence_length: int. Positions that have an embedding.
        layer_norm_epsilon: float.
        dtype: a dtype policy or its name, such as `"mixed_bfloat16"`.

    Call: like `CausalBackbone`; `sequence_output` (B, S, D) is that after the final norm.

    Raises:
        ValueError: if `num_heads` does not divide `hidden_dim`.

    Example:

        backbone = keras_lm.models.GPT2Backbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
        )
        backbone({"token_ids": [[5, 7, 3]]})["sequence_output"].shape  # (1, 3, 16)

    Source: openai/gpt-2, `src/model.py`; Radford et al. 2019, section 2.3,
    https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf.
    """

    tokenizer_class = BytePairTokenizer

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        dropout: float = 0.1,
        attention_dropout: float | None = None,
        activation: str | Callable[[Tensor], Tensor] = "gelu_tanh",
        max_sequence_length: int = 1024,
        layer_norm_epsilon: float = 1e-5,
        dtype: DType = None,
        name: str = "gpt2_backbone",
    ):
        super().__init__(dtype=dtype, name=name)
        self.token_embedding = make_token_embedding(vocabulary_size, hidden_dim, dtype)
        self.position_embedding = PositionEmbedding(
            max_sequence_length, hidden_dim, dtype=dtype, name="position_embedding"
        )
        self.embedding_dropout = Dropout(dropout, dtype=dtype)
        options = block_options(self.config, dtype)
        self.blocks = [
            self.make_block(num_layers, **options, name=f"block_{i}") for i in range(num_layers)
        ]
        # How many tokens a token attends to in each block, itself included; None for all before it.
        # Repeated over the blocks.
        windows = self.config.get("attention_windows", [None])
        self.windows: list[int | None] = [windows[i % len(windows)] for i in range(num_layers)]
        self.attention_biases = [CausalBias(window) for window in dict.fromkeys(self.windows)]
        self.final_norm = make_norm("final_norm", layer_norm_epsilon, dtype)
        self.finish()

    def attended_tokens(self) -> int:
        limit = self.max_sequence_length
        return sum(min(window or limit, limit) for window in self.windows)

    def make_block(self, num_layers: int, **options: Any) -> PreNormBlock:
        # The residual is a sum of two parts per block: scaled, it starts as large as one of them.
        return PreNormBlock(output_stddev=0.02 / (2 * num_layers) ** 0.5, **options)

    def forward(self, token_ids, padding_mask, cache=None, training=None):
        cache = KeyValueCache(padding_mask, cache, len(self.blocks))
        x = self.token_embedding(token_ids) + self.position_embedding(padding_mask, cache.start)
        hidden_states = [x]  # (B, S, D)
        x = self.embedding_dropout(x, training=training)
        biases = {
            bias.window: bias(cache.padding_mask, cache.slots) for bias in self.attention_biases
        }
        contexts = cache.contexts([biases[window] for window in self.windows])
        hidden_states += cache.through(self.blocks, x, contexts, training)
        hidden_states[-1] = self.final_norm(hidden_states[-1])
        return self.outputs_of(hidden_states, contexts) | {"cache": cache.state()}


GPT2Backbone.SIZES = {
    "gpt2_base_en": transformer_size(50257, 12, 768),
    "gpt2_medium_en": transformer_size(50257, 24, 1024),
    "gpt2_large_en": transformer_size(50257, 36, 1280),
    "gpt2_extra_large_en": transformer_size(50257, 48, 1600),
}
GPT2Backbone.PUBLISHED = {
    "gpt2_base_en": "hf://openai-community/gpt2",
    "gpt2_medium_en": "hf://openai-community/gpt2-medium",
    "gpt2_large_en": "hf://openai-community/gpt2-large",
    "gpt2_extra_large_en": "hf://openai-community/gpt2-xl",
}
