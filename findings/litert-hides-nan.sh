#!/usr/bin/env bash
# ai-edge-litert 2.3.0, files by TensorFlow 2.21.0. A softmax over -inf alone, as of a row whose
# keys are all masked, is NaN in TensorFlow and uniform in LiteRT; reduce_max over a NaN is NaN in
# TensorFlow and another number in LiteRT. So a search for NaN finds nothing in the exported file.
# Output seen: softmax [0.5, 0.5], maximum 2.0; in TensorFlow both are NaN
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet tensorflow-cpu==2.21.0 ai-edge-litert==2.3.0 numpy==2.4.6
TF_CPP_MIN_LOG_LEVEL=3 env/bin/python - <<'END'
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter


def both(function, x):
    module = tf.Module()
    signature = [tf.TensorSpec(x.shape, tf.float32)]
    module.f = tf.function(function, input_signature=signature, autograph=False)
    functions = [module.f.get_concrete_function()]
    file = tf.lite.TFLiteConverter.from_concrete_functions(functions, module).convert()
    interpreter = Interpreter(model_content=file)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    answer = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    return module.f(x).numpy(), answer.tolist()


softmax = both(tf.nn.softmax, np.full((1, 2), -np.inf, "float32"))
maximum = both(tf.reduce_max, np.array([1, np.nan, 2], "float32"))
print(f"softmax {softmax[1][0]}, maximum {maximum[1]}; in TensorFlow both are NaN")
assert np.isnan(softmax[0]).all() and np.isnan(maximum[0])
assert softmax[1] == [[0.5, 0.5]] and maximum[1] == 2.0
END
