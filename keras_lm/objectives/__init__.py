"""Pretraining objectives, one class each."""

from keras_lm.objectives.masked_lm import (
    IGNORED,
    MaskedAccuracy,
    MaskedCrossentropy,
    MaskedLanguageModel,
)

__all__ = ["IGNORED", "MaskedAccuracy", "MaskedCrossentropy", "MaskedLanguageModel"]
