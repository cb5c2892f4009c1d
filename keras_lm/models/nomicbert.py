"""NomicBERT: a BERT with rotary positions and gates, under nomic-embed-text.

Differs from BERT: instead of learned positions, queries and keys are rotated by theirs;
feed-forward networks have a gate, with SiLU; nothing in a block has a bias but the norms.

Shapes: B batch, S sequence, D hidden, N heads, H per head.
"""

from collections.abc import Callable

import keras

from keras_lm.layers import AttentionContext, PaddingBias, PooledClassifier, PostNormBlock
from keras_lm.layers.attention import block_options, through_blocks
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import make_pooler
from keras_lm.layers.gated import GatedBlock
from keras_lm.layers.rotary import RotaryPositions, RotarySelfAttention, check_halves
from keras_lm.models.backbone import TOKENS_IN_SEGMENTS, Backbone, encoder_heads
from keras_lm.models.bert import BertEmbeddings
from keras_lm.models.sizes import transformer_size
from keras_lm.packers import Template
from keras_lm.presets.argument_ranges import Axis, Whole
from keras_lm.tokenizers.wordpiece import WordPieceTokenizer
from keras_lm.utils.argument_types import DType, Tensor


class NomicBertAttention(RotarySelfAttention):
    """Self-attention with rotary positions and without biases."""

    has_biases = has_output_bias = False


class NomicBertBlock(GatedBlock, PostNormBlock):
    """A block of NomicBERT; arguments are those of `PostNormBlock`."""

    attention_class = NomicBertAttention
    dropout_inside = 0.0


@keras.saving.register_keras_serializable("keras_lm")
class NomicBertBackbone(BertEmbeddings, Backbone):
    """The encoder of NomicBERT. It is called like `BertBackbone`.

    Args:
        head_dim: int, H, an even number, or None for D / N. Width of an attention head.
        rope_max_wavelength: float. The base of the angles of positions.
        max_sequence_length: int. The longest text that it was trained with; no weight depends on
            it.
        use_pooler: bool. Whether there is a `pooled_output`, which encoders of sentences lack.
        Other arguments: as `BertBackbone`.

    Raises:
        ValueError: if `num_heads` does not divide `hidden_dim` into even parts.

    Example:

        backbone = keras_lm.models.NomicBertBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=24
        )
        backbone({"token_ids": [[2, 7, 3]]})["sequence_output"].shape  # (1, 3, 16)

    Source: Nussbaum et al. 2024, https://arxiv.org/abs/2402.01613, section 4.1; the network is
    Hugging Face's `modeling_nomic_bert.py`.
    """

    TEMPLATE = Template(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
    HEADS = encoder_heads(PooledClassifier)
    # Positions are rotations: no tensor has an axis of them.
    RANGES = {"max_sequence_length": Whole(), "head_dim": Axis(is_optional=True)}
    PRETRAINING_HEADS = {"token_logits": "token"}
    tokenizer_class = WordPieceTokenizer

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        head_dim: int | None = None,
        rope_max_wavelength: float = 1000.0,
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        activation: str | Callable[[Tensor], Tensor] = "silu",
        max_sequence_length: int = 2048,
        num_segments: int = 2,
        layer_norm_epsilon: float = 1e-12,
        use_pooler: bool = False,
        dtype: DType = None,
        name: str = "nomicbert_backbone",
    ):
        super().__init__(TOKENS_IN_SEGMENTS, dtype, name)
        check_halves(num_heads, hidden_dim, head_dim)
        self.make_embeddings(hidden_dim, dtype, has_positions=False)
        self.embedding_dropout = Dropout(dropout, dtype=dtype)
        self.attention_bias = PaddingBias()
        self.positions = RotaryPositions(head_dim or hidden_dim // num_heads, rope_max_wavelength)
        options = block_options(self.config, dtype) | {"head_dim": head_dim}
        self.blocks = [NomicBertBlock(**options, name=f"block_{i}") for i in range(num_layers)]
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


NomicBertBackbone.SIZES = {
    "nomic_bert_base_en_uncased": transformer_size(30528, 12, 768),
}
NomicBertBackbone.PUBLISHED = {
    "nomic_bert_base_en_uncased": "hf://nomic-ai/nomic-embed-text-v1.5",
}
