"""A model inside of another one, which training leaves as it is."""

from typing import Any

import keras


@keras.saving.register_keras_serializable("keras_lm")
class Frozen(keras.layers.Layer):
    """Runs a model with frozen weights and without dropout, also in training.

    `model(inputs, training=False)` in a functional graph is not enough: Keras passes the `training`
    of the outer model down to every layer.

    Args:
        model: `keras.Model`.
    """

    def __init__(self, model: keras.Model, **kwargs: Any):
        super().__init__(**kwargs)
        self.model = model
        self.trainable = False

    def call(self, inputs):
        return self.model(inputs, training=False)

    def get_config(self):
        return super().get_config() | {"model": keras.saving.serialize_keras_object(self.model)}

    @classmethod
    def from_config(cls, config):
        return cls(**config | {"model": keras.saving.deserialize_keras_object(config["model"])})
