"""TinyBERT: BERT's network, small and distilled in two stages, general and for a task.

Differs from BERT: a classifier has ReLU on the pooled output, and no dropout. The layer that
widened its states to the teacher's (`fit_dense`) is of no use after distillation: it is not loaded.
"""

import dataclasses
import functools

import keras

from keras_lm.layers import PooledClassifier
from keras_lm.models.backbone import Head
from keras_lm.models.bert import BertBackbone
from keras_lm.models.sizes import transformer_size


@keras.saving.register_keras_serializable("keras_lm")
class PooledReluClassifier(PooledClassifier):
    """ReLU of the pooled output, then logits: the authors' `TinyBertForSequenceClassification`."""

    reads_first_only = True

    def call(self, outputs, inputs=None, training=None):
        if self.pooler is None:
            pooled = keras.ops.relu(outputs["pooled_output"])
            outputs = outputs | {"pooled_output": pooled}
        return super().call(outputs, training=training)


@keras.saving.register_keras_serializable("keras_lm")
class TinyBertBackbone(BertBackbone):
    """The encoder of TinyBERT; arguments and calls are those of `BertBackbone`.

    Example:

        backbone = keras_lm.models.TinyBertBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
        )
        backbone({"token_ids": [[2, 7, 3]]})["pooled_output"].shape  # (1, 16)

    Source: Jiao et al. 2019, https://arxiv.org/abs/1909.10351, section 4.
    """

    HEADS = BertBackbone.HEADS | {
        "classification": Head(PooledReluClassifier, "classifier", dropout=0.0),
    }


TinyBertBackbone.SIZES = {
    "tiny_bert_4_layers_en_uncased": transformer_size(30522, 4, 312, 12, 1200),
    "tiny_bert_6_layers_en_uncased": transformer_size(30522, 6, 768, 12, 3072),
}
TinyBertBackbone.PUBLISHED = {
    "tiny_bert_4_layers_en_uncased": "hf://huawei-noah/TinyBERT_General_4L_312D",
    "tiny_bert_6_layers_en_uncased": "hf://huawei-noah/TinyBERT_General_6L_768D",
}


_BERT = BertBackbone.CONVERTERS["huggingface"]
_FIT_DENSE = r"^fit_denses?\..*"


TinyBertBackbone.CONVERTERS = {
    "huggingface": dataclasses.replace(
        _BERT,
        # With its own layer it is recognised; without, it is a BERT that must be asked for as this.
        matches=functools.partial(_BERT.matches, own=_FIT_DENSE),
        names=dataclasses.replace(_BERT.names, ignored=f"{_BERT.names.ignored}|{_FIT_DENSE}"),
        # Hugging Face's code has no head with ReLU.
        architectures={k: v for k, v in _BERT.architectures.items() if k != "classification"},
    )
}
