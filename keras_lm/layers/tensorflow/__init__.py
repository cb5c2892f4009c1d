"""TensorFlow code of layers, for what `keras.ops` lacks."""
