"""ALBERT: BERT's network with far fewer parameters, as its blocks share theirs.

Differs from BERT: the blocks share their parameters; token, position and segment embeddings are
narrower than the blocks, and projected to their width; pretraining predicts whether two
sentences are in order or swapped; dropout is 0 but before a classifier; the vocabulary is
SentencePiece's.

Shapes: B batch, S sequence, D hidden.
"""

from collections.abc import Callable
from typing import Any

import keras

from keras_lm.layers import (
    AttentionContext,
    Dense,
    PaddingBias,
    PooledClassifier,
    PostNormBlock,
    truncated_normal,
)
from keras_lm.layers.attention import block_options, through_blocks
from keras_lm.layers.backend import Dropout
from keras_lm.models.backbone import TOKENS_IN_SEGMENTS, Backbone, Head, encoder_heads
from keras_lm.models.bert import BertEmbeddings
from keras_lm.models.sizes import kernels, transformer_size
from keras_lm.packers import Template
from keras_lm.presets.argument_ranges import Count
from keras_lm.tokenizers.sentence_piece import SentencePieceTokenizer
from keras_lm.utils.argument_types import DType, Tensor

SHARING = ("all", "attention", "feedforward", "none")


@keras.saving.register_keras_serializable("keras_lm")
class AlbertBlock(PostNormBlock):
    """A `PostNormBlock` that may share its attention or feed-forward network with another block.

    Set `block.attention` or `block.feedforward` to that of the other before the block is built.
    """

    attention = feedforward = None

    def make_attention(self):
        return self.attention or super().make_attention()

    def make_feedforward(self):
        return self.feedforward or super().make_feedforward()


@keras.saving.register_keras_serializable("keras_lm")
class AlbertBackbone(BertEmbeddings, Backbone):
    """The encoder of ALBERT. It is called like `BertBackbone`.

    Args:
        embedding_dim: int. Width of the embeddings, which are projected to `hidden_dim` if that is
            another.
        num_groups: int. The layers are divided into as many groups, one after the other, and share
            within each.
        num_inner_repetitions: int. Blocks of a layer; these have their own parameters.
        sharing: str. What the layers of a group share: `"all"`; only `"attention"` or
            `"feedforward"`, where norms are each layer's own; or `"none"`.
        classifier_dropout: float. Fraction dropped of the input of classifiers.
        always_project: bool. Project embeddings of the same width too, as Hugging Face's code does.
        Other arguments: as `BertBackbone`.

    `hidden_states` begin after the projection, and there is one for every block.

    Raises:
        ValueError: if `sharing` is unknown, there are more groups than layers, or `num_heads` does
            not divide `hidden_dim`.

    Example:

        backbone = keras_lm.models.AlbertBackbone(
            vocabulary_size=100,
            num_layers=4,
            num_heads=2,
            hidden_dim=16,
            intermediate_dim=32,
            embedding_dim=8,
        )
        backbone({"token_ids": [[2, 7, 3]]})["sequence_output"].shape  # (1, 3, 16)
        backbone.count_params()  # as many as of a single layer

    Source: Lan et al. 2019, https://arxiv.org/abs/1909.11942, section 3.1; `sharing`: its table 4.
    """

    TEMPLATE = Template(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
    HEADS = encoder_heads(PooledClassifier, dropout="classifier_dropout") | {
        # 0 = as they were written, 1 = swapped
        "sentence_order": Head(PooledClassifier, "sentence_order_head", num_classes=2, dropout=0.0),
    }
    PRETRAINING_HEADS = {"token_logits": "token", "sentence_order_logits": "sentence_order"}
    PRETRAINING_OBJECTIVES = {"token": "MaskedNGrams"}
    tokenizer_class = SentencePieceTokenizer
    RANGES = {"num_groups": Count(), "num_inner_repetitions": Count()}

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        embedding_dim: int = 128,
        num_groups: int = 1,
        num_inner_repetitions: int = 1,
        sharing: str = "all",
        dropout: float = 0.0,
        attention_dropout: float | None = None,
        classifier_dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "gelu_tanh",
        max_sequence_length: int = 512,
        num_segments: int = 2,
        layer_norm_epsilon: float = 1e-12,
        use_pooler: bool = True,
        always_project: bool = False,
        dtype: DType = None,
        name: str = "albert_backbone",
    ):
        super().__init__(TOKENS_IN_SEGMENTS, dtype, name)
        self.make_embeddings(embedding_dim, dtype)
        self.embedding_dropout = Dropout(dropout, dtype=dtype)
        self.embedding_projection = None
        if always_project or embedding_dim != hidden_dim:
            self.embedding_projection = self._dense(hidden_dim, name="embedding_projection")
        self.attention_bias = PaddingBias()
        self.blocks: list[keras.layers.Layer] = _make_blocks(self.config, dtype)
        self.pooler = None
        if use_pooler:
            self.pooler = self._dense(hidden_dim, activation="tanh", name="pooler")
        self.finish()

    def _dense(self, units, **options):
        dtype = self.dtype_policy
        return Dense(units, kernel_initializer=truncated_normal(), dtype=dtype, **options)

    def forward(self, token_ids, segment_ids, padding_mask, training=None, first_only=False):
        x = self.embed(token_ids, segment_ids, padding_mask)  # (B, S, E)
        x = self.embedding_dropout(x, training=training)
        if self.embedding_projection is not None:
            x = self.embedding_projection(x)  # (B, S, D)
        context = AttentionContext(bias=self.attention_bias(padding_mask))
        states = through_blocks(self.blocks, x, context, training, first_only)
        return self.outputs_of([x, *states], [context] * len(states))

    @classmethod
    def layers_with_tensors(cls, arguments: dict[str, Any]) -> int:
        # Layers may share the wider of their parts, or everything.
        if arguments.get("sharing", "all") in ("all", "feedforward"):
            return arguments.get("num_groups", 1)
        return super().layers_with_tensors(arguments)

    def forward_flops(self) -> float:
        projections = filter(None, [self.embedding_projection])
        return super().forward_flops() + 2 * kernels(projections)


