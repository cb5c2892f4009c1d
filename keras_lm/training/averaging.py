"""The mean of the last weights of a training."""

import collections
from typing import Any

import keras


class AverageWeights(keras.callbacks.Callback):
    """Leave the model with the mean of its weights after each of the last epochs.

    A mean lies closer to the middle of a minimum than its parts, which the noise of the last steps
    moves about. `val_…` in the log is of the weights as they are in training. The snapshots are
    kept in the memory of the host, each the size of the model.

    Args:
        last: int, 1 or more. How many snapshots are averaged.
        every: int, or None. The steps between two of them; None for an epoch.

    Raises:
        ValueError: if an argument is less than 1.

    Example:

        task.fit(texts, labels, epochs=10, callbacks=[keras_lm.training.AverageWeights(last=5)])

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 6.1.
    """

    def __init__(self, last: int = 5, every: int | None = None):
        super().__init__()
        for name, value in (("last", last), ("every", every)):
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}: pass 1 or more.")
        self.every = every
        self._snapshots = collections.deque(maxlen=last)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._snapshots.clear()
        self._steps = 0

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._steps += 1
        if self.every and self._steps % self.every == 0:
            self._keep()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if not self.every:
            self._keep()

    def _weights(self):
        weights = self.model.weights
        return [weight for weight in weights if keras.backend.is_float_dtype(weight.dtype)]

    def _keep(self):
        # A variable's array may be its own memory, which the next step overwrites.
        self._snapshots.append([weight.numpy().copy() for weight in self._weights()])

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        if not self._snapshots:
            return
        for weight, values in zip(self._weights(), zip(*self._snapshots, strict=True), strict=True):
            total = sum(value.astype("float64") for value in values)
            weight.assign((total / len(values)).astype(weight.dtype))
