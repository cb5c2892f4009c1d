#!/usr/bin/env bash
# safetensors 0.8.0. safetensors.numpy.save of a transposed array writes its bytes as they lie in
# memory, with the transposed shape: other numbers come back, without an error. So do not pass
# kernel.T when a Keras kernel becomes a PyTorch weight, but numpy.ascontiguousarray of it.
# Output seen for [[0, 1, 2], [3, 4, 5]] transposed: [[0, 1], [2, 3], [4, 5]]
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet safetensors==0.8.0 numpy==2.4.6
env/bin/python - <<'END'
import numpy as np
from safetensors.numpy import load, save

weight = np.array([[0, 1, 2], [3, 4, 5]]).T
back = load(save({"weight": weight}))["weight"].tolist()
copied = load(save({"weight": np.ascontiguousarray(weight)}))["weight"].tolist()
print(back)
assert back == [[0, 1], [2, 3], [4, 5]] and copied == weight.tolist()
END
