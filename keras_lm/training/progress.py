"""Callbacks that report on a long run while it is under way."""

import time
from collections.abc import Sequence
from typing import Any

import keras

from keras_lm.utils.argument_types import RawTexts


class TokensPerSecond(keras.callbacks.Callback):
    """Report `tokens_per_second`, in the progress line, the history and TensorBoard.

    It is the mean over the steps of an epoch after its first, which may trace the graph.

    Args:
        tokens: int. Tokens of a step: rows by their length, padding included.

    Example:
        speed = keras_lm.training.TokensPerSecond(32 * 128)
        task.fit(texts, batch_size=32, callbacks=[speed])
    """

    def __init__(self, tokens: int):
        super().__init__()
        self.tokens = tokens

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._steps, self._rate = -1, 0.0

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        now = time.monotonic()
        self._steps += 1
        if self._steps == 0:
            self._start = now
            return
        self._rate = round(self._steps * self.tokens / max(now - self._start, 1e-9), 1)
        if logs is not None:
            logs["tokens_per_second"] = self._rate

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None and self._steps > 0:
            logs["tokens_per_second"] = self._rate


class EvaluateEvery(keras.callbacks.Callback):
    """Evaluate every few steps of the optimizer, also within an epoch.

    The values, `val_…`, are shown in the progress line, by TensorBoard if it logs batches, and kept
    in `history`, a list of dicts with the `step` of each. The run is as it would be without: its
    own metrics and random numbers are not touched. A run that continues from a checkpoint evaluates
    after the same steps.

    Args:
        steps: int, 1 or more.
        data: what `evaluate` takes, such as texts or batches.
        **options: other arguments of `evaluate`.

    Raises:
        ValueError: if `steps` is less than 1.

    Example:
        batches = keras_lm.data.window_batches(validation_windows, 32)
        evaluation = keras_lm.training.EvaluateEvery(1000, batches)
        keras_lm.training.fit_windows(task, windows, callbacks=[evaluation])
    """

    def __init__(self, steps: int, data: Any, **options: Any):
        super().__init__()
        if steps < 1:
            raise ValueError(f"steps={steps}: pass 1 or more.")
        self.steps = steps
        self.data = data
        self.options: dict[str, Any] = {"verbose": 0} | options
        self.history: list[dict[str, Any]] = []
        self._last = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._last = self._step()

    def _step(self):
        return int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        step = self._step()
        if step == self._last or step % self.steps:  # the same, where gradients are accumulated
            return
        self._last = step
        variables = self.model.metrics_variables
        values = [keras.ops.convert_to_numpy(variable) for variable in variables]
        measured = self.model.evaluate(self.data, return_dict=True, **self.options)
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        measured = {f"val_{name}": value for name, value in measured.items()}
        self.history.append({"step": step} | measured)
        if logs is not None:
            logs.update(measured)


class GenerateEachEpoch(keras.callbacks.Callback):
    """Generate texts after each epoch, and log how they compare with the right ones as `val_…`.

    Put it before callbacks that look at these values, such as Keras's `EarlyStopping`.

    Args:
        x: what the task's `generate` takes.
        targets: list of str, the right text of each, or lists of several.
        metrics: list of metrics of texts, such as `keras_lm.metrics.Bleu()`.
        **options: other arguments of `generate`.

    Raises:
        ValueError: if there are not as many targets as texts.

    Example:

        bleu = keras_lm.training.GenerateEachEpoch(sources, targets, [keras_lm.metrics.Bleu()])
        task.fit(x, y, epochs=10, callbacks=[bleu])
    """

    def __init__(self, x: RawTexts, targets: Sequence[str], metrics: Any, **options: Any):
        super().__init__()
        columns = x.values() if isinstance(x, dict) else x if isinstance(x, tuple) else [x]
        number = len(next(iter(columns)))
        if len(targets) != number:
            raise ValueError(
                f"targets has {len(targets)} rows for {number} texts: pass one for each."
            )
        self.x, self.targets, self.metrics, self.options = x, targets, list(metrics), options

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        texts = self.model.generate(self.x, **self.options)
        for metric in self.metrics:
            metric.reset_state()
            metric.update_state(self.targets, texts)
            if logs is not None:
                logs[f"val_{metric.name}"] = float(metric.result())
