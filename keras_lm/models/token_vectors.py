"""A vector for each token of a text, made of the last hidden states (ColBERT).

Shapes: B batch, S sequence, D width of a vector.
"""

import keras
from keras import ops

from keras_lm.models.backbone import Backbone
from keras_lm.models.feature_backbone import FeatureBackbone, make_projection, unit_length


@keras.saving.register_keras_serializable("keras_lm")
class TokenVectorBackbone(FeatureBackbone):
    """Vectors of tokens, for a linear layer on each.

    Arguments and errors: see `keras_lm.tasks.MultiVectorEncoder`. A call returns a dict of
    `sequence_output` (B, S, D), float32, of padding too: its tokens may be what a query is
    expanded by.
    """

    pooling = "none"
    gives_several = False
    skipped_tokens = 0
    mixes = ()

    def __init__(self, backbone, projections=None, normalize=True, name="token_vector_backbone"):
        fields = backbone.input_fields.items()
        Backbone.__init__(
            self,
            inputs={key: field for key, field in fields if not field.is_state},
            dtype=backbone.dtype_policy,
            name=name,
        )
        self.backbone = backbone
        self.normalize = normalize
        self.projections = [
            make_projection(i, **settings) for i, settings in enumerate(projections or [])
        ]
        self.finish()

    def without_head(self, kind):
        return (
            f"The vectors of tokens of a MultiVectorEncoder have no head for kind={kind!r}: pass "
            "its network, encoder.backbone."
        )

    def forward(self, training=None, **inputs):
        x = ops.cast(self.backbone(inputs, training=training)["sequence_output"], "float32")
        for projection in self.projections:
            x = projection(x)
        return {"sequence_output": unit_length(x) if self.normalize else x}
