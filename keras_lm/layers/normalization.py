"""Layer normalisation in the form that TensorFlow runs fastest."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_lm")
class LayerNormalization(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` of the last axis, in fewer passes over (B, S, D).

    Keras's own broadcasts scale and offset to (B, S, D) before applying them. Arguments, weights
    and results are those of `keras.layers.LayerNormalization`; statistics are float32 under a mixed
    policy.

    Source: https://arxiv.org/abs/1607.06450, equation 4.
    """

    def call(self, x):
        x = ops.cast(x, keras.backend.result_type(self.compute_dtype, "float32"))
        x = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(x), axis=-1, keepdims=True)
        x = x * ops.rsqrt(variance + self.epsilon)
        # If even the weights are bfloat16, scale and offset are too.
        x = x * ops.cast(self.gamma, x.dtype) + ops.cast(self.beta, x.dtype)
        return ops.cast(x, self.compute_dtype)
