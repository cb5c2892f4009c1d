"""AdamW and the schedule of its rate, as the papers and their code define them."""

from typing import Any

import keras
from keras import ops

from keras_lm.tensorflow import tf
from keras_lm.utils.argument_types import Tensor
from keras_lm.utils.processes import zeros
from keras_lm.utils.user_arguments import checks_flags

NOT_DECAYED = ("bias", "gamma", "beta", "scalars")
HALF = ("float16", "bfloat16")


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
        ValueError: if `warmup` is not in [0, 1), `total_steps` is not positive, or `peak` is
            not a finite number above 0.

    Example:
        schedule = WarmupLinearDecay(peak=1e-4, total_steps=100)
        [float(schedule(step)) for step in (0, 10, 55, 100)]  # [0, 1e-4, 5e-5, 0]

    Source: google-research/bert, `optimization.py`; BERT, section A.2.
    """

    def __init__(
        self, peak: float, total_steps: int | None = None, warmup: float = 0.1, start: int = 0
    ):
        if not 0 < peak < float("inf"):
            raise ValueError(f"peak={peak}: pass a finite number above 0.")
        if total_steps is not None and total_steps < 1:
            raise ValueError(f"total_steps={total_steps}: pass 1 or more, or None.")
        if not 0 <= warmup < 1:
            raise ValueError(f"warmup={warmup} is a fraction of the steps: pass 0 <= warmup < 1.")
        self.peak = peak
        self.warmup = warmup
        self.is_planned_by_fit: bool = total_steps is None
        self.skipped = 0  # steps of a continued run that changed nothing: gradients overflowed
        # Start, steps rising, all steps (0 if unknown): a variable, so that each call of `fit` can
        # use the graph of the first.
        self._numbers = keras.Variable([0.0, 0.0, 0.0], dtype="float32", trainable=False)
        self._held = keras.Variable(-1.0, dtype="float32", trainable=False)  # negative: not held
        self._set(start, total_steps)

    @property
    def variables(self) -> list[keras.Variable]:
        return [self._numbers, self._held]

    def _set(self, start: int, total_steps: int | None):
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

    def __call__(self, step: Any) -> Tensor:
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

    def get_config(self) -> dict[str, Any]:
        return {
            "peak": self.peak,
            "total_steps": None if self.is_planned_by_fit else self.total_steps,
            "warmup": self.warmup,
            "start": 0 if self.is_planned_by_fit else self.start,
        }


def plan_schedule(model, start, total_steps):
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


@keras.saving.register_keras_serializable("keras_lm")
class AdamW(keras.optimizers.AdamW):
    """AdamW as in BERT's fine-tuning: no decay of biases and norms, warm-up and linear decay.

    On TensorFlow a step is one fused kernel per variable, where Keras's own takes a dozen passes
    over weights, moments and gradients. The arithmetic is the same, except for a row of an
    embedding that a batch looks up several times: its gradients are summed before they are squared
    and clipped, as the algorithm says; Keras squares them one by one.

    Args:
        learning_rate: float, the peak of a `WarmupLinearDecay` whose length `fit` fills in; or a
            schedule of Keras.
        weight_decay: float. Not applied to biases, norm scales and offsets, and mixing weights.
        epsilon: float.
        global_clipnorm: float or None. Gradients are clipped to this global norm, those of all
            replicas together.
        bias_correction: bool. Without it, moments are taken as they are, though they start at zero:
            the code of BERT and ELECTRA. Short runs are less stable then,
            https://arxiv.org/abs/2006.04884.
        **kwargs: other arguments of `keras.optimizers.AdamW`.

    Raises:
        ValueError: for `amsgrad` without `bias_correction`, or as Keras does.

    Example:
        task.compile(optimizer=keras_lm.training.AdamW(learning_rate=5e-5))

    Source: Loshchilov and Hutter, https://arxiv.org/abs/1711.05101; BERT, section A.2, and
    google-research/bert, `optimization.py` (what is not decayed, epsilon, clipping).
    """

    @checks_flags
    def __init__(
        self,
        learning_rate: float | keras.optimizers.schedules.LearningRateSchedule = 5e-5,
        weight_decay: float = 0.01,
        epsilon: float = 1e-6,
        global_clipnorm: float | None = 1.0,
        bias_correction: bool = True,
        **kwargs: Any,
    ):
        if isinstance(learning_rate, (int, float)):
            learning_rate = WarmupLinearDecay(learning_rate)
        kwargs = {"name": "adamw"} | kwargs
        super().__init__(
            learning_rate,
            weight_decay=weight_decay,
            epsilon=epsilon,
            global_clipnorm=global_clipnorm,
            **kwargs,
        )
        if not bias_correction and self.amsgrad:
            raise ValueError(
                "amsgrad=True is not defined for bias_correction=False: leave one out."
            )
        self.bias_correction = bias_correction
        self.exclude_from_weight_decay(var_names=list(NOT_DECAYED))

    @property
    def learning_rate(self) -> Any:
        """The rate of the next step.

        A number that is set, as by Keras's `LearningRateScheduler` and `ReduceLROnPlateau`, takes
        the place of the schedule until the task is compiled again.
        """
        return keras.optimizers.AdamW.learning_rate.fget(self)

    @learning_rate.setter
    def learning_rate(self, rate: Any) -> None:
        if isinstance(self._learning_rate, WarmupLinearDecay) and not callable(rate):
            self._learning_rate.hold(rate)
        else:
            keras.optimizers.AdamW.learning_rate.fset(self, rate)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"bias_correction": self.bias_correction}

    # === Gradients of all replicas are summed, then clipped; Keras clips each replica's ===

    def _clip_gradients(self, grads):
        if keras.backend.backend() != "tensorflow":
            return super()._clip_gradients(grads)
        # A row that a batch looks up twice counts with the sum of its gradients.
        replicas = tf.distribute.get_replica_context()
        is_alone = replicas is not None and replicas.num_replicas_in_sync == 1
        is_global = self.global_clipnorm and not self.clipnorm
        summed = with_distinct_rows if is_alone and is_global else tf.convert_to_tensor
        grads = [None if grad is None else summed(grad) for grad in grads]
        if replicas is not None and not is_alone:
            grads = replicas.all_reduce(tf.distribute.ReduceOp.SUM, grads)
        if not is_global:
            return super()._clip_gradients(grads)
        # One norm of all: heads are float32 also where the backbone is of half precision.
        grads = [
            tf.cast(grad, tf.float32) if grad is not None and grad.dtype.name in HALF else grad
            for grad in grads
        ]
        grads = tf.clip_by_global_norm(grads, self.global_clipnorm)[0]
        # Dense, because the moments of all rows change.
        return [None if grad is None else tf.convert_to_tensor(grad) for grad in grads]

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars  # summed before they were clipped

    # === The same step as Keras's, in few passes over memory ===

    @property
    def _is_fused(self):
        return keras.backend.backend() == "tensorflow" and not self.amsgrad

    def add_variable_from_reference(
        self,
        reference_variable: keras.Variable,
        name: str | None = None,
        initializer: str = "zeros",
    ) -> keras.Variable:
        if initializer == "zeros":
            initializer = zeros  # which take no memory before the first step
        if reference_variable.dtype not in HALF:
            return super().add_variable_from_reference(reference_variable, name, initializer)
        # Moments in half precision would not change: 0.999 is 1 there.
        return self.add_variable(
            shape=reference_variable.shape,
            initializer=initializer,
            dtype="float32",
            name=f"{reference_variable.path.replace('/', '_')}_{name or 'var'}",
            layout=getattr(reference_variable, "_layout", None),
        )

    def _apply_weight_decay(self, variables):
        if not self._is_fused:  # else it is part of `update_step`
            super()._apply_weight_decay(variables)

    def _beta_powers(self, dtype):
        """Return the betas to the power of the step; zeros correct nothing."""
        if not self.bias_correction:
            return ops.zeros((), dtype), ops.zeros((), dtype)
        step = ops.cast(ops.convert_to_tensor(self.iterations) + 1, dtype)
        return ops.cast(self.beta_1, dtype) ** step, ops.cast(self.beta_2, dtype) ** step

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
        if not self._is_fused:
            super().update_step(gradient, variable, learning_rate)
            return
        dtype = variable.dtype
        index = self._get_variable_index(variable)
        decay = self.weight_decay if self._use_weight_decay(variable) else None
        if dtype in HALF:
            self._update_in_float32(gradient, variable, learning_rate, index, decay or 0.0)
            return
        learning_rate = tf.cast(learning_rate, dtype)
        gradient = tf.cast(tf.convert_to_tensor(gradient), dtype)
        if decay:
            # Not earlier: a step would hold all weights twice while it still reads the old ones.
            with tf.control_dependencies([gradient]):
                variable.assign(variable * (1.0 - learning_rate * tf.cast(decay, dtype)))
        beta1_power, beta2_power = self._beta_powers(dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=beta1_power,
            beta2_power=beta2_power,
            lr=learning_rate,
            beta1=tf.cast(self.beta_1, dtype),
            beta2=tf.cast(self.beta_2, dtype),
            epsilon=tf.cast(self.epsilon, dtype),
            grad=gradient,
        )

    def _update_in_float32(self, gradient, variable, learning_rate, index, decay):
        """The same for a weight of half precision, whose moments are float32."""
        gradient, rate = tf.cast(gradient, tf.float32), tf.cast(learning_rate, tf.float32)
        momentum, velocity = self._momentums[index], self._velocities[index]
        self.assign_add(momentum, (gradient - momentum) * (1 - self.beta_1))
        self.assign_add(velocity, (tf.square(gradient) - velocity) * (1 - self.beta_2))
        beta1_power, beta2_power = self._beta_powers("float32")
        rate_of_step = rate * tf.sqrt(1 - beta2_power) / (1 - beta1_power)
        weight = ops.cast(variable, "float32") * (1.0 - rate * decay)
        weight -= rate_of_step * momentum / (ops.sqrt(velocity) + self.epsilon)
        self.assign(variable, ops.cast(weight, variable.dtype))


def with_distinct_rows(gradient):
    """Return a gradient; that of an embedding with each row once, as the sum of what it has for it.

    It stays as small as the batch: a whole table would be read and written to clip it.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def check_rate(optimizer: Any) -> None:
    """Raise a ValueError if the learning rate of an optimizer is negative, infinite or NaN."""
    # (Asked for `learning_rate`, an optimizer with a schedule computes that of the next step.)
    rate = getattr(getattr(optimizer, "inner_optimizer", optimizer), "_learning_rate", None)
    if isinstance(rate, keras.Variable) and not 0 <= float(rate.numpy()) < float("inf"):
        raise ValueError(
            f"learning_rate={float(rate.numpy()):g}: pass a finite number, such as 5e-5, or a "
            "schedule."
        )


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

    def update_step(
        self, gradient: Tensor, variable: keras.Variable, learning_rate: Tensor
    ) -> None:
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
