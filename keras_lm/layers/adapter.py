"""Adapters: small layers, which alone are trained, inside of a frozen model. Shapes: D hidden."""

from typing import Any

import keras
from keras import ops

INITIAL_STDDEV = 1e-3  # of google-research/adapter-bert


@keras.saving.register_keras_serializable("keras_lm")
class Adapter(keras.layers.Layer):
    """Dense to a few units, GELU, Dense back, added to the input; initially nearly the identity.

    Args:
        adapter_dim: int. Units of the bottleneck.

    Call: `layer(x)` with (…, D) returns the same shape.

    Example:

        Adapter(adapter_dim=8)(np.ones((2, 64), "float32"))  # close to ones

    Source: Houlsby et al. 2019, https://arxiv.org/abs/1902.00751, section 2.1; activation and
    initial values: google-research/adapter-bert, `modeling.py`.
    """

    def __init__(self, adapter_dim: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.adapter_dim = adapter_dim

    def build(self, input_shape):
        self.down = self._dense(self.adapter_dim, "down", activation="gelu")
        self.down.build(input_shape)
        self.up = self._dense(input_shape[-1], "up")
        self.up.build((*input_shape[:-1], self.adapter_dim))

    def _dense(self, units, name, **options):
        initializer = keras.initializers.TruncatedNormal(stddev=INITIAL_STDDEV)
        return keras.layers.Dense(
            units, kernel_initializer=initializer, dtype=self.dtype_policy, name=name, **options
        )

    def call(self, x):
        return ops.add(x, self.up(self.down(x)))

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return super().get_config() | {"adapter_dim": self.adapter_dim}
