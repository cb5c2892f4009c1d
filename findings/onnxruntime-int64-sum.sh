#!/usr/bin/env bash
# ONNX Runtime 1.32.0. ReduceSum of int64 adds up in float64, so that sums beyond 2**53 are rounded
# in silence: hashes of words, say. MatMul with ones, and CumSum, are exact.
# Output seen for 2**60 + 1: ReduceSum 1152921504606846976, MatMul 1152921504606846977
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
env/bin/python - <<'END'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper


def answer(operator, other):
    y = helper.make_tensor("y", TensorProto.INT64, [len(other)], other)
    attributes = {"keepdims": 0} if operator == "ReduceSum" else {}
    node = helper.make_node(operator, ["x", "y"], ["z"], **attributes)
    inputs = [helper.make_tensor_value_info("x", TensorProto.INT64, [1, 2])]
    outputs = [helper.make_tensor_value_info("z", TensorProto.INT64, [1])]
    graph = helper.make_graph([node], "sum", inputs, outputs, [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return int(session.run(None, {"x": np.array([[2**60, 1]], "int64")})[0][0])


summed, multiplied = answer("ReduceSum", [1]), answer("MatMul", [1, 1])
print(f"for 2**60 + 1: ReduceSum {summed}, MatMul {multiplied}")
assert (summed, multiplied) == (2**60, 2**60 + 1)
END
