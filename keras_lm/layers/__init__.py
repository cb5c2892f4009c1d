"""Layers that several models are made of."""

from keras_lm.layers.activations import gelu_tanh, get_activation
from keras_lm.layers.attention import SelfAttention
from keras_lm.layers.dense import Dense
from keras_lm.layers.embeddings import PositionEmbedding
from keras_lm.layers.heads import MaskedLMHead, PooledClassifier
from keras_lm.layers.initializers import truncated_normal
from keras_lm.layers.masks import PaddingBias
from keras_lm.layers.normalization import LayerNormalization
from keras_lm.layers.scalar_mix import ScalarMix
from keras_lm.layers.transformer import FeedForward, PostNormBlock

__all__ = [
    "Dense",
    "FeedForward",
    "LayerNormalization",
    "MaskedLMHead",
    "PaddingBias",
    "PooledClassifier",
    "PositionEmbedding",
    "PostNormBlock",
    "ScalarMix",
    "SelfAttention",
    "gelu_tanh",
    "get_activation",
    "truncated_normal",
]
