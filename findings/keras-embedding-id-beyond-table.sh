#!/usr/bin/env bash
# Keras 3.15.1 on JAX 0.10.2. An id just beyond an Embedding's table, as of a token that was added
# after the table was made, raises nothing: its vector is NaN. The id -1 takes the last row.
# Output seen, a table of 4 rows: id 4 is NaN, id -1 is row 3
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet keras==3.15.1 jax==0.10.2 numpy==2.4.6
KERAS_BACKEND=jax env/bin/python - <<'END'
import keras
import numpy as np

layer = keras.layers.Embedding(4, 2)
beyond, negative, last = np.asarray(layer(np.array([4, -1, 3])))
assert np.isnan(beyond).all() and np.array_equal(negative, last) and np.isfinite(last).all()
print("id 4 is NaN, id -1 is row 3")
END
