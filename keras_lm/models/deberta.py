"""DeBERTa, versions 2 and 3: attention that reads contents and distances apart.

Differs from BERT: scores also depend on the distance of two tokens, which has queries and keys of
its own (disentangled attention); there may be no embeddings of positions and segments; there is no
pooler; the first block may have a convolution beside it. Version 3 is the same network, pretrained
to tell which tokens were replaced, as ELECTRA.

Shapes: B batch, S sequence, D hidden, E embedding, V vocabulary.
"""

from collections.abc import Callable, Sequence

import keras

from keras_lm.layers import (
    AttentionContext,
    EachTokenClassifier,
    MaskedLMHead,
    PositionEmbedding,
    PostNormBlock,
    SpanHead,
)
from keras_lm.layers.attention import block_options
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import make_dense, make_segment_embedding, make_token_embedding
from keras_lm.models.backbone import TOKENS_IN_SEGMENTS, Backbone, Head, from_backbone
from keras_lm.models.deberta_layers import (
    ContextPooledClassifier,
    DisentangledBlock,
    DistanceEmbedding,
    LocalConvolution,
    MaskedNormalization,
    PairBias,
    ReplacedTokenByContextHead,
)
from keras_lm.models.sizes import kernels, transformer_size
from keras_lm.packers import Template
from keras_lm.presets.argument_ranges import RATE, Axis, Whole
from keras_lm.tokenizers import SentencePieceTokenizer
from keras_lm.utils.argument_types import DType, Tensor

TERMS = ("c2p", "p2c")


