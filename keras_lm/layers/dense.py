"""The linear layer in the form that TensorFlow runs fastest."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_lm")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense` that multiplies [B·S, D] by [D, units] instead of contracting (B, S, D).

    On a matrix, TensorFlow fuses product, bias and activation (ReLU and both forms of GELU) into
    one kernel; after the reshape of a contraction, it cannot. Arguments, weights and results are
    those of `keras.layers.Dense`.
    """

    def call(self, x, training=None):
        if len(x.shape) == 2:
            return super().call(x, training=training)
        leading = ops.shape(x)[:-1]
        matrix = ops.reshape(x, (-1, x.shape[-1]))
        return ops.reshape(super().call(matrix, training=training), (*leading, self.units))
