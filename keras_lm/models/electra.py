"""ELECTRA: a discriminator that finds replaced tokens, and the generator that replaced them.

Differs from BERT: embeddings may be of another width than the blocks, with a linear layer between;
there is no pooler, so a classifier has its own dense layer with GELU on the first token. The
discriminator was pretrained to tell which tokens were replaced, the generator by masking. Both are
the same network; in google's checkpoints they share their embeddings. `ReplacedByGenerator` of
`keras_lm.objectives` trains both.

Shapes: B batch, S sequence, D hidden, E embedding, V vocabulary.
"""

from collections.abc import Callable

import keras

from keras_lm.layers import (
    AttentionContext,
    FirstTokenClassifier,
    PaddingBias,
    PostNormBlock,
    get_activation,
)
from keras_lm.layers.attention import block_options, through_blocks
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import make_dense
from keras_lm.models.backbone import (
    TOKENS_IN_SEGMENTS,
    Backbone,
    Head,
    encoder_heads,
    from_backbone,
)
from keras_lm.models.bert import BertEmbeddings
from keras_lm.models.sizes import transformer_size
from keras_lm.packers import Template
from keras_lm.tokenizers.wordpiece import WordPieceTokenizer
from keras_lm.utils.argument_types import DType, Tensor

# What embeddings must have in common to be shared.
_SIZES = (
    *("vocabulary_size", "embedding_dim", "max_sequence_length", "num_segments"),
    "layer_norm_epsilon",
)


@keras.saving.register_keras_serializable("keras_lm")
class GeluFirstTokenClassifier(FirstTokenClassifier):
    """Dropout, dense, GELU, dropout and logits on `[CLS]`: Hugging Face's ELECTRA classifiers."""

    def build(self, outputs_shape, inputs_shape=None):
        super().build(outputs_shape)
        self.pooler.activation = keras.activations.gelu


class ReplacedTokenHead(keras.layers.Layer):
    """Dense, activation and one logit per token (B, S) float32, positive for a replaced token.

    Args:
        activation: str. See `keras_lm.layers.get_activation`.

    Source: https://arxiv.org/abs/2003.10555, section 2, and google-research/electra,
    `run_pretraining.py`, `_get_discriminator_output`.
    """

    share_of_tokens = 1

    def __init__(self, activation="gelu", **kwargs):
        super().__init__(**kwargs)
        self.activation = activation

    def build(self, outputs_shape, inputs_shape=None):
        shape = outputs_shape["sequence_output"]
        self.dense = make_dense(
            "dense", shape[-1], self.dtype_policy, activation=get_activation(self.activation)
        )
        self.dense.build(shape)
        self.logits = make_dense("logits", 1, "float32")
        self.logits.build(shape)

    def call(self, outputs, inputs=None, training=None):
        return self.logits(self.dense(outputs["sequence_output"]))[:, :, 0]


