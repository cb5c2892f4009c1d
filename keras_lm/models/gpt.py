"""GPT: the Transformer's decoder, pretrained as a language model and fine-tuned.

Shapes: B batch, S sequence, D hidden.
"""

from collections.abc import Callable

import keras

from keras_lm.layers import CausalBias, LastTokenClassifier, PositionEmbedding, PostNormBlock
from keras_lm.layers.attention import KeyValueCache, block_options
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import make_token_embedding
from keras_lm.models.backbone import CausalBackbone, Head, from_backbone
from keras_lm.models.sizes import transformer_size
from keras_lm.packers import Template
from keras_lm.tokenizers.gpt import GPTTokenizer
from keras_lm.utils.argument_types import DType, Tensor

# Start, delimiter and extract, by the names in openai/finetune-transformer-lm; section 3.3.
_FINE_TUNING = {
    "template": Template(
        single="_start_:0 $A:0 _classify_:0", pair="_start_:0 $A:0 _delimiter_:0 $B:0 _classify_:0"
    ),
    "lm_loss_weight": 0.5,
}


@keras.saving.register_keras_serializable("keras_lm")
class GPTBackbone(CausalBackbone):
    """The decoder of GPT, called like `CausalBackbone`. It normalises after each residual sum.

    Args:
        vocabulary_size: int. V.
        Other arguments: as `GPT2Backbone`.

    Example:

        backbone = keras_lm.models.GPTBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
        )
        backbone({"token_ids": [[5, 7, 3]]})["sequence_output"].shape  # (1, 3, 16)

    Source: Radford et al. 2018, sections 3.1 and 4.1,
    https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf.
    """

    HEADS = CausalBackbone.HEADS | {
        "classification": Head(
            LastTokenClassifier,
            "classifier",
            use_bias=False,
            dropout=from_backbone("dropout"),
            **_FINE_TUNING,
        ),
        "multiple_choice": Head(
            LastTokenClassifier,
            "multiple_choice_head",
            num_classes=1,
            dropout=from_backbone("dropout"),
            **_FINE_TUNING,
        ),
    }
    tokenizer_class = GPTTokenizer

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
        max_sequence_length: int = 512,
        layer_norm_epsilon: float = 1e-5,
        dtype: DType = None,
        name: str = "gpt_backbone",
    ):
        super().__init__(dtype=dtype, name=name)
        self.token_embedding = make_token_embedding(vocabulary_size, hidden_dim, dtype)
        self.position_embedding = PositionEmbedding(
            max_sequence_length, hidden_dim, dtype=dtype, name="position_embedding"
        )
        self.embedding_dropout = Dropout(dropout, dtype=dtype)
        self.attention_bias = CausalBias()
        options = block_options(self.config, dtype)
        self.blocks = [PostNormBlock(**options, name=f"block_{i}") for i in range(num_layers)]
        self.finish()

    def forward(self, token_ids, padding_mask, cache=None, training=None):
        cache = KeyValueCache(padding_mask, cache, len(self.blocks))
        x = self.token_embedding(token_ids) + self.position_embedding(padding_mask, cache.start)
        hidden_states = [x]  # (B, S, D)
        x = self.embedding_dropout(x, training=training)
        bias = self.attention_bias(cache.padding_mask, cache.slots)
        contexts = cache.contexts([bias] * len(self.blocks))
        hidden_states += cache.through(self.blocks, x, contexts, training)
        return self.outputs_of(hidden_states, contexts) | {"cache": cache.state()}


GPTBackbone.SIZES = {"gpt_base_en": transformer_size(40478, 12, 768)}
GPTBackbone.PUBLISHED = {"gpt_base_en": "hf://openai-community/openai-gpt"}
