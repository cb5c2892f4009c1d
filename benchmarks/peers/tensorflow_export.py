"""Load a SavedModel in a process of its own, as a client does that has neither library."""

import numpy as np
from inputs import fresh_process

LOAD = """
import json, sys, time
import numpy as np
import tensorflow as tf
import tensorflow_text
folder, arrays = sys.argv[1], np.load(sys.argv[2])
inputs = {name: tf.constant(arrays[name].tolist()) for name in arrays}
start = time.perf_counter()
serve = tf.saved_model.load(folder).signatures["serving_default"]
loaded = time.perf_counter()
for value in serve(**inputs).values():
    value.numpy()
called = time.perf_counter()
print(json.dumps({"load": [loaded - start], "first_call": [called - loaded]}))
"""


def measure_export(folder, inputs, num_bytes, ideal_bytes):
    """Return a round that loads a SavedModel and calls it once.

    Args:
        folder: `Path` of the SavedModel; the inputs are written beside it.
        inputs: dict of arrays or lists, the arguments of its `serving_default`.
        num_bytes: int. Size of all that has to travel.
        ideal_bytes: int. Size of the weights and the vocabulary.
    """
    file = str(folder.with_suffix(".npz"))
    np.savez(file, **{name: np.asarray(value) for name, value in inputs.items()})
    size = {"size": [num_bytes / ideal_bytes]}
    return lambda: size | fresh_process(LOAD, str(folder), file)
