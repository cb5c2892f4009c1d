#!/usr/bin/env bash
# Keras 3.15.1 on JAX 0.10.2. A model with LoRA that went through a .keras file answers the same,
# but learns nothing by LoRA any more: its update is merged into the kernel, and both of its
# matrices come back as 0, so that neither has a gradient. lora_alpha comes back as the rank.
# Output seen after three epochs: LoRA's matrices moved by 0.0 and 0.0, alpha 8 became 2
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet keras==3.15.1 jax==0.10.2 numpy==2.4.6
KERAS_BACKEND=jax env/bin/python - <<'END'
import keras
import numpy as np

layer = keras.layers.Dense(4)
model = keras.Sequential([keras.Input((4,)), layer])
layer.enable_lora(2, lora_alpha=8)
layer.lora_kernel_b.assign(np.ones((2, 4)))
x, y = np.random.default_rng(0).normal(size=(2, 8, 4))
model.save("model.keras")
loaded = keras.models.load_model("model.keras")
assert np.allclose(loaded.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-5)
loaded.compile("sgd", "mse")
loaded.fit(x, y, epochs=3, verbose=0)
again = loaded.layers[-1]
a, b = (float(np.abs(np.asarray(v)).max()) for v in (again.lora_kernel_a, again.lora_kernel_b))
print(f"LoRA's matrices moved by {a} and {b}, alpha {layer.lora_alpha} became {again.lora_alpha}")
assert a == b == 0.0 and layer.lora_alpha == 8 and again.lora_alpha == 2
END
