"""The span-boundary objective. Shapes: B batch, M spans per row, L longest span."""

import keras

from keras_lm.objectives.objective import (
    MaskedAccuracy,
    MaskedCrossentropy,
    Objective,
    register_objective,
)


@keras.saving.register_keras_serializable("keras_lm")
class SpanCrossentropy(MaskedCrossentropy):
    """`MaskedCrossentropy` over the tokens of spans, divided by their number plus one.

    The authors' code adds one, as a batch may have no span with a token on both sides.
    """

    def __init__(self, name="span_crossentropy"):
        super().__init__(name)

    def sum_and_count(self, labels, logits, sample_weight=None):
        total, count = super().sum_and_count(labels, logits, sample_weight)
        return total, count + 1


@register_objective
class SpanBoundary(Objective):
    """SpanBERT's second objective; `span_boundaries` and the tokens between come with the data.

    Source: https://arxiv.org/abs/1907.10529, section 3.2.
    """

    heads = {"span_boundary_logits": "span_boundary"}
    labels_of_data = "the tokens in the spans (B, M, L), -100 after a span's end"

    def loss(self):
        return SpanCrossentropy()

    def metrics(self):
        return [MaskedAccuracy()]
