"""JinaBERT: a BERT with linear biases for positions and gates, under jina-embeddings-v2.

Differs from BERT: instead of learned positions, scores fall linearly with the distance of two
tokens, in each head at a rate of its own; feed-forward networks have a gate, and no bias before it.
In the models with normalised queries and keys, these have a norm over all heads, and each block
adds its input to what attention returns twice, with a norm each time.

Shapes: B batch, S sequence, D hidden, N heads, H per head.
"""

import math
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from keras_lm.layers import (
    AttentionContext,
    LayerNormalization,
    PaddingBias,
    PooledClassifier,
    PostNormBlock,
    SelfAttention,
)
from keras_lm.layers.attention import block_options, through_blocks
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import make_pooler
from keras_lm.layers.gated import GatedBlock, GatedFeedForward
from keras_lm.models.backbone import TOKENS_IN_SEGMENTS, Backbone, encoder_heads
from keras_lm.models.bert import BertEmbeddings
from keras_lm.models.sizes import transformer_size
from keras_lm.packers import Template
from keras_lm.presets.argument_ranges import Whole
from keras_lm.tokenizers.wordpiece import WordPieceTokenizer
from keras_lm.utils.argument_types import DType, Tensor


def slopes_of_heads(num_heads):
    """Return the slope of each head, (N,) float32: powers of 2 from 1/2 down to 1/256, evenly.

    Of a number that is no power of two, the next smaller one's come first, and then every second
    one of the next larger power's.
    """

    def even(number):
        return 2.0 ** (-8 / number * np.arange(1, number + 1))

    number = 2 ** math.floor(math.log2(num_heads))
    slopes = np.concatenate([even(number), even(2 * number)[::2][: num_heads - number]])
    return slopes.astype("float32")


