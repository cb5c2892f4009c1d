"""Pretraining objectives, one class each."""

from keras_lm.objectives.bidirectional_lm import (
    BidirectionalLanguageModel,
    DirectionPerplexity,
    MeanOfKnown,
)
from keras_lm.objectives.causal_lm import CausalLanguageModel, Perplexity
from keras_lm.objectives.masked_lm import (
    IGNORED,
    MaskedAccuracy,
    MaskedCrossentropy,
    MaskedLanguageModel,
)

__all__ = [
    "IGNORED",
    "BidirectionalLanguageModel",
    "CausalLanguageModel",
    "DirectionPerplexity",
    "MaskedAccuracy",
    "MaskedCrossentropy",
    "MaskedLanguageModel",
    "MeanOfKnown",
    "Perplexity",
]
