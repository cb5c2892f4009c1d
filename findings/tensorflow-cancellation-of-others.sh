#!/usr/bin/env bash
# TensorFlow 2.21.0. CancellationManagerContext, though entered by a thread, is one for the whole
# process: a manager that is cancelled stops the functions of other threads, too. Give each thread
# its own by replacing tensorflow.python.eager.cancellation.context, which TensorFlow asks.
# Output seen: a function outside of the context was cancelled
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet tensorflow==2.21.0
env/bin/python - <<'END'
import threading

import tensorflow as tf
from tensorflow.python.eager import cancellation

count = tf.function(lambda: tf.while_loop(lambda n: n < 3, lambda n: [n + 1], [0]))
count()
errors = []


def outside():
    try:
        count()
    except tf.errors.CancelledError as error:
        errors.append(error)


manager = cancellation.CancellationManager()
with cancellation.CancellationManagerContext(manager):
    manager.start_cancel()
    thread = threading.Thread(target=outside)
    thread.start()
    thread.join()
assert errors
print("a function outside of the context was cancelled")
END
