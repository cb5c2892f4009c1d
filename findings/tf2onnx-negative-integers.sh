#!/usr/bin/env bash
# tf2onnx 1.17.0, TensorFlow 2.21.0. Integer // and % of negative numbers become ONNX's division,
# which rounds towards 0: buckets of relative positions are wrong in silence. Floats are right.
# Output seen for -7 // 4 and -7 % 4: TensorFlow -2 and 1, ONNX -1 and -3, ONNX in float -2.0
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


integers = np.array([-7], "int32")
divided, remainder = both(lambda x: x // 4, integers), both(lambda x: x % 4, integers)
as_float = both(lambda x: x // 4.0, integers.astype("float32"))
print(f"TensorFlow {divided[0][0]} and {remainder[0][0]}, ONNX {divided[1][0]} and", end=" ")
print(f"{remainder[1][0]}, ONNX in float {as_float[1][0]}")
assert divided == ([-2], [-1]) and remainder == ([1], [-3]) and as_float == ([-2.0], [-2.0])
END
