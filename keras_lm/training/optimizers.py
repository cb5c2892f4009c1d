"""Optimizers."""

import keras
import tensorflow as tf

from keras_lm.training.schedules import WarmupLinearDecay

NOT_DECAYED = ("bias", "gamma", "beta", "scalars")


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
        global_clipnorm: float or None. Gradients are clipped to this global norm.
        **kwargs: other arguments of `keras.optimizers.AdamW`.

    Example:
        task.compile(optimizer=keras_lm.training.AdamW(learning_rate=5e-5))

    Source: Loshchilov and Hutter, https://arxiv.org/abs/1711.05101; BERT, section A.2, and
    google-research/bert, `optimization.py` (what is not decayed, epsilon, clipping).
    """

    def __init__(
        self, learning_rate=5e-5, weight_decay=0.01, epsilon=1e-6, global_clipnorm=1.0, **kwargs
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
        self.exclude_from_weight_decay(var_names=list(NOT_DECAYED))

    @property
    def learning_rate(self):
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

    # === The same step, in few passes over memory ===

    @property
    def _is_fused(self):
        return keras.backend.backend() == "tensorflow" and not self.amsgrad

    def _clip_gradients(self, grads):
        if not self._is_fused or self.clipnorm or not self.global_clipnorm:
            return super()._clip_gradients(grads)
        # Dense, because a row that a batch looks up twice counts with the sum of its gradients.
        grads = [None if grad is None else tf.convert_to_tensor(grad) for grad in grads]
        return tf.clip_by_global_norm(grads, self.global_clipnorm)[0]

    def _apply_weight_decay(self, variables):
        if not self._is_fused:  # else it is part of `update_step`
            super()._apply_weight_decay(variables)

    def update_step(self, gradient, variable, learning_rate):
        if not self._is_fused:
            super().update_step(gradient, variable, learning_rate)
            return
        dtype = variable.dtype
        learning_rate = tf.cast(learning_rate, dtype)
        step = tf.cast(keras.ops.convert_to_tensor(self.iterations) + 1, dtype)
        if self.weight_decay and self._use_weight_decay(variable):
            variable.assign(variable * (1.0 - learning_rate * tf.cast(self.weight_decay, dtype)))
        index = self._get_variable_index(variable)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=tf.cast(self.beta_1, dtype) ** step,
            beta2_power=tf.cast(self.beta_2, dtype) ** step,
            lr=learning_rate,
            beta1=tf.cast(self.beta_1, dtype),
            beta2=tf.cast(self.beta_2, dtype),
            epsilon=tf.cast(self.epsilon, dtype),
            grad=tf.cast(tf.convert_to_tensor(gradient), dtype),
        )
