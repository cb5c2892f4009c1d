#!/usr/bin/env bash
# Keras 3.15.1 on JAX 0.10.2. A .keras file does not keep how far its dropout layers have drawn: a
# loaded model draws the masks of its first steps again, so training that is resumed differs from
# training that went on.
# Output seen: masks of the loaded model equal those of step 1, not of step 4
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet keras==3.15.1 jax==0.10.2 numpy==2.4.6
KERAS_BACKEND=jax env/bin/python - <<'END'
import keras
import numpy as np

inputs = keras.Input((256,))
model = keras.Model(inputs, keras.layers.Dropout(0.5, seed=1)(inputs))
ones = np.ones((1, 256))
first, *_ = [np.asarray(model(ones, training=True)) for step in (1, 2, 3)]
model.save("model.keras")
loaded = np.asarray(keras.models.load_model("model.keras")(ones, training=True))
fourth = np.asarray(model(ones, training=True))
assert np.array_equal(loaded, first) and not np.array_equal(loaded, fourth)
print("masks of the loaded model equal those of step 1, not of step 4")
END
