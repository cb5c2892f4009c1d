"""LAMB, for large batches."""

from typing import Any

import keras
from keras import ops

from keras_lm.training.optimizers import AdamW


@keras.saving.register_keras_serializable("keras_lm")
class Lamb(AdamW):
    """LAMB: `AdamW` whose update of a weight matrix is as long as the matrix, times the rate.

    The ratio of the two norms, the trust ratio, includes the weight decay. Biases, norms and mixing
    weights are neither decayed nor scaled. Keras's own Lamb scales these too, and leaves the decay
    out of the ratio.

    Args:
        learning_rate: as `AdamW`; the relative length of a step. ALBERT's is 0.00176 for batches of
            4,096.
        bias_correction: bool. The paper has it, ALBERT's code does not.
        Other arguments: as `AdamW`, except `amsgrad`.

    Raises:
        ValueError: if `amsgrad` is set.

    Example:
        task.compile(optimizer=keras_lm.training.Lamb(learning_rate=1e-3))

    Source: You et al. 2019, https://arxiv.org/abs/1904.00962, algorithm 2, with φ(z) = z;
    google-research/albert, `lamb_optimizer.py` (what is not scaled, epsilon, clipping).
    """

    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 1e-3,
        **kwargs: Any,
    ):
        if kwargs.get("amsgrad"):
            raise ValueError("amsgrad=True: LAMB has no such variant. Leave it out.")
        super().__init__(learning_rate, **{"name": "lamb"} | kwargs)

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        momentum, velocity = self._momentums[index], self._velocities[index]
        dtype = momentum.dtype  # float32 also where the weight is of half precision
        gradient, weight = ops.cast(gradient, dtype), ops.cast(variable, dtype)
        self.assign_add(momentum, (gradient - momentum) * (1 - self.beta_1))
        self.assign_add(velocity, (ops.square(gradient) - velocity) * (1 - self.beta_2))
        beta1_power, beta2_power = self._beta_powers(dtype)
        update = momentum / (1 - beta1_power)
        update /= ops.sqrt(velocity / (1 - beta2_power)) + self.epsilon
        trust = 1.0  # also of weights that are all zero
        if self._use_weight_decay(variable):
            update += (self.weight_decay or 0.0) * weight
            weight_norm, update_norm = (ops.sqrt(ops.sum(ops.square(x))) for x in (weight, update))
            known = ops.logical_and(weight_norm > 0, update_norm > 0)
            trust = ops.where(known, ops.divide_no_nan(weight_norm, update_norm), 1.0)
        weight = weight - trust * ops.cast(learning_rate, dtype) * update
        self.assign(variable, ops.cast(weight, variable.dtype))
