#!/usr/bin/env bash
# OpenVINO 2026.4.1, a SavedModel by TensorFlow 2.21.0. The values of tf.unique are wrong if only
# they, and not the indices, are used: 0 from the second one on.
# Output seen for 3, 1, 3, 2: TensorFlow [3, 1, 2], OpenVINO [3, 0, 0]
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet openvino==2026.4.1 tensorflow-cpu==2.21.0 numpy==2.4.6
TF_CPP_MIN_LOG_LEVEL=3 env/bin/python - <<'END'
import numpy as np
import openvino
import tensorflow as tf

module = tf.Module()
signature = [tf.TensorSpec([None], tf.int32, name="x")]
module.f = tf.function(
    lambda x: {"values": tf.unique(x)[0]}, input_signature=signature, autograph=False
)
tf.saved_model.save(module, "saved", signatures=module.f)
x = np.array([3, 1, 3, 2], "int32")
model = openvino.compile_model(openvino.convert_model("saved"), "CPU")
right, answer = module.f(x)["values"].numpy().tolist(), list(model([x]).values())[0].tolist()
print(f"TensorFlow {right}, OpenVINO {answer}")
assert right == [3, 1, 2] and answer == [3, 0, 0]
END
