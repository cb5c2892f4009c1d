"""Optimizers and learning-rate schedules for fine-tuning."""

from keras_lm.training.optimizers import AdamW
from keras_lm.training.schedules import WarmupLinearDecay

__all__ = ["AdamW", "WarmupLinearDecay"]
