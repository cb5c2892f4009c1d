"""What the backend that Keras runs on adds to `keras.ops`; elsewhere, what does without it."""

import keras

if keras.backend.backend() == "tensorflow":
    from keras_lm.layers.tensorflow import sum_over_replicas
else:

    def sum_over_replicas(value):
        """Return the sum of a scalar over all replicas of a step: here there is one."""
        return value


__all__ = ["sum_over_replicas"]
