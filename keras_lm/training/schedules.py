"""Learning-rate schedules."""

from typing import Any

import keras
from keras import ops

from keras_lm.argument_types import Tensor


@keras.saving.register_keras_serializable("keras_lm")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Rise linearly from zero to the peak, then fall linearly to zero.

    Args:
        peak: float above 0. The highest learning rate.
        total_steps: int, or None: each call of a task's `fit` then sets it to the number of its
            steps. Until it is known, the rate stays at the peak.
        warmup: float in [0, 1). Fraction of `total_steps` spent rising, rounded down to a step.
        start: int. The step of the optimizer at which the schedule begins.

    Raises:
        ValueError: if `warmup` is not in [0, 1), or `peak` or `total_steps` is not positive.

    Example:
        schedule = WarmupLinearDecay(peak=1e-4, total_steps=100)
        [float(schedule(step)) for step in (0, 10, 55, 100)]  # [0, 1e-4, 5e-5, 0]

    Source: google-research/bert, `optimization.py`; BERT, section A.2.
    """

    def __init__(
        self, peak: float, total_steps: int | None = None, warmup: float = 0.1, start: int = 0
    ):
        if not peak > 0:
            raise ValueError(f"peak={peak} is not positive.")
        if total_steps is not None and total_steps < 1:
            raise ValueError(f"total_steps={total_steps}: pass 1 or more, or None.")
        if not 0 <= warmup < 1:
            raise ValueError(f"warmup={warmup} is a fraction of the steps: pass 0 <= warmup < 1.")
        self.peak = peak
        self.warmup = warmup
        self.is_planned_by_fit = total_steps is None
        self.skipped = 0  # steps of a continued run that changed nothing: gradients overflowed
        # Start, steps rising, all steps (0 if unknown): a variable, so that each call of `fit` can
        # use the graph of the first.
        self._numbers = keras.Variable([0.0, 0.0, 0.0], dtype="float32", trainable=False)
        self._held = keras.Variable(-1.0, dtype="float32", trainable=False)  # negative: not held
        self._set(start, total_steps)

    @property
    def variables(self):
        return [self._numbers, self._held]

    def _set(self, start, total_steps):
        self.start, self.total_steps = start, total_steps
        total_steps = total_steps or 0
        self._numbers.assign([start, int(self.warmup * total_steps), total_steps])

    def plan(self, start: int, total_steps: int) -> None:
        """Set the steps of a call of `fit`, unless the user did."""
        if self.is_planned_by_fit:
            self._set(start, total_steps)

    def hold(self, rate: float) -> None:
        """Let the rate be a number from now on, as Keras's callbacks set it."""
        self._held.assign(rate)

    def __call__(self, step):
        held = ops.convert_to_tensor(self._held)
        return ops.where(held >= 0, held, self.planned_rate(step))

    def planned_rate(self, step: Any) -> Tensor:
        """Return the rate at a step of the optimizer, unless a number is held."""
        start, warmup_steps, total_steps = (self._numbers[i] for i in range(3))
        step = ops.cast(step, "float32") - start
        rising = step / ops.maximum(warmup_steps, 1.0)
        falling = (total_steps - step) / ops.maximum(total_steps - warmup_steps, 1.0)
        falling = self.decayed(ops.clip(falling, 0.0, 1.0))
        share = ops.clip(ops.where(step < warmup_steps, rising, falling), 0.0, 1.0)
        return self.peak * ops.where(total_steps > 0, share, 1.0)

    def decayed(self, left: Tensor) -> Tensor:
        """Return the rate, as a share of the peak, for the share of steps that are left."""
        return left

    def get_config(self):
        return {
            "peak": self.peak,
            "total_steps": None if self.is_planned_by_fit else self.total_steps,
            "warmup": self.warmup,
            "start": 0 if self.is_planned_by_fit else self.start,
        }


def plan(model, start, total_steps):
    """Set the steps of a compiled model's schedule, and return it; None if there is none to set.

    It begins `start` steps from now; if `total_steps` is None, the rate stays at the peak.
    """
    schedule, steps = schedule_and_steps(model)
    if schedule is None or not schedule.is_planned_by_fit:
        return None
    if total_steps is not None:
        start += steps
    schedule.plan(start, total_steps)
    return schedule


def schedule_and_steps(model):
    """Return a compiled model's schedule, None if it is another's, and the steps it has counted."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)  # loss scaling
    schedule = getattr(optimizer, "_learning_rate", None)
    if not isinstance(schedule, WarmupLinearDecay):
        return None, 0
    # Unlike `iterations`, it also counts steps that only accumulate gradients.
    return schedule, int(optimizer._iterations.numpy())


class Plan:
    """Spreads the schedule over all steps of a run, instead of those of each call of `fit`."""

    def __init__(self, model, done, total_steps):
        schedule, _ = schedule_and_steps(model)
        self.schedule = plan(model, schedule.skipped - done if schedule else 0, total_steps)

    def __enter__(self):
        if self.schedule is not None:
            self.schedule.is_planned_by_fit = False

    def __exit__(self, *error):
        if self.schedule is not None:
            self.schedule.is_planned_by_fit = True