@keras.saving.register_keras_serializable("keras_lm")
class DebertaV3Backbone(Backbone):
    """The encoder of DeBERTa, versions 2 and 3.

    Args:
        vocabulary_size, num_layers, hidden_dim: int. V, the number of blocks, and D.
        num_heads: int. Attention heads per block; must divide `hidden_dim`.
        intermediate_dim: int. Width inside a block's feed-forward network.
        embedding_dim: int, or None for `hidden_dim`. E, the width of the embeddings.
        position_attention: list of str. What the scores take of distances: `"c2p"`, content to
            position, and `"p2c"`, position to content; none for those of BERT.
        bucket_size: int. Buckets of distances to either side; None for one to each distance.
        max_distance: int, or None for `max_sequence_length`. The distance from which on all are
            alike.
        share_projections: bool. Whether distances have the queries' and keys' kernels of tokens.
        normalize_distances: bool. Whether the vectors of distances have a norm.
        use_position_embedding: bool. Whether the position in the text has an embedding, too.
        num_segments: int. Segments that have an embedding, 0 for none.
        conv_kernel_size: int. How many tokens the convolution beside the first block reads, an odd
            number; 0 for none.
        conv_activation: str. The convolution's activation.
        dropout: float. Fraction dropped in training of the embeddings, of the vectors of distances,
            and of what each part of a block adds.
        attention_dropout: float, or None for `dropout`. The same for attention probabilities.
        classifier_dropout: float, or None for `dropout`. The same for what classifiers of texts
            read, and `pooler_dropout`, float, for their pooler.
        pooler_activation: str. The activation of the pooler.
        activation: str. See `keras_lm.layers.get_activation`.
        max_sequence_length: int. The longest text.
        layer_norm_epsilon: float.
        dtype: a dtype policy or its name, such as `"mixed_bfloat16"`.

    Call: `backbone({"token_ids": …, "segment_ids": …, "padding_mask": …})`, each (B, S) int32; the
    last two are optional. Returns `sequence_output` (B, S, D).

    Distances are those of columns, whatever the mask says: with padding on either side they are
    those of the tokens. Padding between tokens counts.

    Raises:
        ValueError: if `num_heads` does not divide `hidden_dim`, `position_attention` is unknown,
            `conv_kernel_size` is even, or there are more buckets than distances.

    Example:

        backbone = keras_lm.models.DebertaV3Backbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
        )
        backbone({"token_ids": [[1, 7, 2]]})["sequence_output"].shape  # (1, 3, 16)

    Source: He et al. 2020, https://arxiv.org/abs/2006.03654, section 3; version 3: He et al. 2021,
    https://arxiv.org/abs/2111.09543; microsoft/DeBERTa. Masked tokens are predicted without the
    first paper's enhanced mask decoder (section 3.2), as by Hugging Face's code.
    """

    TEMPLATE = Template(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
    _CLASSIFIER = {
        "dropout": from_backbone("classifier_dropout", "dropout"),
        "pooler_dropout": from_backbone("pooler_dropout"),
        "activation": from_backbone("pooler_activation"),
    }
    HEADS = {
        "classification": Head(ContextPooledClassifier, "classifier", **_CLASSIFIER),
        "multiple_choice": Head(
            ContextPooledClassifier, "classifier", num_classes=1, **_CLASSIFIER
        ),
        "token_classification": Head(
            EachTokenClassifier, "classifier", dropout=from_backbone("dropout")
        ),
        "question_answering": Head(SpanHead, "span_head"),
        "replaced": Head(
            ReplacedTokenByContextHead,
            "replaced_head",
            activation=from_backbone("activation"),
            layer_norm_epsilon=from_backbone("layer_norm_epsilon"),
        ),
        "token": Head(
            MaskedLMHead,
            "token_head",
            token_embedding=from_backbone("token_embedding"),
            activation=from_backbone("activation"),
            layer_norm_epsilon=from_backbone("layer_norm_epsilon"),
        ),
    }
    PRETRAINING_HEADS = {"replaced_logits": "replaced"}
    RANGES = {
        "num_segments": Axis(0),
        "bucket_size": Axis(2, is_optional=True),
        "max_distance": Whole(1, is_optional=True),
        "conv_kernel_size": Axis(0),
        "pooler_dropout": RATE,
    }
    # The enhanced mask decoder's positions, and distances that no score takes.
    LEFT_OUT = r"embeddings\.position_embeddings\.|encoder\.(rel_embeddings|LayerNorm)\."
    tokenizer_class = SentencePieceTokenizer

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        embedding_dim: int | None = None,
        position_attention: Sequence[str] = TERMS,
        bucket_size: int | None = 256,
        max_distance: int | None = None,
        share_projections: bool = True,
        normalize_distances: bool = True,
        use_position_embedding: bool = False,
        num_segments: int = 0,
        conv_kernel_size: int = 0,
        conv_activation: str = "tanh",
        dropout: float = 0.1,
        attention_dropout: float | None = None,
        classifier_dropout: float | None = None,
        pooler_dropout: float = 0.0,
        pooler_activation: str = "gelu",
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        max_sequence_length: int = 512,
        layer_norm_epsilon: float = 1e-7,
        dtype: DType = None,
        name: str = "deberta_v3_backbone",
    ):
        super().__init__(TOKENS_IN_SEGMENTS, dtype, name)
        embedding_dim = self.config["embedding_dim"] = embedding_dim or hidden_dim
        self.config["max_distance"] = max_distance or max_sequence_length
        _check(**self.config)
        self.token_embedding = make_token_embedding(vocabulary_size, embedding_dim, dtype)
        self.position_embedding = None
        if use_position_embedding:
            self.position_embedding = PositionEmbedding(
                max_sequence_length, embedding_dim, dtype=dtype, name="position_embedding"
            )
        self.segment_embedding = make_segment_embedding(num_segments, embedding_dim, dtype)
        self.projection = None
        if embedding_dim != hidden_dim:
            self.projection = _make_projection(hidden_dim, dtype)
        self.embedding_norm = MaskedNormalization(
            epsilon=layer_norm_epsilon, dtype=dtype, name="embedding_norm"
        )
        self.embedding_dropout = Dropout(dropout, dtype=dtype)
        self.attention_bias = PairBias()
        self.distances = _make_distances(self.config, dtype) if position_attention else None
        self.blocks = [_make_block(self.config, dtype, f"block_{i}") for i in range(num_layers)]
        self.convolution = _make_convolution(self.config, dtype) if conv_kernel_size else None
        self.finish()

    def forward(self, token_ids, segment_ids, padding_mask, training=None):
        x = self.token_embedding(token_ids)
        if self.position_embedding is not None:
            x = x + self.position_embedding(padding_mask)
        if self.segment_embedding is not None:
            x = x + self.segment_embedding(segment_ids)
        if self.projection is not None:
            x = self.projection(x)
        embedded = self.embedding_norm(x, padding_mask)
        hidden_states = [embedded]  # (B, S, D)
        x = embedded = self.embedding_dropout(embedded, training=training)
        context = AttentionContext(bias=self.attention_bias(padding_mask))
        if self.distances is not None:
            context = context._replace(positions=self.distances(padding_mask))
        for i, block in enumerate(self.blocks):
            x, _ = block(x, context, training=training)
            if i == 0 and self.convolution is not None:
                x = self.convolution(embedded, x, padding_mask, training=training)
            hidden_states.append(x)
        return self.outputs_of(hidden_states, [context] * len(self.blocks))

    def make_generator(self, size: float = 1 / 2) -> "DebertaV3Backbone":
        """Return a new, random generator to pretrain this backbone with: as wide, but less deep.

        Its embeddings are its own. (The authors' shares them, without the discriminator's gradient:
        "gradient-disentangled embedding sharing", which is not here.)

        Args:
            size: float. How many blocks it has beside this backbone.

        Example:

            discriminator = keras_lm.models.DebertaV3Backbone(100, 4, 2, 16, 32)
            discriminator.make_generator().config["num_layers"]  # 2

        Source: https://arxiv.org/abs/2111.09543, section 3.
        """
        config = self.config | {"num_layers": max(round(size * self.config["num_layers"]), 1)}
        return DebertaV3Backbone(**config, dtype=self.dtype_policy)

    def forward_flops(self) -> float:
        """Those of other blocks with attention, and a product with each distance for each term.

        The vectors of distances are the same for all tokens, and not counted.
        """
        products = 2 * len(self.config["position_attention"]) * self.attended_tokens()
        others = kernels(filter(None, [self.projection, self.convolution]))
        return super().forward_flops() + products * self.config["hidden_dim"] + 2 * others


