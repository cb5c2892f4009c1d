"""What TensorFlow adds to `keras.ops`, with fallbacks for other backends."""

import keras

if keras.backend.backend() == "tensorflow":
    from keras_lm.layers.tensorflow import sum_over_replicas
else:

    def sum_over_replicas(value):
        """Return the sum of a scalar over all replicas: here there is one."""
        return value


__all__ = ["sum_over_replicas"]
