#!/usr/bin/env bash
# TensorFlow 2.21.0's converter for LiteRT. Optimize.DEFAULT stores a table that is both looked up
# and multiplied with, as tied embeddings are, twice in int8, where float32 stores it once.
# Output seen for 128,000 weights: float32 4.0 bytes a weight, int8 2.2
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet tensorflow-cpu==2.21.0 numpy==2.4.6
TF_CPP_MIN_LOG_LEVEL=3 env/bin/python - <<'END'
import numpy as np
import tensorflow as tf


class Tied(tf.Module):
    def __init__(self):
        table = np.random.default_rng(0).normal(size=(2000, 64))
        self.table = tf.Variable(table, dtype=tf.float32)

    @tf.function(input_signature=[tf.TensorSpec([1, 4], tf.int32)], autograph=False)
    def __call__(self, ids):
        return tf.matmul(tf.gather(self.table, ids), self.table, transpose_b=True)


model = Tied()


def bytes_a_weight(optimizations):
    functions = [model.__call__.get_concrete_function()]
    converter = tf.lite.TFLiteConverter.from_concrete_functions(functions, model)
    converter.optimizations = optimizations
    return round(len(converter.convert()) / 128_000, 1)


plain, quantized = bytes_a_weight([]), bytes_a_weight([tf.lite.Optimize.DEFAULT])
print(f"float32 {plain} bytes a weight, int8 {quantized}")
assert plain == 4.0 and quantized == 2.2
END
