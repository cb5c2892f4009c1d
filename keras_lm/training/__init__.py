"""Optimizers, learning-rate schedules, and training runs that may be interrupted."""

from keras_lm.training.checkpointing import TrainingCheckpoint
from keras_lm.training.optimizers import AdamW
from keras_lm.training.pretraining import fit_windows
from keras_lm.training.schedules import WarmupLinearDecay

__all__ = ["AdamW", "TrainingCheckpoint", "WarmupLinearDecay", "fit_windows"]
