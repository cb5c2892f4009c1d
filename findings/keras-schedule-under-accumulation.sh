#!/usr/bin/env bash
# Keras 3.15.1 on JAX 0.10.2. With gradient_accumulation_steps, a learning-rate schedule runs by
# batches, although optimizer.iterations counts updates: a warm-up or decay planned in updates ends
# too early.
# Output seen, 16 batches, 4 to an update, a rate that falls from 1 by 0.01 a step:
# 4 iterations, rate 0.84
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet keras==3.15.1 jax==0.10.2 numpy==2.4.6
KERAS_BACKEND=jax env/bin/python - <<'END'
import keras
import numpy as np

inputs = keras.Input((1,))
model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
rate = keras.optimizers.schedules.PolynomialDecay(1.0, decay_steps=100, end_learning_rate=0.0)
model.compile(keras.optimizers.SGD(rate, gradient_accumulation_steps=4), "mse")
model.fit(np.zeros((16, 1)), np.zeros((16, 1)), batch_size=1, verbose=0)
iterations = int(model.optimizer.iterations)
rate = round(float(model.optimizer.learning_rate), 4)
print(f"{iterations} iterations, rate {rate}")
assert iterations == 4 and rate == 0.84
END
