"""Optimizers, as the papers and their code define them."""

from typing import Any

import keras
from keras import ops

from keras_lm.tensorflow import tf
from keras_lm.training.schedules import WarmupLinearDecay

NOT_DECAYED = ("bias", "gamma", "beta", "scalars")
HALF = ("float16", "bfloat16")


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
    def learning_rate(self, rate):
        if isinstance(self._learning_rate, WarmupLinearDecay) and not callable(rate):
            self._learning_rate.hold(rate)
        else:
            keras.optimizers.AdamW.learning_rate.fset(self, rate)

    def get_config(self):
        return super().get_config() | {"bias_correction": self.bias_correction}

    # === Gradients of all replicas are summed, then clipped; Keras clips each replica's ===

    def _clip_gradients(self, grads):
        if keras.backend.backend() != "tensorflow":
            return super()._clip_gradients(grads)
        # Dense, because a row that a batch looks up twice counts with the sum of its gradients.
        grads = [None if grad is None else tf.convert_to_tensor(grad) for grad in grads]
        replicas = tf.distribute.get_replica_context()
        if replicas is not None and replicas.num_replicas_in_sync > 1:
            grads = replicas.all_reduce(tf.distribute.ReduceOp.SUM, grads)
        if self.clipnorm or not self.global_clipnorm:
            return super()._clip_gradients(grads)
        # One norm of all: heads are float32 also where the backbone is of half precision.
        grads = [
            tf.cast(grad, tf.float32) if grad is not None and grad.dtype.name in HALF else grad
            for grad in grads
        ]
        return tf.clip_by_global_norm(grads, self.global_clipnorm)[0]

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars  # summed before they were clipped

    # === The same step as Keras's, in few passes over memory ===

    @property
    def _is_fused(self):
        return keras.backend.backend() == "tensorflow" and not self.amsgrad

    def add_variable_from_reference(self, reference_variable, name=None, initializer="zeros"):
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

    def update_step(self, gradient, variable, learning_rate):
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
        if decay:
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
            grad=tf.cast(tf.convert_to_tensor(gradient), dtype),
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
