"""Pretrained models, one file a paper."""

from keras_lm.models.backbone import Backbone
from keras_lm.models.bert import BertBackbone
from keras_lm.models.causal import CausalBackbone
from keras_lm.models.gpt import GPTBackbone
from keras_lm.models.gpt2 import GPT2Backbone
from keras_lm.models.gpt3 import GPT3Backbone
from keras_lm.models.gpt_neo import GPTNeoBackbone

__all__ = [
    "Backbone",
    "BertBackbone",
    "CausalBackbone",
    "GPT2Backbone",
    "GPT3Backbone",
    "GPTBackbone",
    "GPTNeoBackbone",
]
