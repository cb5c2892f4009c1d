#!/usr/bin/env bash
# Keras 3.15.1 on JAX 0.10.2, scikit-learn 1.9.1. The macro F1 of perfect predictions is not 1 in
# Keras if a class is in neither labels nor predictions: F1Score counts it as 0, scikit-learn
# leaves it out.
# Output seen, all of 4 rows right, 2 of 3 classes present: Keras 0.6667, scikit-learn 1.0
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet keras==3.15.1 jax==0.10.2 numpy==2.4.6 scikit-learn==1.9.1
KERAS_BACKEND=jax env/bin/python - <<'END'
import keras
import numpy as np
from sklearn.metrics import f1_score

labels = np.array([0, 1, 0, 1])
metric = keras.metrics.F1Score(average="macro")
metric.update_state(np.eye(3)[labels], np.eye(3)[labels])
ours, theirs = round(float(metric.result()), 4), f1_score(labels, labels, average="macro")
print(f"Keras {ours}, scikit-learn {theirs}")
assert ours == 0.6667 and theirs == 1.0
END
