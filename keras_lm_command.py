"""The command `keras-lm`: where Python begins here, `keras_lm` does not import TensorFlow."""

from keras_lm.cli import main

__all__ = ["main"]
