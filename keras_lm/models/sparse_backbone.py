"""Sparse vectors: a number for each entry of the vocabulary, most of them 0 (SPLADE).

Shapes: B batch, S sequence, V vocabulary.
"""

import keras
from keras import ops

from keras_lm.models.backbone import Backbone
from keras_lm.models.feature_backbone import FeatureBackbone
from keras_lm.presets.argument_ranges import Known

POOLINGS = ("max", "sum")
ACTIVATIONS = ("relu", "log1p_relu")


@keras.saving.register_keras_serializable("keras_lm")
class SparseBackbone(FeatureBackbone):
    """Sparse vectors made of a masked language model's logits, for a linear layer on top.

    Arguments and errors: see `keras_lm.tasks.SparseEncoder`. A call returns a dict of
    `pooled_output` (B, V), float32.
    """

    RANGES = {
        "pooling": Known(POOLINGS.index, f"one of {POOLINGS}"),
        "activation": Known(ACTIVATIONS.index, f"one of {ACTIVATIONS}"),
    }
    gives_several = False
    skipped_tokens = 0
    mixes, projections = (), ()

    def __init__(self, backbone, pooling="max", activation="relu", name="sparse_backbone"):
        head = backbone.make_head("token")
        fields = backbone.input_fields.items()
        Backbone.__init__(
            self,
            inputs={key: field for key, field in fields if not field.is_state},
            dtype=backbone.dtype_policy,
            name=name,
        )
        head(backbone.output, backbone.input)
        self.backbone = backbone
        self.head = head
        self.pooling = pooling
        self.activation = activation
        self.finish()

    def forward(self, training=None, **inputs):
        outputs = self.backbone(inputs, training=training)
        logits = ops.cast(self.head(outputs, inputs, training=training), "float32")  # (B, S, V)
        logits *= ops.cast(inputs["padding_mask"], "float32")[..., None]
        if self.pooling == "max":  # first, as it is of fewer numbers, and the order does not matter
            x = self._activated(ops.max(logits, axis=1))
        else:
            x = ops.sum(self._activated(logits), axis=1)
        return {"pooled_output": x}

    def _activated(self, x):
        x = ops.log1p(ops.relu(x))
        return ops.log1p(x) if self.activation == "log1p_relu" else x
