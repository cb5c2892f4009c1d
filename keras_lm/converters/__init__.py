"""Readers of published checkpoints: one file per format, one mapping of names to arrays for all."""

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.converters.checkpoint import Checkpoint, find_folder, open_checkpoint
from keras_lm.converters.converter import STATED, Converter, signs
from keras_lm.converters.word_vector_files import read_word_vectors

__all__ = [
    "STATED",
    "Checkpoint",
    "CheckpointError",
    "Converter",
    "find_folder",
    "open_checkpoint",
    "read_word_vectors",
    "signs",
]
