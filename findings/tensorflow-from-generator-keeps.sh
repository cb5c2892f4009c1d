#!/usr/bin/env bash
# TensorFlow 2.21.0. Dataset.from_generator keeps its function, and all data that the function
# refers to, until the process ends, even after the dataset has been read to its end and deleted:
# the function belongs to the graph around it, which is that of the process. A process that makes
# one dataset after another grows by all their data. Make and read a dataset within a graph of its
# own, in eager mode, and its data goes with that graph.
# Output seen, whether the data is still alive: usual True, in a graph of its own False
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet tensorflow-cpu==2.21.0 numpy==2.4.6
TF_CPP_MIN_LOG_LEVEL=3 env/bin/python - <<'END'
import contextlib
import gc
import weakref

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context


@contextlib.contextmanager
def own_graph():
    with tf.Graph().as_default(), context.eager_mode():
        yield


def read_numbers():
    numbers = np.arange(1000.0)
    dataset = tf.data.Dataset.from_generator(lambda: iter(numbers), output_types=tf.float64)
    assert sum(1 for number in dataset) == 1000
    return weakref.ref(numbers)


def are_alive_after(around):
    with around:
        numbers = read_numbers()
    gc.collect()
    return numbers() is not None


usual, own = are_alive_after(contextlib.nullcontext()), are_alive_after(own_graph())
print(f"usual {usual}, in a graph of its own {own}")
assert usual and not own
END
