#!/usr/bin/env bash
# TensorFlow 2.21.0. With oneDNN, memory of large tensors is kept for later ones until the process
# ends. TF_ONEDNN_USE_SYSTEM_ALLOCATOR=1 gives it back, but large batches then take longer.
# Output seen: kept by default, given back by the system's allocator
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet tensorflow==2.21.0 psutil==7.2.2
TF_ENABLE_ONEDNN_OPTS=1 env/bin/python - <<'END'
import os
import subprocess
import sys

PROGRAM = """
import psutil
import tensorflow as tf

memory = psutil.Process().memory_info
double = tf.function(lambda n: tf.reduce_sum(tf.sqrt(tf.ones([n, 2**20]) + 1) * 2))
double(1)
before = memory().rss
double(128)
print((memory().rss - before) // 2**20)
"""


def kept(system):
    environment = os.environ | {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": str(system)}
    return int(subprocess.check_output([sys.executable, "-c", PROGRAM], env=environment))


assert kept(0) > 400 and kept(1) < 100, (kept(0), kept(1))
print("kept by default, given back by the system's allocator")
END
