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


@keras.saving.register_keras_serializable("keras_lm")
class WarmupPolynomialDecay(WarmupLinearDecay):
    """Rise linearly from zero to the peak, then fall as a power of the steps that are left.

    Args:
        power: float above 0. 1 is linear, as in BERT, ALBERT, RoBERTa and ELECTRA.
        end: float, from 0 to the peak. The last rate, which stays.
        Other arguments: as `WarmupLinearDecay`.

    Raises:
        ValueError: if `power` is not positive or `end` not in [0, peak], or as `WarmupLinearDecay`
            does.

    Example:
        schedule = WarmupPolynomialDecay(peak=1.0, total_steps=100, power=2.0, end=0.2)
        [float(schedule(step)) for step in (0, 10, 55, 100)]  # [0, 1, 0.4, 0.2]

    Source: RoBERTa, https://arxiv.org/abs/1907.11692, in fairseq's `polynomial_decay`. The code of
    BERT, ALBERT and ELECTRA counts the fall from the first step, not from the end of warm-up: its
    rates are lower by at most the share of warm-up, and BERT's and ALBERT's jump there.
    """

    def __init__(
        self,
        peak: float,
        total_steps: int | None = None,
        warmup: float = 0.1,
        power: float = 1.0,
        end: float = 0.0,
        start: int = 0,
    ):
        super().__init__(peak, total_steps, warmup, start)
        if not power > 0:
            raise ValueError(f"power={power} is not positive.")
        if not 0 <= end <= peak:
            raise ValueError(f"end={end} is not in [0, peak={peak}].")
        self.power = power
        self.end = end

    def decayed(self, left):
        end = self.end / self.peak
        return end + (1.0 - end) * left**self.power

    def get_config(self):
        return super().get_config() | {"power": self.power, "end": self.end}


@keras.saving.register_keras_serializable("keras_lm")
class SlantedTriangular(WarmupLinearDecay):
    """Rise linearly to the peak in a few steps, then fall slowly, from and to a low rate.

    Args:
        ratio: float, 1 or more. The peak divided by the lowest rate.
        Other arguments: as `WarmupLinearDecay`.

    Raises:
        ValueError: if `ratio` is less than 1, or as `WarmupLinearDecay` does.

    Example:
        task.compile(optimizer=AdamW(SlantedTriangular(peak=4e-3)))

    Source: ULMFiT, https://arxiv.org/abs/1801.06146, equation 3.
    """

    def __init__(
        self,
        peak: float,
        total_steps: int | None = None,
        warmup: float = 0.1,
        ratio: float = 32.0,
        start: int = 0,
    ):
        super().__init__(peak, total_steps, warmup, start)
        if ratio < 1:
            raise ValueError(f"ratio={ratio} is less than 1: the lowest rate is peak / ratio.")
        self.ratio = ratio

    def planned_rate(self, step):
        share = super().planned_rate(step) / self.peak
        return self.peak * (1.0 + share * (self.ratio - 1.0)) / self.ratio

    def get_config(self):
        return super().get_config() | {"ratio": self.ratio}


@keras.saving.register_keras_serializable("keras_lm")
class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Rise linearly to the peak, then fall as 1 / √step: for runs whose end is not set.

    Args:
        peak: float above 0. The Transformer's is `(hidden_dim * warmup_steps) ** -0.5`.
        warmup_steps: int, 1 or more. The step at which the peak is reached.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        schedule = InverseSquareRoot(peak=1e-3, warmup_steps=100)
        [float(schedule(step)) for step in (0, 50, 100, 400)]  # [0, 5e-4, 1e-3, 5e-4]

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, equation 3 ("Noam").
    """

    def __init__(self, peak: float, warmup_steps: int = 4000):
        if not peak > 0:
            raise ValueError(f"peak={peak} is not positive.")
        if warmup_steps < 1:
            raise ValueError(f"warmup_steps={warmup_steps}: pass 1 or more.")
        self.peak, self.warmup_steps = peak, warmup_steps

    def __call__(self, step):
        share = ops.cast(step, "float32") / self.warmup_steps
        return self.peak * ops.minimum(share, ops.rsqrt(ops.maximum(share, 1.0)))

    def get_config(self):
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}


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
