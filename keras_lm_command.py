"""The command `keras-lm`."""

from keras_lm.cli import main

__all__ = ["main"]
