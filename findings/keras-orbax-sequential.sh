#!/usr/bin/env bash
# Keras 3.15.1 on JAX 0.10.2 with orbax-checkpoint 0.12.8. load_model of a folder of
# OrbaxCheckpoint returns a Sequential with new random weights, and load_weights loads nothing into
# a model whose layers have other names: variables are found by names, and what is not found is
# passed over in silence. A functional model comes back right, and so does load_weights into a
# model of the same names.
# Output seen: functional restored True, Sequential restored False, other names restored False
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet keras==3.15.1 jax==0.10.2 numpy==2.4.6 orbax-checkpoint==0.12.8
KERAS_BACKEND=jax env/bin/python - <<'END'
import os

import keras
import numpy as np


def functional(name):
    inputs = keras.Input((2,))
    return keras.Model(inputs, keras.layers.Dense(3, name=name)(inputs))


def save(model, folder):
    model.compile("sgd", "mse")
    checkpoint = keras.callbacks.OrbaxCheckpoint(directory=os.path.abspath(folder))
    model.fit(np.ones((4, 2)), np.ones((4, 3)), verbose=0, callbacks=[checkpoint])
    return model


def equal(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a.get_weights(), b.get_weights(), strict=True))


saved = save(functional("head"), "functional")
restored = equal(saved, keras.models.load_model(os.path.abspath("functional")))
sequential = save(keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)]), "sequential")
as_sequential = equal(sequential, keras.models.load_model(os.path.abspath("sequential")))
other = functional("classifier")
other.compile("sgd", "mse")
other.load_weights(os.path.abspath("functional"))
by_other_names = equal(saved, other)
print(f"functional restored {restored}, Sequential restored {as_sequential},", end=" ")
print(f"other names restored {by_other_names}")
assert restored and not as_sequential and not by_other_names
END
