#!/usr/bin/env bash
# Keras 3.15.1 on JAX 0.10.2. exclude_from_weight_decay(var_names=["layer_norm"]) excludes nothing:
# a name is looked for in "gamma" and "beta", the variable's own name, without that of its layer,
# and a name that fits nothing raises no error. Name "gamma" and "beta", or pass the variables.
# Output seen, weights of a layer "layer_norm" after one step with a gradient of 0:
# by layer_norm: [0.9, 0.9], by gamma and beta: [1.0, 1.0]
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet keras==3.15.1 jax==0.10.2 numpy==2.4.6
KERAS_BACKEND=jax env/bin/python - <<'END'
import keras
import numpy as np


def after_one_step(names):
    layer = keras.layers.LayerNormalization(name="layer_norm")
    layer.build((None, 2))
    layer.beta.assign([1.0, 1.0])
    optimizer = keras.optimizers.AdamW(learning_rate=0.1, weight_decay=1.0)
    optimizer.exclude_from_weight_decay(var_names=names)
    variables = layer.trainable_variables
    optimizer.apply([np.zeros(v.shape, "float32") for v in variables], variables)
    return [round(float(np.asarray(v)[0]), 3) for v in variables]


by_layer, by_variable = after_one_step(["layer_norm"]), after_one_step(["gamma", "beta"])
print(f"by layer_norm: {by_layer}, by gamma and beta: {by_variable}")
assert by_layer == [0.9, 0.9] and by_variable == [1.0, 1.0]
END
