"""Layers that several models share."""

from keras_lm.layers.attention import (
    AttentionContext,
    CausalBias,
    CausalLMHead,
    FeedForward,
    PaddingBias,
    PostNormBlock,
    PreNormBlock,
    SelfAttention,
)
from keras_lm.layers.basic import (
    Adapter,
    Dense,
    EachTokenClassifier,
    FirstTokenClassifier,
    Frozen,
    LastTokenClassifier,
    LayerNormalization,
    MaskedLMHead,
    MeanPooledClassifier,
    PooledClassifier,
    PositionEmbedding,
    ResidualDense,
    SpanHead,
    float32_or_wider,
    gelu_tanh,
    get_activation,
    truncated_normal,
)
from keras_lm.layers.character_cnn import CharacterCNN
from keras_lm.layers.coreference import CoreferenceHead
from keras_lm.layers.crf import CRF
from keras_lm.layers.decoder import CrossAttention, DecoderPostNormBlock, DecoderPreNormBlock
from keras_lm.layers.deprecated import (
    CausalPostNormBlock,
    CausalPreNormBlock,
    CausalSelfAttention,
    embedding_layers,
)
from keras_lm.layers.positions import (
    CountedPositionEmbedding,
    RelativePositionBias,
    SinusoidalPositionEmbedding,
)
from keras_lm.layers.recurrent import LSTM
from keras_lm.layers.scalar_mix import ScalarMix
from keras_lm.layers.span_chart import SpanScorer
from keras_lm.layers.word_softmax import WordSoftmax

__all__ = [
    "CRF",
    "LSTM",
    "Adapter",
    "AttentionContext",
    "CausalBias",
    "CausalLMHead",
    "CausalPostNormBlock",
    "CausalPreNormBlock",
    "CausalSelfAttention",
    "CharacterCNN",
    "CoreferenceHead",
    "CountedPositionEmbedding",
    "CrossAttention",
    "DecoderPostNormBlock",
    "DecoderPreNormBlock",
    "Dense",
    "EachTokenClassifier",
    "FeedForward",
    "FirstTokenClassifier",
    "Frozen",
    "LastTokenClassifier",
    "LayerNormalization",
    "MaskedLMHead",
    "MeanPooledClassifier",
    "PaddingBias",
    "PooledClassifier",
    "PositionEmbedding",
    "PostNormBlock",
    "PreNormBlock",
    "RelativePositionBias",
    "ResidualDense",
    "ScalarMix",
    "SelfAttention",
    "SinusoidalPositionEmbedding",
    "SpanHead",
    "SpanScorer",
    "WordSoftmax",
    "embedding_layers",
    "float32_or_wider",
    "gelu_tanh",
    "get_activation",
    "truncated_normal",
]
