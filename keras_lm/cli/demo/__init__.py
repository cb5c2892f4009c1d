"""`keras-lm demo`, all of it once. Only its steps import TensorFlow, once they run."""

from keras_lm.cli.demo.command import demo_command

__all__ = ["demo_command"]
