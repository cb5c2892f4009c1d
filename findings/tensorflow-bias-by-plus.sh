#!/usr/bin/env bash
# tensorflow 2.21.0. On a CPU with AVX-512, the optimiser makes one kernel of a product, its bias
# and the exact GELU if the bias is added by tf.nn.bias_add. By + or tf.add, which mean the same,
# there are seven, in float32 as in bfloat16, where Erfc then takes longer than the product.
# Output seen: by + AddV2 Erfc MatMul Mul Mul Mul Neg, by bias_add _FusedMatMul, in both types
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet tensorflow==2.21.0
env/bin/python - <<'END'
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.grappler import tf_optimizer


def kernels(dtype, add):
    """Return the operations of a layer after TensorFlow's optimiser."""
    weights, bias = tf.ones((64, 32), dtype), tf.ones((32,), dtype)

    @tf.function(autograph=False)
    def layer(x):
        return tf.nn.gelu(add(tf.matmul(x, weights), bias), approximate=False)

    graph = layer.get_concrete_function(tf.TensorSpec((None, 64), dtype)).graph
    meta = tf.compat.v1.train.export_meta_graph(graph_def=graph.as_graph_def(), graph=graph)
    for node in meta.graph_def.node:
        node.device = "/device:CPU:0"
    meta.collection_def["train_op"].node_list.value.append(graph.outputs[0].op.name)
    nodes = tf_optimizer.OptimizeGraph(config_pb2.ConfigProto(), meta).node
    return sorted(node.op for node in nodes if node.op not in ("Const", "Identity", "Placeholder"))


for dtype in ("float32", "bfloat16"):
    by_plus = kernels(dtype, lambda x, bias: x + bias)
    by_bias_add = kernels(dtype, tf.nn.bias_add)
    print(f"{dtype}: by + {' '.join(by_plus)}, by bias_add {' '.join(by_bias_add)}")
    assert by_plus == ["AddV2", "Erfc", "MatMul", "Mul", "Mul", "Mul", "Neg"]
    assert by_bias_add == ["_FusedMatMul"]
END
