#!/usr/bin/env bash
# Keras 3.15.1 on JAX 0.10.2, several devices. A last batch that the devices do not divide raises
# an IndivisibleError, in predict, too, and after that the model has lost its weights: what it held
# was given to the step that never ran. Pad the rows before, or load the model again after.
# Output seen, 5 rows in batches of 2 on 2 devices: IndivisibleError, then no weights
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet keras==3.15.1 jax==0.10.2 numpy==2.4.6
KERAS_BACKEND=jax XLA_FLAGS=--xla_force_host_platform_device_count=2 env/bin/python - <<'END'
import keras
import numpy as np

devices = keras.distribution.list_devices("cpu")
parallel = keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False)
keras.distribution.set_distribution(parallel)
inputs = keras.Input((2,))
model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
assert len(devices) == 2 and model.predict(np.ones((6, 2)), batch_size=2, verbose=0).shape == (6, 1)
model.get_weights()
try:
    model.predict(np.ones((5, 2)), batch_size=2, verbose=0)
except Exception as error:
    raised = type(error).__name__
try:
    model.get_weights()
    lost = False
except TypeError:
    lost = True
print(f"{raised}, then {'no' if lost else 'all'} weights")
assert raised == "IndivisibleError" and lost
END
