#!/usr/bin/env bash
# openvino 2026.4.1. On a CPU, int64 is computed as int32: numbers beyond 2**31 lose their upper
# half in silence, though input and output are int64. Hashes and keys are wrong: pass two int32.
# Output seen for twice 2**40 + 1: 2, in ONNX Runtime 2199023255554
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet openvino==2026.4.1 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
env/bin/python - <<'END'
import numpy as np
import onnxruntime
import openvino
from onnx import TensorProto, helper

x, y = (helper.make_tensor_value_info(name, TensorProto.INT64, ["n"]) for name in "xy")
graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "twice", [x], [y])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
model, number = model.SerializeToString(), np.array([2**40 + 1], "int64")
core = openvino.Core()
answer = core.compile_model(core.read_model(model), "CPU")({"x": number})["y"]
(expected,) = onnxruntime.InferenceSession(model).run(None, {"x": number})
print(f"for twice 2**40 + 1: {answer[0]}, in ONNX Runtime {expected[0]}")
assert answer.dtype == expected.dtype == np.int64
assert answer.tolist() == [2] and expected.tolist() == [2 * (2**40 + 1)]
END
