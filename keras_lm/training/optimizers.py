"""Optimizers."""

import keras

from keras_lm.training.schedules import WarmupLinearDecay

NOT_DECAYED = ("bias", "gamma", "beta", "scalars")


@keras.saving.register_keras_serializable("keras_lm")
class AdamW(keras.optimizers.AdamW):
    """AdamW as BERT is fine-tuned: no decay of biases and norms, warm-up and linear decay.

    Args:
        learning_rate: float, the peak of a `WarmupLinearDecay` whose length `fit` fills in; or a
            schedule of Keras.
        weight_decay: float. Not applied to biases, norm scales and offsets, and mixing weights.
        epsilon: float.
        global_clipnorm: float or None. Gradients are scaled down to this norm, all together.
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
