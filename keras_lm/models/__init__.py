"""Pretrained models, one file a paper."""

# ruff: noqa: F401
from keras_lm.models import (  # each gives its model the `CONVERTERS`
    albert_checkpoints,
    bert_checkpoints,
    deberta_checkpoints,
    distilbert_checkpoints,
    electra_checkpoints,
    ernie_checkpoints,
    eurobert_checkpoints,
    gpt2_checkpoints,
    gpt_checkpoints,
    gpt_neo_checkpoints,
    gte_checkpoints,
    jinabert_checkpoints,
    marian_checkpoints,
    modernbert_checkpoints,
    mpnet_checkpoints,
    nomicbert_checkpoints,
    reformer_checkpoints,
    roberta_checkpoints,
    t5_checkpoints,
    tensor2tensor_checkpoints,
    transformer_xl_checkpoints,
    ulmfit_checkpoints,
    xlnet_checkpoints,
)
from keras_lm.models.albert import AlbertBackbone
from keras_lm.models.backbone import Backbone, CausalBackbone
from keras_lm.models.bert import BertBackbone
from keras_lm.models.cove import CoveBackbone
from keras_lm.models.deberta import DebertaV3Backbone
from keras_lm.models.distilbert import DistilBertBackbone
from keras_lm.models.electra import ElectraBackbone, ElectraGeneratorBackbone
from keras_lm.models.elmo import ElmoBackbone, ElmoForwardBackbone
from keras_lm.models.encoder_decoder import EncoderDecoderBackbone
from keras_lm.models.ernie import ErnieBackbone
from keras_lm.models.esim import EsimBackbone
from keras_lm.models.eurobert import EuroBertBackbone
from keras_lm.models.gpt import GPTBackbone
from keras_lm.models.gpt2 import GPT2Backbone
from keras_lm.models.gpt3 import GPT3Backbone
from keras_lm.models.gpt_neo import GPTNeoBackbone
from keras_lm.models.gte import GteBackbone
from keras_lm.models.jinabert import JinaBertBackbone
from keras_lm.models.kagnet import KagNet, join_graphs
from keras_lm.models.lstm import LSTMBackbone
from keras_lm.models.marian import MarianBackbone, MarianEncoderBackbone
from keras_lm.models.modernbert import ModernBertBackbone
from keras_lm.models.mpnet import MPNetBackbone
from keras_lm.models.nomicbert import NomicBertBackbone
from keras_lm.models.pairs import PairCBOWBackbone, PairLSTMBackbone
from keras_lm.models.reformer import ReformerBackbone
from keras_lm.models.rnn_encoder_decoder import RNNEncoderBackbone, RNNEncoderDecoderBackbone
from keras_lm.models.roberta import RobertaBackbone
from keras_lm.models.spanbert import SpanBertBackbone
from keras_lm.models.t5 import T5Backbone, T5EncoderBackbone
from keras_lm.models.taglm import TagLMBackbone
from keras_lm.models.tensor2tensor import Tensor2TensorBackbone, Tensor2TensorEncoderBackbone
from keras_lm.models.tinybert import TinyBertBackbone
from keras_lm.models.transformer import TransformerBackbone, TransformerEncoderBackbone
from keras_lm.models.transformer_xl import TransformerXLBackbone
from keras_lm.models.ulmfit import AWDLSTMBackbone
from keras_lm.models.word_vectors import WordVectorBackbone
from keras_lm.models.xlnet import XLNetBackbone

__all__ = [
    "AWDLSTMBackbone",
    "AlbertBackbone",
    "Backbone",
    "BertBackbone",
    "CausalBackbone",
    "CoveBackbone",
    "DebertaV3Backbone",
    "DistilBertBackbone",
    "ElectraBackbone",
    "ElectraGeneratorBackbone",
    "ElmoBackbone",
    "ElmoForwardBackbone",
    "EncoderDecoderBackbone",
    "ErnieBackbone",
    "EsimBackbone",
    "EuroBertBackbone",
    "GPT2Backbone",
    "GPT3Backbone",
    "GPTBackbone",
    "GPTNeoBackbone",
    "GteBackbone",
    "JinaBertBackbone",
    "KagNet",
    "LSTMBackbone",
    "MPNetBackbone",
    "MarianBackbone",
    "MarianEncoderBackbone",
    "ModernBertBackbone",
    "NomicBertBackbone",
    "PairCBOWBackbone",
    "PairLSTMBackbone",
    "RNNEncoderBackbone",
    "RNNEncoderDecoderBackbone",
    "ReformerBackbone",
    "RobertaBackbone",
    "SpanBertBackbone",
    "T5Backbone",
    "T5EncoderBackbone",
    "TagLMBackbone",
    "Tensor2TensorBackbone",
    "Tensor2TensorEncoderBackbone",
    "TinyBertBackbone",
    "TransformerBackbone",
    "TransformerEncoderBackbone",
    "TransformerXLBackbone",
    "WordVectorBackbone",
    "XLNetBackbone",
    "join_graphs",
]
