#!/usr/bin/env bash
# Keras 3.15.1 on TensorFlow 2.21.0. fit opens a tf.data.Dataset twice for each epoch and reads it
# once: of a dataset with shuffle(seed=…), which reshuffles at each opening, it sees every
# second order. A loop of your own over the same dataset, to go on with an interrupted run or to
# compare with fit, trains in other orders after the first epoch. Use
# reshuffle_each_iteration=False, or shuffle each epoch with a seed of its own.
# Output seen, of four epochs, which opening has each order:
# [0, 2, 4, 6]
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet tensorflow==2.21.0 keras==3.15.1 numpy==2.4.6
TF_CPP_MIN_LOG_LEVEL=3 env/bin/python - <<'END'
import keras
import tensorflow as tf


def dataset():
    x = tf.range(8.0)[:, tf.newaxis]
    return tf.data.Dataset.from_tensor_slices((x, x)).shuffle(8, seed=1).batch(8)


orders = []


class Recorded(keras.Sequential):
    def train_step(self, data):
        tf.py_function(lambda x: orders.append(x.numpy().ravel().tolist()), [data[0]], [])
        return super().train_step(data)


model = Recorded([keras.Input((1,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(dataset(), epochs=4, verbose=0)
opened = dataset()
expected = [next(iter(opened))[0].numpy().ravel().tolist() for _ in range(8)]
places = [expected.index(order) for order in orders]
print(places)
assert places == [0, 2, 4, 6]
END
