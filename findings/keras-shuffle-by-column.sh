#!/usr/bin/env bash
# Keras 3.15.1. keras.random.shuffle moves whole rows on TensorFlow 2.21.0, but on JAX 0.10.2 each
# column by itself: an array of ids and labels side by side loses its pairs. Shuffle row numbers.
# Output seen, rows [i, i]: tensorflow keeps 100 of 100 pairs, jax 1
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet keras==3.15.1 jax==0.10.2 tensorflow-cpu==2.21.0 numpy==2.4.6
env/bin/python - <<'END'
import os
import subprocess
import sys

code = '''
import keras
import numpy as np

rows = np.stack([np.arange(100)] * 2, axis=1)
shuffled = np.asarray(keras.random.shuffle(rows, seed=1))
assert sorted(shuffled[:, 0]) == sorted(shuffled[:, 1]) == list(range(100))
print(int((shuffled[:, 0] == shuffled[:, 1]).sum()))
'''
kept = {}
for backend in ("tensorflow", "jax"):
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    kept[backend] = int(subprocess.check_output([sys.executable, "-c", code], env=environment))
    print(f"{backend} keeps {kept[backend]} of 100 pairs")
assert kept["tensorflow"] == 100 and kept["jax"] < 10
END
