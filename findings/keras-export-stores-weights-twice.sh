#!/usr/bin/env bash
# Keras 3.15.1 with TensorFlow 2.21.0. model.export writes each weight twice into the SavedModel.
# Output seen: 1.0 MB of weights, a SavedModel of 2.0 MB
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet keras==3.15.1 tensorflow-cpu==2.21.0 numpy==2.4.6
KERAS_BACKEND=tensorflow TF_CPP_MIN_LOG_LEVEL=3 env/bin/python - <<'END'
import pathlib

import keras

model = keras.Sequential([keras.Input((500,)), keras.layers.Dense(500, use_bias=False)])
model.export("saved", verbose=False)
weights = sum(w.nbytes for w in model.get_weights())
stored = sum(f.stat().st_size for f in pathlib.Path("saved").rglob("*") if f.is_file())
print(f"{weights / 1e6:.1f} MB of weights, a SavedModel of {stored / 1e6:.1f} MB")
assert 2 * weights < stored < 2.1 * weights
END
