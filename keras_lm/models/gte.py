"""GTE: a BERT with rotary positions and gates, under gte v1.5 and Snowflake's Arctic Embed 2.0.

Differs from BERT: instead of learned positions, queries and keys are rotated by theirs, more slowly
in models for longer texts than they were pretrained with; feed-forward networks have a gate, and no
bias before it; there may be no segments.

Shapes: B batch, S sequence, D hidden, N heads, H per head.
"""

from collections.abc import Callable

import keras

from keras_lm.layers import AttentionContext, PaddingBias, PooledClassifier, PostNormBlock
from keras_lm.layers.attention import block_options, through_blocks
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import make_pooler
from keras_lm.layers.gated import GatedBlock, GatedFeedForward
from keras_lm.layers.rotary import RotaryPositions, RotarySelfAttention, check_halves
from keras_lm.models.backbone import TOKENS_IN_SEGMENTS, Backbone, encoder_heads
from keras_lm.models.bert import BertEmbeddings
from keras_lm.models.sizes import transformer_size
from keras_lm.packers import Template
from keras_lm.presets.argument_ranges import Axis, Real, Whole
from keras_lm.tokenizers.wordpiece import WordPieceTokenizer
from keras_lm.utils.argument_types import DType, Tensor


class GteFeedForward(GatedFeedForward):
    """A feed-forward network with a gate, whose second half is activated, and a bias at its end."""

    has_output_bias = True
    activates_first = False


class GteBlock(GatedBlock, PostNormBlock):
    """A block of GTE; arguments are those of `PostNormBlock`."""

    attention_class = RotarySelfAttention
    feedforward_class = GteFeedForward


@keras.saving.register_keras_serializable("keras_lm")
class GteBackbone(BertEmbeddings, Backbone):
    """The encoder of GTE. It is called like `BertBackbone`.

    Args:
        rope_max_wavelength: float. The base of the angles of positions.
        rope_scaling_factor: float. How many times longer texts may be than those of the first part
            of pretraining: with F, the base is F times as large, and all angles grow F^(2 / H)
            times slower.
        max_sequence_length: int. The longest text; no weight depends on it.
        num_segments: int. Segments that have an embedding, 0 for none.
        use_pooler: bool. Whether there is a `pooled_output`, which encoders of sentences lack.
        Other arguments: as `BertBackbone`.

    Raises:
        ValueError: if `num_heads` does not divide `hidden_dim` into even parts.

    Example:

        backbone = keras_lm.models.GteBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=24
        )
        backbone({"token_ids": [[2, 7, 3]]})["sequence_output"].shape  # (1, 3, 16)

    Source: Zhang et al. 2024, https://arxiv.org/abs/2407.19669, section 2; the network is Hugging
    Face's `modeling_gte.py`, and its scaling that of https://huggingface.co/Alibaba-NLP/new-impl.
    """

    TEMPLATE = Template(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
    HEADS = encoder_heads(PooledClassifier, activation="gelu")
    # Positions are rotations: no tensor has an axis of them.
    RANGES = {"max_sequence_length": Whole(), "num_segments": Axis(0)}
    RANGES |= {"rope_scaling_factor": Real(is_optional=False, is_positive=True)}
    PRETRAINING_HEADS = {"token_logits": "token"}
    tokenizer_class = WordPieceTokenizer

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        rope_max_wavelength: float = 160000.0,
        rope_scaling_factor: float = 1.0,
        dropout: float = 0.1,
        attention_dropout: float | None = None,
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        max_sequence_length: int = 8192,
        num_segments: int = 1,
        layer_norm_epsilon: float = 1e-12,
        use_pooler: bool = False,
        dtype: DType = None,
        name: str = "gte_backbone",
    ):
        super().__init__(TOKENS_IN_SEGMENTS, dtype, name)
        check_halves(num_heads, hidden_dim)
        self.make_embeddings(hidden_dim, dtype, has_positions=False)
        self.embedding_dropout = Dropout(dropout, dtype=dtype)
        self.attention_bias = PaddingBias()
        head_dim, factor = hidden_dim // num_heads, rope_scaling_factor
        self.positions = RotaryPositions(
            head_dim, rope_max_wavelength * factor, slowdown=factor ** (2 / head_dim)
        )
        options = block_options(self.config, dtype)
        self.blocks = [GteBlock(**options, name=f"block_{i}") for i in range(num_layers)]
        self.pooler = make_pooler(hidden_dim, dtype) if use_pooler else None
        self.finish()

    def forward(self, token_ids, segment_ids, padding_mask, training=None):
        embedded = self.embed(token_ids, segment_ids, padding_mask)
        x = self.embedding_dropout(embedded, training=training)  # (B, S, D)
        context = AttentionContext(
            bias=self.attention_bias(padding_mask), positions=self.positions(padding_mask)
        )
        states = through_blocks(self.blocks, x, context, training)
        return self.outputs_of([embedded, *states], [context] * len(states))


GteBackbone.SIZES = {
    "gte_base_en_v1.5": transformer_size(
        30528, 12, 768, num_segments=0, rope_max_wavelength=500000.0
    ),
    "gte_large_en_v1.5": transformer_size(30528, 24, 1024, num_segments=2, rope_scaling_factor=2.0),
    "gte_base_multi": transformer_size(
        250048, 12, 768, rope_max_wavelength=20000.0, rope_scaling_factor=8.0
    ),
    "snowflake_arctic_embed_m_v2.0": transformer_size(250048, 12, 768),
}
GteBackbone.PUBLISHED = {
    "gte_base_en_v1.5": "hf://Alibaba-NLP/gte-base-en-v1.5",
    "gte_large_en_v1.5": "hf://Alibaba-NLP/gte-large-en-v1.5",
    "gte_base_multi": "hf://Alibaba-NLP/gte-multilingual-base",
    "snowflake_arctic_embed_m_v2.0": "hf://Snowflake/snowflake-arctic-embed-m-v2.0",
}