def _make_distances(config, dtype):
    return DistanceEmbedding(
        config["hidden_dim"],
        config["max_sequence_length"],
        config["max_distance"],
        config["bucket_size"],
        config["layer_norm_epsilon"] if config["normalize_distances"] else None,
        dtype=dtype,
        name="distances",
    )


def _make_projection(hidden_dim, dtype):
    return make_dense("projection", hidden_dim, dtype, use_bias=False)


def _make_convolution(config, dtype):
    return LocalConvolution(
        config["conv_kernel_size"],
        config["conv_activation"],
        config["dropout"],
        config["layer_norm_epsilon"],
        dtype=dtype,
        name="convolution",
    )


def _make_block(config, dtype, name):
    arguments = block_options(config, dtype) | {"name": name}
    if not config["position_attention"]:
        return PostNormBlock(**arguments)
    terms, shared = config["position_attention"], config["share_projections"]
    return DisentangledBlock(terms, shared, **arguments)


def _check(
    position_attention, bucket_size, max_distance, max_sequence_length, conv_kernel_size, **others
):
    terms = position_attention
    if not isinstance(terms, (list, tuple)) or set(terms) - {*TERMS} or len({*terms}) < len(terms):
        raise ValueError(
            f"position_attention={terms!r}: pass a list of some of {', '.join(map(repr, TERMS))}."
        )
    if conv_kernel_size and conv_kernel_size % 2 == 0:
        raise ValueError(
            f"conv_kernel_size={conv_kernel_size}: pass an odd number, for as many tokens on "
            "either side, or 0."
        )
    half = (bucket_size or 0) // 2
    if half and max_sequence_length - 1 > half >= max_distance - 1:
        raise ValueError(
            f"bucket_size={bucket_size}: pass less than {2 * (max_distance - 1)}, as distances "
            f"from max_distance={max_distance} on share a bucket, or None for one bucket each."
        )


def _size(num_layers, hidden_dim, vocabulary_size=128100, **others):
    return transformer_size(vocabulary_size, num_layers, hidden_dim, **others)


_CONVOLUTION = {"conv_kernel_size": 3, "conv_activation": "gelu"}
DebertaV3Backbone.SIZES = {
    "deberta_v3_extra_small_en": _size(12, 384),
    "deberta_v3_small_en": _size(6, 768),
    "deberta_v3_base_en": _size(12, 768),
    "deberta_v3_large_en": _size(24, 1024),
    "deberta_v3_base_multi": _size(12, 768, 251000),
    "deberta_v2_extra_large_en": _size(24, 1536, **_CONVOLUTION),
    "deberta_v2_extra_extra_large_en": _size(48, 1536, **_CONVOLUTION),
}
DebertaV3Backbone.PUBLISHED = {
    "deberta_v3_extra_small_en": "hf://microsoft/deberta-v3-xsmall",
    "deberta_v3_small_en": "hf://microsoft/deberta-v3-small",
    "deberta_v3_base_en": "hf://microsoft/deberta-v3-base",
    "deberta_v3_large_en": "hf://microsoft/deberta-v3-large",
    "deberta_v3_base_multi": "hf://microsoft/mdeberta-v3-base",
    "deberta_v2_extra_large_en": "hf://microsoft/deberta-v2-xlarge",
    "deberta_v2_extra_extra_large_en": "hf://microsoft/deberta-v2-xxlarge",
}
