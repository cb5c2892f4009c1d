#!/usr/bin/env bash
# ai-edge-litert 2.3.0, files by TensorFlow 2.21.0. LiteRT's subtraction ends at the least float32
# where TensorFlow's is -inf, and its maximum passes over NaN. So a softmax over a row whose keys
# are all masked by -inf, NaN in TensorFlow, is uniform, and a search for NaN finds nothing in the
# exported file.
# Output seen: 1 - inf is -3.4e+38, softmax of two such [0.5, 0.5], maximum of 1, NaN and 2 is 2.0
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet tensorflow-cpu==2.21.0 ai-edge-litert==2.3.0 numpy==2.4.6
TF_CPP_MIN_LOG_LEVEL=3 env/bin/python - <<'END'
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter


def both(function, x):
    x = np.array(x, "float32")
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
    return module.f(x).numpy(), answer


masked = both(lambda x: x - np.inf, [[1, 1]])
softmax = both(lambda x: tf.nn.softmax(x - np.inf), [[1, 1]])
maximum = both(tf.reduce_max, [1, np.nan, 2])
print(f"1 - inf is {masked[1][0, 0]:.1e}, softmax of two such {softmax[1][0].tolist()},", end=" ")
print(f"maximum of 1, NaN and 2 is {maximum[1]}")
assert np.isneginf(masked[0]).all() and np.isnan(softmax[0]).all() and np.isnan(maximum[0])
assert (masked[1] == np.finfo("float32").min).all()
assert softmax[1].tolist() == [[0.5, 0.5]] and maximum[1] == 2.0
END