def _make_blocks(config, dtype):
    """Return the block of each repetition in each layer; one that is shared is there repeatedly."""
    num_layers, num_groups, sharing = (config[k] for k in ("num_layers", "num_groups", "sharing"))
    if sharing not in SHARING:
        raise ValueError(f"sharing={sharing!r}: pass one of {', '.join(map(repr, SHARING))}.")
    if num_groups > num_layers:
        raise ValueError(
            f"num_groups={num_groups} is more than num_layers={num_layers}: pass {num_layers} or "
            "less."
        )
    options = block_options(config, dtype)

    def make(number, repetition, like):
        block = AlbertBlock(**options, name=f"block_{number + repetition}")
        if like and sharing != "none":
            setattr(block, sharing, getattr(like[repetition], sharing))
        with keras.name_scope(f"inner_{repetition}"):
            block.build((None, None, config["hidden_dim"]))
        return block

    blocks, first = [], {}  # group → the blocks of its first layer
    for i in range(num_layers):
        group = i * num_groups // num_layers
        of_layer = like = first.get(group)
        if like is None or sharing != "all":
            # Checkpoints number their variables by group and repetition, so the paths do, too.
            with keras.name_scope(f"group_{group if sharing == 'all' else i}"):
                numbers = range(config["num_inner_repetitions"])
                of_layer = [make(len(blocks), number, like) for number in numbers]
        first.setdefault(group, of_layer)
        blocks += of_layer
    return blocks


def _size(num_layers, num_heads, hidden_dim, dropout=0.0):
    others = {"embedding_dim": 128, "dropout": dropout}
    return transformer_size(30000, num_layers, hidden_dim, num_heads, **others)


# Those without a number are version 2, trained for longer and without dropout.
AlbertBackbone.SIZES = {
    "albert_base_v1_en_uncased": _size(12, 12, 768, dropout=0.1),
    "albert_large_v1_en_uncased": _size(24, 16, 1024, dropout=0.1),
    "albert_extra_large_v1_en_uncased": _size(24, 16, 2048, dropout=0.1),
    "albert_extra_extra_large_v1_en_uncased": _size(12, 64, 4096),
    "albert_base_en_uncased": _size(12, 12, 768),
    "albert_large_en_uncased": _size(24, 16, 1024),
    "albert_extra_large_en_uncased": _size(24, 16, 2048),
    "albert_extra_extra_large_en_uncased": _size(12, 64, 4096),
}
AlbertBackbone.PUBLISHED = {
    "albert_base_v1_en_uncased": "hf://albert/albert-base-v1",
    "albert_large_v1_en_uncased": "hf://albert/albert-large-v1",
    "albert_extra_large_v1_en_uncased": "hf://albert/albert-xlarge-v1",
    "albert_extra_extra_large_v1_en_uncased": "hf://albert/albert-xxlarge-v1",
    "albert_base_en_uncased": "hf://albert/albert-base-v2",
    "albert_large_en_uncased": "hf://albert/albert-large-v2",
    "albert_extra_large_en_uncased": "hf://albert/albert-xlarge-v2",
    "albert_extra_extra_large_en_uncased": "hf://albert/albert-xxlarge-v2",
}
