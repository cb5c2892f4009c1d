#!/usr/bin/env bash
# ai-edge-litert 2.3.0, files by TensorFlow 2.21.0. reset_all_variables() resets no tf.Variable of
# the model: a state kept in one goes on from text to text. Pass the state in and out.
# Output seen for a counter that is reset after the second call: 1.0, 2.0, 3.0
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet tensorflow-cpu==2.21.0 ai-edge-litert==2.3.0 numpy==2.4.6
TF_CPP_MIN_LOG_LEVEL=3 env/bin/python - <<'END'
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter


class Counter(tf.Module):
    def __init__(self):
        self.count = tf.Variable(0.0)

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)], autograph=False)
    def __call__(self, x):
        self.count.assign_add(x)
        return self.count.read_value()


model = Counter()
functions = [model.__call__.get_concrete_function()]
file = tf.lite.TFLiteConverter.from_concrete_functions(functions, model).convert()
interpreter = Interpreter(model_content=file)
interpreter.allocate_tensors()
counts = []
for call in (1, 2, 3):
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], tf.constant(1.0).numpy())
    interpreter.invoke()
    counts.append(float(interpreter.get_tensor(interpreter.get_output_details()[0]["index"])))
    if call == 2:
        interpreter.reset_all_variables()
print(", ".join(map(str, counts)))
assert counts == [1.0, 2.0, 3.0]
END
