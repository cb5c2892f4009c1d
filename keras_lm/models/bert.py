"""BERT: a bidirectional Transformer encoder over token, position and segment embeddings.

Shapes: B batch, S sequence, D hidden, V vocabulary.
"""

from collections.abc import Callable

import keras

from keras_lm.layers import (
    AttentionContext,
    PaddingBias,
    PooledClassifier,
    PositionEmbedding,
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
from keras_lm.models.backbone import TOKENS_IN_SEGMENTS, Backbone, Head, encoder_heads
from keras_lm.models.sizes import transformer_size
from keras_lm.packers import Template
from keras_lm.tokenizers.wordpiece import WordPieceTokenizer
from keras_lm.utils.argument_types import DType, Tensor


class BertEmbeddings:
    """A mixin before `Backbone`: each token is the norm of the sum of three embeddings.

    Source: Devlin et al. 2018, https://arxiv.org/abs/1810.04805, figure 2.
    """

    def make_embeddings(self, width: int, dtype: DType, has_positions: bool = True) -> None:
        """Make the layers, for a constructor whose arguments their other sizes are.

        Args:
            width: int, of an embedding.
            dtype: of the layers.
            has_positions: bool. False for a model that has positions in its attention alone.
        """
        config = self.config
        self.token_embedding = make_token_embedding(config["vocabulary_size"], width, dtype)
        self.position_embedding = None
        if has_positions:
            self.position_embedding = PositionEmbedding(
                config["max_sequence_length"], width, dtype=dtype, name="position_embedding"
            )
        self.segment_embedding = make_segment_embedding(config["num_segments"], width, dtype)
        self.embedding_norm = make_norm("embedding_norm", config["layer_norm_epsilon"], dtype)

    def embed(self, token_ids: Tensor, segment_ids: Tensor, padding_mask: Tensor) -> Tensor:
        """Return the vectors of tokens, (B, S, `width`)."""
        x = self.token_embedding(token_ids)
        if self.position_embedding is not None:
            x = x + self.position_embedding(padding_mask)
        if self.segment_embedding is not None:
            x = x + self.segment_embedding(segment_ids)
        return self.embedding_norm(x)


@keras.saving.register_keras_serializable("keras_lm")
class BertBackbone(BertEmbeddings, Backbone):
    """The encoder of BERT.

    Args:
        vocabulary_size, num_layers, hidden_dim: int. V, the number of blocks, and D.
        num_heads: int. Attention heads per block; must divide `hidden_dim`.
        intermediate_dim: int. Width inside a block's feed-forward network.
        dropout: float. Fraction dropped in training of the embeddings and of what each part of a
            block adds.
        attention_dropout: float, or None for `dropout`. The same for attention probabilities.
        activation: str. `"gelu"` (erf) or `"gelu_tanh"` (google-research's own code), or another
            activation of Keras.
        max_sequence_length, num_segments: int. Positions and segments that have an embedding.
        layer_norm_epsilon: float.
        use_pooler: bool. False for a checkpoint that has no weights for `pooled_output`.
        dtype: a dtype policy or its name, such as `"mixed_bfloat16"`.

    Call: `backbone({"token_ids": …, "segment_ids": …, "padding_mask": …})`, each (B, S) int32; the
    last two are optional. Returns `sequence_output` (B, S, D) and, with a pooler, `pooled_output`
    (B, D): dense and tanh on the first token.

    Raises:
        ValueError: if `num_heads` does not divide `hidden_dim`.

    Example:

        backbone = keras_lm.models.BertBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
        )
        backbone({"token_ids": [[2, 7, 3]]})["pooled_output"].shape  # (1, 16)

    Source: Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3.
    """

    TEMPLATE = Template(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
    HEADS = encoder_heads(PooledClassifier) | {
        # 0 = the second text follows the first, 1 = it does not
        "next_sentence": Head(PooledClassifier, "next_sentence_head", num_classes=2, dropout=0.0),
    }
    PRETRAINING_HEADS = {"token_logits": "token", "next_sentence_logits": "next_sentence"}
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
        num_segments: int = 2,
        layer_norm_epsilon: float = 1e-12,
        use_pooler: bool = True,
        dtype: DType = None,
        name: str = "bert_backbone",
    ):
        super().__init__(TOKENS_IN_SEGMENTS, dtype, name)
        self.make_embeddings(hidden_dim, dtype)
        self.embedding_dropout = Dropout(dropout, dtype=dtype)
        self.attention_bias = PaddingBias()
        options = block_options(self.config, dtype)
        self.blocks = [PostNormBlock(**options, name=f"block_{i}") for i in range(num_layers)]
        self.pooler = make_pooler(hidden_dim, dtype) if use_pooler else None
        self.finish()

    def forward(self, token_ids, segment_ids, padding_mask, training=None, first_only=False):
        embedded = self.embed(token_ids, segment_ids, padding_mask)
        x = self.embedding_dropout(embedded, training=training)  # (B, S, D)
        context = AttentionContext(bias=self.attention_bias(padding_mask))
        states = through_blocks(self.blocks, x, context, training, first_only)
        return self.outputs_of([embedded, *states], [context] * len(states))


BertBackbone.SIZES = {
    "bert_tiny_en_uncased": transformer_size(30522, 2, 128),
    "bert_mini_en_uncased": transformer_size(30522, 4, 256),
    "bert_small_en_uncased": transformer_size(30522, 4, 512),
    "bert_medium_en_uncased": transformer_size(30522, 8, 512),
    "bert_base_en_uncased": transformer_size(30522, 12, 768),
    "bert_base_en": transformer_size(28996, 12, 768),
    "bert_base_zh": transformer_size(21128, 12, 768),
    "bert_base_multi": transformer_size(119547, 12, 768),
    "bert_large_en_uncased": transformer_size(30522, 24, 1024),
    "bert_large_en": transformer_size(28996, 24, 1024),
}
BertBackbone.PUBLISHED = {
    "bert_tiny_en_uncased": "hf://google/bert_uncased_L-2_H-128_A-2",
    "bert_mini_en_uncased": "hf://google/bert_uncased_L-4_H-256_A-4",
    "bert_small_en_uncased": "hf://google/bert_uncased_L-4_H-512_A-8",
    "bert_medium_en_uncased": "hf://google/bert_uncased_L-8_H-512_A-8",
    "bert_base_en_uncased": "hf://google-bert/bert-base-uncased",
    "bert_base_en": "hf://google-bert/bert-base-cased",
    "bert_base_zh": "hf://google-bert/bert-base-chinese",
    "bert_base_multi": "hf://google-bert/bert-base-multilingual-cased",
    "bert_large_en_uncased": "hf://google-bert/bert-large-uncased",
    "bert_large_en": "hf://google-bert/bert-large-cased",
}
