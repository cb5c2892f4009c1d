#!/usr/bin/env bash
# tf2onnx 1.17.0 with ONNX Runtime 1.32.0, TensorFlow 2.21.0. scatter_nd adds the values of an
# index that occurs twice in TensorFlow, and keeps one of them in ONNX: counts and sums of pieces
# are too low. one_hot(-1), as of ignored labels, is all 0 in TensorFlow, and the last class in
# ONNX.
# Output seen for indices 1, 1, 2: TensorFlow [0, 2, 1], ONNX [0, 1, 1];
# for one_hot(-1): TensorFlow [0.0, 0.0, 0.0], ONNX [0.0, 0.0, 1.0]
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet tensorflow-cpu==2.21.0 tf2onnx==1.17.0 onnx==1.23.2 \
    onnxruntime==1.32.0 numpy==2.4.6
TF_CPP_MIN_LOG_LEVEL=3 env/bin/python - <<'END'
import numpy as np
import onnxruntime
import tensorflow as tf
import tf2onnx


def both(function, x):
    signature = [tf.TensorSpec([None], x.dtype)]
    graph = tf.function(function, input_signature=signature, autograph=False)
    model, _ = tf2onnx.convert.from_function(graph, input_signature=signature, opset=18)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    answer = session.run(None, {session.get_inputs()[0].name: x})[0]
    return graph(x).numpy().tolist(), answer.tolist()


counts = both(
    lambda x: tf.scatter_nd(x[:, None], tf.ones_like(x), [3]), np.array([1, 1, 2], "int32")
)
ignored = both(lambda x: tf.one_hot(x, 3), np.array([-1], "int32"))
print(f"for indices 1, 1, 2: TensorFlow {counts[0]}, ONNX {counts[1]}")
print(f"for one_hot(-1): TensorFlow {ignored[0][0]}, ONNX {ignored[1][0]}")
assert counts == ([0, 2, 1], [0, 1, 1]) and ignored == ([[0.0, 0.0, 0.0]], [[0.0, 0.0, 1.0]])
END
