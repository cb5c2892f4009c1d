"""The learning curve of a `fit`: recorded a step at a time, drawn as a PNG."""

import keras
import numpy as np


class StepHistory(keras.callbacks.Callback):
    """Keeps the loss of every step, and an accuracy measured every `every` steps.

    Keras reports the mean loss since the epoch began; this takes the steps out of it again.
    `measure` returns the accuracy by now; it is also called once before the first step.
    """

    def __init__(self, measure, every):
        super().__init__()
        self.measure, self.every = measure, every
        self.losses, self.accuracies = [], []  # accuracies: (steps done, accuracy)
        self._total = 0.0

    def on_train_begin(self, logs=None):
        self.accuracies.append((0, self.measure()))

    def on_epoch_begin(self, epoch, logs=None):
        self._total = 0.0

    def on_train_batch_end(self, batch, logs=None):
        total = logs["loss"] * (batch + 1)
        self.losses.append(total - self._total)
        self._total = total
        if len(self.losses) % self.every == 0:
            self.accuracies.append((len(self.losses), self.measure()))


def smooth(values, window):
    """Running mean over up to `window` values; as many come out as go in."""
    sums = np.cumsum([0.0, *values])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return (sums[ends] - sums[starts]) / (ends - starts)


def draw_learning_curve(history, baseline, path):
    """Draw loss (left axis) and held-out accuracy (right axis) over steps, as a PNG."""
    from matplotlib.figure import Figure  # without pyplot: needs no display, keeps no state

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    left = figure.subplots()
    steps = np.arange(1, len(history.losses) + 1)
    window = max(1, len(steps) // 20)
    left.plot(steps, history.losses, color="tab:blue", alpha=0.15, linewidth=0.8)
    left.plot(
        steps,
        smooth(history.losses, window),
        color="tab:blue",
        label=f"training loss (running mean of {window})",
    )
    left.set(xlabel="step", ylabel="loss", title="Fine-tuning on movie reviews")

    left.set_ylim(0, 1.1 * max(history.losses))

    right = left.twinx()
    right.plot(*zip(*history.accuracies), color="tab:orange", marker="o", label="held-out accuracy")
    right.axhline(baseline, color="gray", linestyle="--", label="bag of words")
    right.set(ylabel="accuracy", ylim=(0.4, 1.0))
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=120)
