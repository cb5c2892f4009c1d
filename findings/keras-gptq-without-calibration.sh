#!/usr/bin/env bash
# Keras 3.15.1 on JAX 0.10.2. quantize("gptq") and quantize("awq") take calibration data, and run
# the model on them, but nothing of that reaches the weights that they make: these are the same for
# any data.
# Output seen: gptq: same weights for other data, awq: same weights for other data
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet keras==3.15.1 jax==0.10.2 numpy==2.4.6
KERAS_BACKEND=jax env/bin/python - <<'END'
import keras
import numpy as np


def quantized(method, data):
    keras.utils.set_random_seed(1)
    table = keras.layers.Embedding(16, 8)
    block = keras.Sequential([keras.layers.Dense(32, "relu"), keras.layers.Dense(8)])
    inputs = keras.Input((None,), dtype="int32")
    model = keras.Model(inputs, block(table(inputs)))
    configs = {"gptq": keras.quantizers.GPTQConfig, "awq": keras.quantizers.AWQConfig}
    config = configs[method](
        dataset=data,
        tokenizer=lambda row: row,
        num_samples=4,
        sequence_length=8,
        group_size=8,
        quantization_layer_structure={
            "pre_block_layers": [table],
            "sequential_blocks": [block],
        },
    )
    before = [np.asarray(v) for v in block.variables]
    model.quantize(method, config=config)
    after = [np.asarray(v) for v in block.variables]
    assert len(after) > len(before), "nothing was quantized"
    return after


for method in ("gptq", "awq"):
    varied = quantized(method, [np.random.default_rng(i).integers(0, 16, (1, 8)) for i in range(4)])
    constant = quantized(method, [np.full((1, 8), 3)] * 4)
    assert all(np.array_equal(a, b) for a, b in zip(varied, constant, strict=True)), method
    print(f"{method}: same weights for other data")
END
