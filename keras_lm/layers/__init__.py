"""Layers that several models are made of."""

from keras_lm.layers.activations import gelu_tanh, get_activation
from keras_lm.layers.attention import CausalSelfAttention, SelfAttention
from keras_lm.layers.causal_heads import CausalLMHead, LastTokenClassifier
from keras_lm.layers.dense import Dense
from keras_lm.layers.embeddings import PositionEmbedding
from keras_lm.layers.heads import EachTokenClassifier, MaskedLMHead, PooledClassifier
from keras_lm.layers.initializers import truncated_normal
from keras_lm.layers.masks import CausalBias, PaddingBias
from keras_lm.layers.normalization import LayerNormalization
from keras_lm.layers.scalar_mix import ScalarMix
from keras_lm.layers.transformer import (
    CausalPostNormBlock,
    CausalPreNormBlock,
    FeedForward,
    PostNormBlock,
    PreNormBlock,
)

__all__ = [
    "CausalBias",
    "CausalLMHead",
    "CausalPostNormBlock",
    "CausalPreNormBlock",
    "CausalSelfAttention",
    "Dense",
    "EachTokenClassifier",
    "FeedForward",
    "LastTokenClassifier",
    "LayerNormalization",
    "MaskedLMHead",
    "PaddingBias",
    "PooledClassifier",
    "PositionEmbedding",
    "PostNormBlock",
    "PreNormBlock",
    "ScalarMix",
    "SelfAttention",
    "gelu_tanh",
    "get_activation",
    "truncated_normal",
]
