#!/usr/bin/env bash
# KerasTuner 1.4.8 with Keras 3.15.1. Hyperband continues a trial with the weights of an earlier
# round, but not with its optimizer: moments and the count of steps, and with it a learning rate's
# schedule, start anew. Fit the best values again for the model that you keep.
# Output seen: weights go on from the earlier round, at step 0 of the optimizer
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet keras-tuner==1.4.8 keras==3.15.1 jax==0.10.2 numpy==2.4.6 six==1.17.0
KERAS_BACKEND=jax env/bin/python - 2>/dev/null <<'END'
import keras
import keras_tuner
import numpy as np

x = np.linspace(-1, 1, 32).reshape(-1, 1)
ends, begins = [], []


class Notes(keras.callbacks.Callback):
    def state(self):
        weight = np.asarray(self.model.layers[-1].kernel).item()
        return weight, int(self.model.optimizer.iterations)

    def on_train_begin(self, logs=None):
        begins.append(self.state())

    def on_epoch_end(self, epoch, logs=None):
        ends.append(self.state())


def build(hp):
    rate = hp.Float("rate", 1e-3, 1e-1)
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate, momentum=0.9), "mse")
    return model


options = {"max_epochs": 4, "factor": 2, "directory": "tuned", "seed": 1}
tuner = keras_tuner.Hyperband(build, objective="loss", **options)
tuner.search(x, 2 * x, batch_size=8, verbose=0, callbacks=[Notes()])
steps = dict(ends)  # by the weight
continued = [(steps[weight], now) for weight, now in begins if weight in steps]
assert continued and all(before > 0 and now == 0 for before, now in continued)
print("weights go on from the earlier round, at step 0 of the optimizer")
END
