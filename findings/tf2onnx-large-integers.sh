#!/usr/bin/env bash
# tf2onnx 1.17.0, TensorFlow 2.21.0. Comparisons of integers become comparisons of float32: from
# 2**24 on, numbers that differ are equal. A search in sorted int64 numbers goes astray in silence.
# Output seen for 2**24 < 2**24 + 1, in int32 and int64: TensorFlow True and True, ONNX False and
# False
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


def both(dtype):
    x = np.array([2**24], dtype)
    signature = [tf.TensorSpec([None], x.dtype)]
    graph = tf.function(lambda x: x < 2**24 + 1, input_signature=signature, autograph=False)
    model, _ = tf2onnx.convert.from_function(graph, input_signature=signature, opset=18)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    answer = session.run(None, {session.get_inputs()[0].name: x})[0]
    return bool(graph(x).numpy()[0]), bool(answer[0])


narrow, wide = both("int32"), both("int64")
print(f"for 2**24 < 2**24 + 1, in int32 and int64: TensorFlow {narrow[0]} and {wide[0]},", end=" ")
print(f"ONNX {narrow[1]} and {wide[1]}")
assert narrow == wide == (True, False)
END
