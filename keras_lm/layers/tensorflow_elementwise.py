"""What TensorFlow's own functions compute slowly on a CPU in training: dropout, GELU and norms.

Shapes: D the last axis.
"""

import math

import keras

from keras_lm.layers.tensorflow import draw_seed
from keras_lm.tensorflow import tf

BITS = 16  # of a random number that decides about an element: it is dropped to 2**-17 of the rate


class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` by `dropout`: drawing random numbers takes most of its time.

    Args:
        rate: float. Fraction of the inputs to drop in training.
    """

    def call(self, inputs, training=False):
        if not training or not 0 < self.rate < 1 or self.noise_shape is not None:
            return super().call(inputs, training=training)
        return dropout(inputs, self.rate, draw_seed(self.seed_generator))


def dropout(x, rate, seed):
    """Return `x` with a fraction `rate` dropped; the seed decides which.

    A random number of 32 bits decides about two elements.

    Args:
        x: tensor of floats.
        rate: float.
        seed: (2,) int32.
    """
    number = tf.size(x)
    drawn = tf.random.stateless_uniform([(number + 1) // 2], seed, None, None, tf.uint32)
    drawn = tf.reshape(tf.bitcast(drawn, tf.uint16), [-1])[:number]
    is_kept = drawn >= tf.constant(min(round(rate * 2**BITS), 2**BITS - 1), tf.uint16)
    # Multiplied, not selected: that takes a third of the time.
    factors = tf.reshape(tf.cast(is_kept, x.dtype) / (1 - rate), tf.shape(x))
    factors.set_shape(x.shape)
    return x * factors


def gelu_in_training(x, approximate=False):
    """As `keras.activations.gelu`; the gradient takes half the passes over `x`.

    Elsewhere Keras's function is better: TensorFlow fuses it with the product before it.

    Args:
        x: tensor of floats.
        approximate: bool. Whether to take the form with tanh.

    Source: https://arxiv.org/abs/1606.08415, section 2.
    """
    return _gelu_tanh(x) if approximate else _gelu(x)


@tf.custom_gradient
def _gelu(x):
    scaled = x * math.sqrt(0.5)
    below = tf.math.erf(scaled) * 0.5 + 0.5

    def gradient(upstream):
        density = tf.exp(-tf.square(scaled)) * math.sqrt(1 / math.pi)
        return upstream * (below + scaled * density)

    return x * below, gradient


@tf.custom_gradient
def _gelu_tanh(x):
    scale, cubic = math.sqrt(2 / math.pi), 0.044715
    square = tf.square(x)
    tanh = tf.tanh(x * (square * (scale * cubic) + scale))
    below = tanh * 0.5 + 0.5

    def gradient(upstream):
        density = (0.5 - tf.square(tanh) * 0.5) * (square * (3 * scale * cubic) + scale)
        return upstream * (below + x * density)

    return x * below, gradient


def layer_norm_in_training(x, gamma, beta, epsilon):
    """Return the layer normalisation of the last axis; it keeps one tensor for its gradient.

    Args:
        x: (…, D) floats.
        gamma, beta: (D,), scale and offset.
        epsilon: float.

    Source: https://arxiv.org/abs/1607.06450, equation 4.
    """

    @tf.custom_gradient
    def normalise(x, gamma, beta):
        x = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        scale = tf.math.rsqrt(tf.reduce_mean(tf.square(x), axis=-1, keepdims=True) + epsilon)
        x = x * scale

        def gradient(upstream):
            outer = list(range(len(x.shape) - 1))
            of_gamma = upstream * x
            of_x = upstream * gamma
            shift = tf.reduce_mean(of_x, axis=-1, keepdims=True)
            along = tf.reduce_mean(of_gamma * gamma, axis=-1, keepdims=True)
            of_x = (of_x - (x * along + shift)) * scale
            return of_x, tf.reduce_sum(of_gamma, outer), tf.reduce_sum(upstream, outer)

        return x * gamma + beta, gradient

    return normalise(x, gamma, beta)
