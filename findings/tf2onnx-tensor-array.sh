#!/usr/bin/env bash
# tf2onnx 1.17.0, TensorFlow 2.21.0. A TensorArray that a loop writes comes back from ONNX in the
# order of the writes, whatever their indices, and only as long as the loop ran: text that is
# generated from the end, or ends early, is wrong in silence. Write in order, and pad the end.
# Output seen for 1, 2, 3 written from the end, and two of three written:
# TensorFlow [1.0, 2.0, 3.0] and [1.0, 2.0, 0.0], ONNX [3.0, 2.0, 1.0] and [1.0, 2.0]
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


def written(first, goes_on, step):
    def function(x):
        array = tf.TensorArray(tf.float32, size=tf.shape(x)[0], element_shape=[])
        _, array = tf.while_loop(
            lambda i, array: goes_on(i),
            lambda i, array: (i + step, array.write(i, x[i])),
            [first, array],
        )
        return array.stack()

    return function


x = np.array([1, 2, 3], "float32")
backwards = both(written(2, lambda i: i >= 0, -1), x)
early = both(written(0, lambda i: i < 2, 1), x)
print(f"TensorFlow {backwards[0]} and {early[0]}, ONNX {backwards[1]} and {early[1]}")
assert backwards == ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0])
assert early == ([1.0, 2.0, 0.0], [1.0, 2.0])
END
