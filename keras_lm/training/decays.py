"""Learning-rate schedules of another shape than `WarmupLinearDecay`, the default."""

from typing import Any

import keras
from keras import ops

from keras_lm.training.optimizers import WarmupLinearDecay
from keras_lm.utils.argument_types import Tensor


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

    def decayed(self, left: Tensor) -> Tensor:
        end = self.end / self.peak
        return end + (1.0 - end) * left**self.power

    def get_config(self) -> dict[str, Any]:
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

    def planned_rate(self, step: Any) -> Tensor:
        share = super().planned_rate(step) / self.peak
        return self.peak * (1.0 + share * (self.ratio - 1.0)) / self.ratio

    def get_config(self) -> dict[str, Any]:
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

    def __call__(self, step: Any) -> Tensor:
        share = ops.cast(step, "float32") / self.warmup_steps
        return self.peak * ops.minimum(share, ops.rsqrt(ops.maximum(share, 1.0)))

    def get_config(self) -> dict[str, Any]:
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}
