#!/usr/bin/env bash
# Keras 3.15.1 on TensorFlow 2.21.0. Adam squares the parts of an embedding's gradient one by one
# where a batch looks a row up several times, so its first step is longer than the learning rate,
# and another one than of the summed gradient, such as gradient accumulation has. Sum them first.
# Output seen, rate 0.01: as it comes 0.0139, summed 0.0100
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet keras==3.15.1 tensorflow==2.21.0 numpy==2.4.6
env/bin/python - <<'END'
import keras
import numpy as np
import tensorflow as tf

ids = np.array([[1, 2, 2, 1], [3, 1, 1, 1]])
steps = []
for summed in (False, True):
    keras.utils.set_random_seed(0)
    embedding, dense = keras.layers.Embedding(6, 3), keras.layers.Dense(1)
    with tf.GradientTape() as tape:
        vectors = tf.reshape(embedding(ids), (2, 12))
        loss = tf.reduce_mean((dense(vectors) - [[1.0], [0.0]]) ** 2)
    table = embedding.embeddings
    before, gradient = table.numpy(), tape.gradient(loss, table)
    gradient = tf.convert_to_tensor(gradient) if summed else gradient
    keras.optimizers.Adam(0.01).apply([gradient], [table])
    steps.append(abs(table.numpy() - before).max())
print("as it comes {:.4f}, summed {:.4f}".format(*steps))
assert steps[0] > 0.011 and abs(steps[1] - 0.01) < 1e-5
END
