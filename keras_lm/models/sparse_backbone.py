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


@keras.saving.register_keras_serializable("keras_lm")
class TokenWeights(keras.layers.Layer):
    """A weight for each entry of the vocabulary, which a text has if it has the token.

    Args:
        vocabulary_size: int, V.

    Call: `layer(token_ids, padding_mask)`, (B, S) int32 each → (B, V) float32. How often a text has
    a token makes no difference.
    """

    def __init__(self, vocabulary_size, **kwargs):
        super().__init__(dtype="float32", **kwargs)
        self.vocabulary_size = vocabulary_size
        self.token_weights = self.add_weight(
            name="token_weights", shape=(vocabulary_size,), initializer="ones"
        )
        self.built = True

    def call(self, token_ids, padding_mask):
        rows = ops.shape(token_ids)[0]
        places = ops.arange(rows)[:, None] * self.vocabulary_size + token_ids
        values = ops.reshape(ops.cast(padding_mask, "float32"), (-1,))
        # (In one axis: rows of a sparse matrix would be longer than a dense one here.)
        size = rows * self.vocabulary_size
        counts = ops.segment_sum(values, ops.reshape(places, (-1,)), num_segments=size)
        counts = ops.reshape(counts, (rows, self.vocabulary_size))
        return ops.minimum(counts, 1.0) * self.token_weights
