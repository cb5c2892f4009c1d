"""Pretrained models, one file a paper."""

from keras_lm.models.backbone import Backbone
from keras_lm.models.bert import BertBackbone

__all__ = ["Backbone", "BertBackbone"]
