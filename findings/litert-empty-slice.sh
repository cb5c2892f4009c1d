#!/usr/bin/env bash
# ai-edge-litert 2.3.0, files by TensorFlow 2.21.0. With XNNPACK, which the interpreter takes by
# itself, the slice x[:, :0] of floats of a length unknown at conversion is not empty but all of x,
# as where a cache starts empty. Without XNNPACK, or for integers, it is right.
# Output seen for x[:, :0] joined with x, 3 long: XNNPACK 6 columns, without it 3
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet tensorflow-cpu==2.21.0 ai-edge-litert==2.3.0 numpy==2.4.6
TF_CPP_MIN_LOG_LEVEL=3 env/bin/python - <<'END'
import numpy as np
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter, OpResolverType

module = tf.Module()
signature = [tf.TensorSpec([1, None], tf.float32)]
module.f = tf.function(
    lambda x: tf.concat([x[:, :0], x], axis=1), input_signature=signature, autograph=False
)
functions = [module.f.get_concrete_function()]
file = tf.lite.TFLiteConverter.from_concrete_functions(functions, module).convert()


def columns(**options):
    interpreter = Interpreter(model_content=file, **options)
    x = interpreter.get_input_details()[0]["index"]
    interpreter.resize_tensor_input(x, (1, 3))
    interpreter.allocate_tensors()
    interpreter.set_tensor(x, np.ones((1, 3), "float32"))
    interpreter.invoke()
    return interpreter.get_tensor(interpreter.get_output_details()[0]["index"]).shape[1]


plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
seen = columns(), columns(experimental_op_resolver_type=plain)
print("XNNPACK {} columns, without it {}".format(*seen))
assert module.f(np.ones((1, 3), "float32")).shape[1] == 3 and seen == (6, 3)
END