@keras.saving.register_keras_serializable("keras_lm")
class ElectraBackbone(BertEmbeddings, Backbone):
    """The discriminator of ELECTRA, which is the encoder to fine-tune.

    A checkpoint of google's holds both networks: this class takes the discriminator, and
    `ElectraGeneratorBackbone` and `MaskedLM` the generator.

    Args:
        embedding_dim: int, or None for `hidden_dim`. E, the width of the embeddings.
        embeddings_of: `ElectraBackbone`, whose embeddings this one shares in place of its own, as
            discriminator and generator do; a preset has a copy of them.
        Other arguments: as `BertBackbone`.

    Call: `backbone({"token_ids": …, "segment_ids": …, "padding_mask": …})`, each (B, S) int32; the
    last two are optional. Returns `sequence_output` (B, S, D).

    Raises:
        ValueError: if the embeddings to share have other sizes.

    Example:

        backbone = keras_lm.models.ElectraBackbone(
            100, num_layers=2, num_heads=2, hidden_dim=16, embedding_dim=8, intermediate_dim=32
        )
        backbone({"token_ids": [[2, 7, 3]]})["sequence_output"].shape  # (1, 3, 16)

    Source: Clark et al. 2020, https://arxiv.org/abs/2003.10555, section 3.
    """

    TEMPLATE = Template(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")
    HEADS = encoder_heads(GeluFirstTokenClassifier, activation="gelu") | {
        "replaced": Head(
            ReplacedTokenHead, "replaced_head", activation=from_backbone("activation")
        ),
    }
    PRETRAINING_HEADS = {"replaced_logits": "replaced"}
    tokenizer_class = WordPieceTokenizer

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        embedding_dim: int | None = None,
        dropout: float = 0.1,
        attention_dropout: float | None = None,
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        max_sequence_length: int = 512,
        num_segments: int = 2,
        layer_norm_epsilon: float = 1e-12,
        embeddings_of: Backbone | None = None,
        dtype: DType = None,
        name: str = "electra_backbone",
    ):
        super().__init__(TOKENS_IN_SEGMENTS, dtype, name)
        # A generator keeps the width of the embeddings, and a preset has a copy of its own.
        embedding_dim = self.config["embedding_dim"] = embedding_dim or hidden_dim
        self.config.pop("embeddings_of", None)
        if embeddings_of is None:
            self.make_embeddings(embedding_dim, dtype)
        else:
            self._share_embeddings(embeddings_of)
        self.embedding_dropout = Dropout(dropout, dtype=dtype)
        self.projection = None
        if embedding_dim != hidden_dim:
            self.projection = make_dense("projection", hidden_dim, dtype)
        self.attention_bias = PaddingBias()
        options = block_options(self.config, dtype)
        self.blocks = [PostNormBlock(**options, name=f"block_{i}") for i in range(num_layers)]
        self.finish()

    def _share_embeddings(self, other):
        for name in _SIZES:
            if other.config.get(name) != self.config[name]:
                raise ValueError(
                    f"embeddings_of has {name}={other.config.get(name)}, and this backbone "
                    f"{self.config[name]}: they can share their embeddings only if these are of "
                    "the same size."
                )
        self.token_embedding = other.token_embedding
        self.position_embedding = other.position_embedding
        self.segment_embedding = other.segment_embedding
        self.embedding_norm = other.embedding_norm

    def forward(self, token_ids, segment_ids, padding_mask, training=None, first_only=False):
        x = self.embed(token_ids, segment_ids, padding_mask)  # (B, S, E)
        x = self.embedding_dropout(x, training=training)
        if self.projection is not None:
            x = self.projection(x)  # (B, S, D)
        context = AttentionContext(bias=self.attention_bias(padding_mask))
        states = through_blocks(self.blocks, x, context, training, first_only)
        return self.outputs_of([x, *states], [context] * len(states))

    def make_generator(
        self, size: float = 1 / 4, share_embeddings: bool = True
    ) -> "ElectraGeneratorBackbone":
        """Return a new, random generator to pretrain this backbone with.

        Args:
            size: float. How wide it is beside this backbone: published were 1/4 for the small (of
                the paper; the small checkpoint has 1) and the large discriminator, 1/3 for base.
            share_embeddings: bool. Whether they share their embeddings of tokens, positions and
                segments, as all published ones.

        Raises:
            ValueError: if its width is not a multiple of its number of heads.

        Example:

            discriminator = keras_lm.models.ElectraBackbone(100, 2, 4, 32, 64)
            discriminator.make_generator(1 / 4).config["hidden_dim"]  # 8

        Source: https://arxiv.org/abs/2003.10555, sections 3.2 (weight sharing, smaller generators)
        and A; google-research/electra, `run_pretraining.py`, `get_generator_config`.
        """
        config = dict(self.config)
        for name in ("hidden_dim", "num_heads", "intermediate_dim"):
            config[name] = max(round(size * config[name]), 1)
        return ElectraGeneratorBackbone(
            **config,
            embeddings_of=self if share_embeddings else None,
            dtype=self.dtype_policy,
        )


@keras.saving.register_keras_serializable("keras_lm")
class ElectraGeneratorBackbone(ElectraBackbone):
    """The generator of ELECTRA: the same network, narrower or shallower, pretrained by masking.

    Example:

        generator = keras_lm.models.ElectraGeneratorBackbone.from_preset(
            "electra_small_generator_uncased_en", load_weights=False
        )
        generator({"token_ids": [[2, 7, 3]]})["sequence_output"].shape  # (1, 3, 256)

    Source: Clark et al. 2020, https://arxiv.org/abs/2003.10555, section 3.2.
    """

    PRETRAINING_HEADS = {"token_logits": "token"}


ElectraBackbone.SIZES = {
    "electra_small_discriminator_uncased_en": transformer_size(30522, 12, 256, embedding_dim=128),
    "electra_base_discriminator_uncased_en": transformer_size(30522, 12, 768, embedding_dim=768),
    "electra_large_discriminator_uncased_en": transformer_size(30522, 24, 1024, embedding_dim=1024),
}
ElectraGeneratorBackbone.SIZES = {
    "electra_small_generator_uncased_en": transformer_size(30522, 12, 256, embedding_dim=128),
    "electra_base_generator_uncased_en": transformer_size(30522, 12, 256, embedding_dim=768),
    "electra_large_generator_uncased_en": transformer_size(30522, 24, 256, embedding_dim=1024),
}
ElectraBackbone.PRETRAINED_WITH = {
    name: name.replace("discriminator", "generator") for name in ElectraBackbone.SIZES
}
ElectraBackbone.PUBLISHED = {
    "electra_small_discriminator_uncased_en": "hf://google/electra-small-discriminator",
    "electra_base_discriminator_uncased_en": "hf://google/electra-base-discriminator",
    "electra_large_discriminator_uncased_en": "hf://google/electra-large-discriminator",
}
ElectraGeneratorBackbone.PUBLISHED = {
    "electra_small_generator_uncased_en": "hf://google/electra-small-generator",
    "electra_base_generator_uncased_en": "hf://google/electra-base-generator",
    "electra_large_generator_uncased_en": "hf://google/electra-large-generator",
}
