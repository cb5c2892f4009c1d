"""`keras-lm glue`, a model's scores on GLUE. Only its training imports TensorFlow, once it runs."""

from keras_lm.cli.glue.glue_command import glue_command

__all__ = ["glue_command"]
