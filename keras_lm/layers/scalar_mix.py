"""A learned weighting of a model's layers."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_lm")
class ScalarMix(keras.layers.Layer):
    """Mix layers as γ · Σ softmax(s)_j · h_j, with s and γ learned.

    At the start s is zero and γ is one: the mean of the layers.

    Args:
        regularization: float. λ: the loss gains λ · Σ s_j²; large values hold the mix at the mean.
        layer_norm: bool. Normalise each layer over its features before mixing.
        **kwargs: `name`, `dtype`, `trainable` of `keras.layers.Layer`.

    Call: `mix(hidden_states)`, a list of (B, S, D); returns (B, S, D).

    Raises:
        ValueError: if `regularization` is negative.

    Example:

        mix = ScalarMix(regularization=0.001)
        mix([np.zeros((2, 7, 64), "float32")] * 3).shape  # (2, 7, 64)

    Source: ELMo, https://arxiv.org/abs/1802.05365, equation 1 and section 3.4 (λ).
    """

    def __init__(self, regularization=0.0, layer_norm=False, **kwargs):
        super().__init__(**kwargs)
        if regularization < 0:
            raise ValueError(f"regularization={regularization} is negative: pass 0 or more.")
        self.regularization = regularization
        self.layer_norm = layer_norm

    def build(self, input_shape):
        self.scalars = self.add_weight(
            name="scalars",
            shape=(len(input_shape),),
            initializer="zeros",
            regularizer=keras.regularizers.L2(self.regularization) if self.regularization else None,
        )
        self.gamma = self.add_weight(name="gamma", shape=(), initializer="ones")

    def call(self, hidden_states):
        if self.layer_norm:
            hidden_states = [ops.layer_normalization(state) for state in hidden_states]
        weights = ops.softmax(ops.cast(self.scalars, "float32"))
        weights = ops.unstack(
            ops.cast(weights * ops.cast(self.gamma, "float32"), self.compute_dtype)
        )
        return sum(w * state for w, state in zip(weights, hidden_states, strict=True))

    def compute_output_shape(self, input_shape):
        return input_shape[0]

    def get_config(self):
        return super().get_config() | {
            "regularization": self.regularization,
            "layer_norm": self.layer_norm,
        }
