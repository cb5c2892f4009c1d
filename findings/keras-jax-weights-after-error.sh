#!/usr/bin/env bash
# Keras 3.15.1 on JAX 0.10.2. An error in the first step of fit, evaluate or predict leaves a model
# without weights: Keras takes the values of all variables away for the time of an epoch, and gives
# them back from the state after a step, which there is not. Here two devices do not divide a batch
# of three rows; an exception in a dataset does the same. Whatever is called next says only that
# 'NoneType' object is not callable. Keep a copy of the weights, or catch the error and load them.
# Output seen: IndivisibleError, weights there before True, after False
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet keras==3.15.1 jax==0.10.2 numpy==2.4.6
export KERAS_BACKEND=jax XLA_FLAGS=--xla_force_host_platform_device_count=2
env/bin/python - <<'END'
import keras
import numpy as np

keras.distribution.set_distribution(keras.distribution.DataParallel())
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
there = [all(v._value is not None for v in model.variables)]
said = None
try:
    model.predict(np.ones((3, 2)), verbose=0)
except Exception as error:
    said = type(error).__name__
there.append(all(v._value is not None for v in model.variables))
print(f"{said}, weights there before {there[0]}, after {there[1]}")
assert there == [True, False], "Keras keeps the weights now"
END
