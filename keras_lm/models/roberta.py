"""RoBERTa: BERT's network, trained longer, on more text, by masking alone; and XLM-R, the same.

Differs from BERT: positions count real tokens, and padding has its own; texts are wrapped in `<s>`
and `</s>`, with two `</s>` between a pair, and all are of one segment; there is no next-sentence
head, so a classifier has its own dense layer on the first token.

Shapes: B batch, S sequence, D hidden.
"""

from collections.abc import Callable

import keras

from keras_lm.layers import (
    AttentionContext,
    CountedPositionEmbedding,
    FirstTokenClassifier,
    PaddingBias,
    PooledClassifier,
    PostNormBlock,
)
from keras_lm.layers.attention import block_options, through_blocks
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import (
    make_norm,
    make_pooler,
    make_segment_embedding,
    make_token_embedding,
)
from keras_lm.models.backbone import TOKENS_IN_SEGMENTS, Backbone, encoder_heads
from keras_lm.models.sizes import transformer_size
from keras_lm.packers import Template
from keras_lm.presets.argument_ranges import Axis, Whole
from keras_lm.tokenizers.byte_pair import BytePairTokenizer
from keras_lm.utils.argument_types import DType, Tensor


@keras.saving.register_keras_serializable("keras_lm")
class RobertaBackbone(Backbone):
    """The encoder of RoBERTa and of XLM-R. It is called like `BertBackbone`.

    Args:
        max_sequence_length: int. The longest text; the table has `first_position` more rows.
        first_position: int. Row of the first token's position; the row before is for padding.
        num_segments: int. Segments that have an embedding, 0 for a checkpoint without any.
        Other arguments: as `BertBackbone`.

    Example:

        backbone = keras_lm.models.RobertaBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
        )
        backbone({"token_ids": [[0, 7, 2]]})["sequence_output"].shape  # (1, 3, 16)

    Source: Liu et al. 2019, https://arxiv.org/abs/1907.11692, section 2; XLM-R: Conneau et al.
    2019, https://arxiv.org/abs/1911.02116.
    """

    TEMPLATE = Template(single="<s>:0 $A:0 </s>:0", pair="<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0")
    HEADS = encoder_heads(FirstTokenClassifier, PooledClassifier, activation="gelu")
    RANGES = {"num_segments": Axis(0), "first_position": Whole(0)}
    PRETRAINING_HEADS = {"token_logits": "token"}
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
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        max_sequence_length: int = 512,
        first_position: int = 2,
        num_segments: int = 1,
        layer_norm_epsilon: float = 1e-5,
        use_pooler: bool = False,
        dtype: DType = None,
        name: str = "roberta_backbone",
    ):
        super().__init__(TOKENS_IN_SEGMENTS, dtype, name)
        self.token_embedding = make_token_embedding(vocabulary_size, hidden_dim, dtype)
        self.position_embedding = CountedPositionEmbedding(
            max_sequence_length, hidden_dim, first_position, dtype=dtype, name="position_embedding"
        )
        self.segment_embedding = make_segment_embedding(num_segments, hidden_dim, dtype)
        self.embedding_norm = make_norm("embedding_norm", layer_norm_epsilon, dtype)
        self.embedding_dropout = Dropout(dropout, dtype=dtype)
        self.attention_bias = PaddingBias()
        options = block_options(self.config, dtype)
        self.blocks = [PostNormBlock(**options, name=f"block_{i}") for i in range(num_layers)]
        self.pooler = make_pooler(hidden_dim, dtype) if use_pooler else None
        self.finish()

    def forward(self, token_ids, segment_ids, padding_mask, training=None, first_only=False):
        x = self.token_embedding(token_ids) + self.position_embedding(padding_mask)
        if self.segment_embedding is not None:
            x = x + self.segment_embedding(segment_ids)
        embedded = self.embedding_norm(x)
        x = self.embedding_dropout(embedded, training=training)  # (B, S, D)
        context = AttentionContext(bias=self.attention_bias(padding_mask))
        states = through_blocks(self.blocks, x, context, training, first_only)
        return self.outputs_of([embedded, *states], [context] * len(states))


RobertaBackbone.SIZES = {
    "roberta_base_en": transformer_size(50265, 12, 768),
    "roberta_large_en": transformer_size(50265, 24, 1024),
    "xlm_roberta_base_multi": transformer_size(250002, 12, 768),
    "xlm_roberta_large_multi": transformer_size(250002, 24, 1024),
}
RobertaBackbone.PUBLISHED = {
    "roberta_base_en": "hf://FacebookAI/roberta-base",
    "roberta_large_en": "hf://FacebookAI/roberta-large",
    "xlm_roberta_base_multi": "hf://FacebookAI/xlm-roberta-base",
    "xlm_roberta_large_multi": "hf://FacebookAI/xlm-roberta-large",
}