class LinearBias(keras.layers.Layer):
    """The bias of attention's scores by how far two tokens are apart, on either side.

    Args:
        num_heads: int, N.

    Call: `layer(padding_mask)` with (B, S) int32, for its length alone; returns (1, N, S, S)
    float32.

    Source: Press et al. 2021, https://arxiv.org/abs/2108.12409, section 3.
    """

    def __init__(self, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.slopes = slopes_of_heads(num_heads)

    def call(self, padding_mask):
        columns = ops.arange(ops.shape(padding_mask)[1], dtype="int32")
        distance = ops.abs(ops.expand_dims(columns, 0) - ops.expand_dims(columns, 1))  # (S, S)
        return ops.cast(distance, "float32") * -self.slopes[None, :, None, None]

    def compute_output_spec(self, padding_mask):
        length = padding_mask.shape[1]
        return keras.KerasTensor((1, len(self.slopes), length, length), "float32")


class JinaBertFeedForward(GatedFeedForward):
    """A feed-forward network with a gate, and a bias at its end."""

    has_output_bias = True


class JinaBertBlock(GatedBlock, PostNormBlock):
    """A block of JinaBERT; arguments are those of `PostNormBlock`.

    Nothing is dropped after the feed-forward network.
    """

    feedforward_class = JinaBertFeedForward

    def add_feedforward(self, x, training=None):
        return self.feedforward_norm(x + self.feedforward(x, training=training))


class NormedSelfAttention(SelfAttention):
    """Self-attention with a norm of all queries of a token, and one of all its keys.

    Args:
        layer_norm_epsilon: float.
        Other arguments: as `SelfAttention`.
    """

    def __init__(self, *args, layer_norm_epsilon, **kwargs):
        super().__init__(*args, **kwargs)
        self.layer_norm_epsilon = layer_norm_epsilon

    def build(self, input_shape):
        super().build(input_shape)
        self.norms = []
        for name in ("query_norm", "key_norm"):
            norm = LayerNormalization(
                epsilon=self.layer_norm_epsilon, name=name, dtype=self.dtype_policy
            )
            norm.build((*input_shape[:-1], self.num_heads * self.head_dim))
            self.norms.append(norm)

    def project(self, x, context):
        query, key, value = ops.split(self.query_key_value(x), 3, axis=-1)
        of_query, of_key = self.norms
        x = ops.concatenate([of_query(query), of_key(key), value], axis=-1)
        return tuple(self.split_heads(x, 3))


class SecondHalfFeedForward(JinaBertFeedForward):
    """A feed-forward network with a gate, whose second half is activated."""

    activates_first = False


class NormedJinaBertBlock(JinaBertBlock):
    """A block of the models with normalised queries and keys."""

    feedforward_class = SecondHalfFeedForward

    def make_attention(self):
        return NormedSelfAttention(
            self.num_heads,
            self.attention_dropout,
            self.output_stddev,
            layer_norm_epsilon=self.layer_norm_epsilon,
            name="attention",
            dtype=self.dtype_policy,
        )

    def build(self, input_shape):
        super().build(input_shape)
        self.output_norm = self.make_norm("output_norm")
        self.output_norm.build(input_shape)

    def add_attention(self, x, context, training=None):
        attended, kept = self.attention(x, context, training=training)
        attended = self.output_norm(x + self.dropout(attended, training=training))
        return self.attention_norm(x + attended), kept


@keras.saving.register_keras_serializable("keras_lm")
class JinaBertBackbone(BertEmbeddings, Backbone):
    """The encoder of JinaBERT, version 2. It is called like `BertBackbone`.

    Args:
        dropout: float. Fraction dropped of embeddings, of what attention adds, and inside of
            feed-forward networks.
        activation: str. That of the gates, see `keras_lm.layers.get_activation`.
        query_key_norm: bool. Whether queries and keys are normalised, as in the models for code.
        max_sequence_length: int. The longest text; no weight depends on it.
        Other arguments: as `BertBackbone`.

    Raises:
        ValueError: if `num_heads` does not divide `hidden_dim`.

    Example:

        backbone = keras_lm.models.JinaBertBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=24
        )
        backbone({"token_ids": [[2, 7, 3]]})["sequence_output"].shape  # (1, 3, 16)

    Source: Günther et al. 2023, https://arxiv.org/abs/2310.19923, section 3.
    """

    TEMPLATE = Template(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
    HEADS = encoder_heads(PooledClassifier, activation="gelu")
    RANGES = {"max_sequence_length": Whole()}  # which no tensor shows
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
        query_key_norm: bool = False,
        max_sequence_length: int = 8192,
        num_segments: int = 2,
        layer_norm_epsilon: float = 1e-12,
        use_pooler: bool = False,
        dtype: DType = None,
        name: str = "jinabert_backbone",
    ):
        super().__init__(TOKENS_IN_SEGMENTS, dtype, name)
        self.make_embeddings(hidden_dim, dtype, has_positions=False)
        self.embedding_dropout = Dropout(dropout, dtype=dtype)
        self.attention_bias = PaddingBias()
        self.distances = LinearBias(num_heads)
        block_class = NormedJinaBertBlock if query_key_norm else JinaBertBlock
        options = block_options(self.config, dtype)
        self.blocks = [block_class(**options, name=f"block_{i}") for i in range(num_layers)]
        self.pooler = make_pooler(hidden_dim, dtype) if use_pooler else None
        self.finish()

    def forward(self, token_ids, segment_ids, padding_mask, training=None):
        embedded = self.embed(token_ids, segment_ids, padding_mask)
        x = self.embedding_dropout(embedded, training=training)  # (B, S, D)
        # (1, N, S, S) + (B, 1, 1, S)
        bias = self.distances(padding_mask) + self.attention_bias(padding_mask)
        context = AttentionContext(bias=bias)
        states = through_blocks(self.blocks, x, context, training)
        return self.outputs_of([embedded, *states], [context] * len(states))


JinaBertBackbone.SIZES = {
    "jina_v2_small_en": transformer_size(30528, 4, 512),
    "jina_v2_base_en": transformer_size(30528, 12, 768),
    "jina_v2_base_code": transformer_size(61056, 12, 768, query_key_norm=True),
}
JinaBertBackbone.PUBLISHED = {
    "jina_v2_small_en": "hf://jinaai/jina-embeddings-v2-small-en",
    "jina_v2_base_en": "hf://jinaai/jina-embeddings-v2-base-en",
    "jina_v2_base_code": "hf://jinaai/jina-embeddings-v2-base-code",
}
