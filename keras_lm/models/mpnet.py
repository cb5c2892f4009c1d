"""MPNet: a BERT that also reads how far tokens are apart, under many sentence encoders.

Differs from BERT: scores have a learned bias by the distance of two tokens, in T5's buckets, one
table for all blocks; positions, special tokens and heads are RoBERTa's, so there are no segments;
the vocabulary is BERT's.

It was pretrained by masking and permuting at once, with a second stream as in XLNet, to which no
published checkpoint has a part of its own. That objective is not here: `MaskedLM` and `Pretrainer`
continue by masking.

Shapes: B batch, S sequence, D hidden, N heads.
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
    RelativePositionBias,
)
from keras_lm.layers.attention import block_options, through_blocks
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import make_norm, make_pooler, make_token_embedding
from keras_lm.models.backbone import TOKENS, Backbone, encoder_heads
from keras_lm.models.sizes import transformer_size
from keras_lm.packers import Template
from keras_lm.tokenizers.wordpiece import WordPieceTokenizer
from keras_lm.utils.argument_types import DType, Tensor

# Of the bias: what the authors' code computes with, whatever a configuration states.
NUM_BUCKETS, MAX_DISTANCE = 32, 128
# The table's row of the first token's position; padding has the row before, which is its id.
FIRST_POSITION = 2


@keras.saving.register_keras_serializable("keras_lm")
class MPNetBackbone(Backbone):
    """The encoder of MPNet. It is called like `BertBackbone`, without segments.

    Args:
        max_sequence_length: int. The longest text; the table of positions has two more rows.
        use_pooler: bool. False for a checkpoint that has no weights for `pooled_output`.
        Other arguments: as `BertBackbone`.

    Raises:
        ValueError: if `num_heads` does not divide `hidden_dim`.

    Example:

        backbone = keras_lm.models.MPNetBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
        )
        backbone({"token_ids": [[0, 7, 2]]})["sequence_output"].shape  # (1, 3, 16)

    Source: Song et al. 2020, https://arxiv.org/abs/2004.09297, section 2, and its code,
    https://github.com/microsoft/MPNet.
    """

    TEMPLATE = Template(single="<s>:0 $A:0 </s>:0", pair="<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0")
    HEADS = encoder_heads(FirstTokenClassifier, PooledClassifier, activation="gelu")
    PRETRAINING_HEADS = {"token_logits": "token"}
    tokenizer_class = WordPieceTokenizer

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
        layer_norm_epsilon: float = 1e-5,
        use_pooler: bool = True,
        dtype: DType = None,
        name: str = "mpnet_backbone",
    ):
        super().__init__(TOKENS, dtype, name)
        self.token_embedding = make_token_embedding(vocabulary_size, hidden_dim, dtype)
        self.position_embedding = CountedPositionEmbedding(
            max_sequence_length, hidden_dim, FIRST_POSITION, dtype=dtype, name="position_embedding"
        )
        self.embedding_norm = make_norm("embedding_norm", layer_norm_epsilon, dtype)
        self.embedding_dropout = Dropout(dropout, dtype=dtype)
        self.attention_bias = PaddingBias()
        self.relative_positions = RelativePositionBias(
            NUM_BUCKETS,
            num_heads,
            MAX_DISTANCE,
            stddev=0.02,
            dtype=dtype,
            name="relative_positions",
        )
        options = block_options(self.config, dtype)
        self.blocks = [PostNormBlock(**options, name=f"block_{i}") for i in range(num_layers)]
        self.pooler = make_pooler(hidden_dim, dtype) if use_pooler else None
        self.finish()

    def forward(self, token_ids, padding_mask, training=None, first_only=False):
        x = self.token_embedding(token_ids) + self.position_embedding(padding_mask)
        embedded = self.embedding_norm(x)
        x = self.embedding_dropout(embedded, training=training)  # (B, S, D)
        # (1, N, S, S) + (B, 1, 1, S)
        bias = self.relative_positions(padding_mask) + self.attention_bias(padding_mask)
        context = AttentionContext(bias=bias)
        states = through_blocks(self.blocks, x, context, training, first_only)
        return self.outputs_of([embedded, *states], [context] * len(states))


MPNetBackbone.SIZES = {
    "mpnet_base_en_uncased": transformer_size(30527, 12, 768),
}
MPNetBackbone.PUBLISHED = {
    "mpnet_base_en_uncased": "hf://microsoft/mpnet-base",
}
