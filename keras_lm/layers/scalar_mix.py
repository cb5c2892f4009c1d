"""A learned weighting of a model's layers."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_lm.layers.backend import softmax
from keras_lm.utils.argument_types import Shape, Tensor


@keras.saving.register_keras_serializable("keras_lm")
class ScalarMix(keras.layers.Layer):
    """Mixes layers as γ · Σ softmax(s)_j · h_j, with learned s and γ.

    Initially s is zero and γ is one, which is the mean of the layers.

    Args:
        regularization: float λ, 0 or more. Adds λ · Σ s_j² to the loss; large values keep the mix
            near the mean.
        layer_norm: bool. Normalise each layer before mixing, over all features of all real tokens
            of the batch, as ELMo's code does. A text's mix then depends on the rest of the batch.

    Call: `mix(hidden_states, padding_mask=None)`, a list of (B, S, D) and a mask (B, S), 1 = real,
    which only `layer_norm` needs; returns (B, S, D).

    Raises:
        ValueError: if `regularization` is negative.

    Example:

        mix = ScalarMix(regularization=0.001)
        mix([np.zeros((2, 7, 64), "float32")] * 3).shape  # (2, 7, 64)

    Source: ELMo, https://arxiv.org/abs/1802.05365, equation 1 and section 3.4 (λ); for the
    normalisation allenai/bilm-tf, `weight_layers`, and AllenNLP's `ScalarMix`.
    """

    def __init__(self, regularization: float = 0.0, layer_norm: bool = False, **kwargs: Any):
        super().__init__(**kwargs)
        if regularization < 0:
            raise ValueError(f"regularization={regularization}: pass 0 or more.")
        self.regularization = regularization
        self.layer_norm = layer_norm

    def build(
        self, hidden_states_shape: Sequence[Shape], padding_mask_shape: Shape | None = None
    ) -> None:
        self.scalars: keras.Variable = self.add_weight(
            name="scalars",
            shape=(len(hidden_states_shape),),
            initializer="zeros",
            regularizer=keras.regularizers.L2(self.regularization) if self.regularization else None,
        )
        self.gamma: keras.Variable = self.add_weight(name="gamma", shape=(), initializer="ones")

    def call(self, hidden_states: Sequence[Tensor], padding_mask: Tensor | None = None) -> Tensor:
        if self.layer_norm:
            hidden_states = [_normalize(state, padding_mask) for state in hidden_states]
        weights = softmax(ops.cast(self.scalars, "float32"))
        weights = ops.unstack(
            ops.cast(weights * ops.cast(self.gamma, "float32"), self.compute_dtype)
        )
        return sum(w * state for w, state in zip(weights, hidden_states, strict=True))

    def compute_output_shape(
        self, hidden_states_shape: Sequence[Shape], padding_mask_shape: Shape | None = None
    ) -> Shape:
        return hidden_states_shape[0]

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {
            "regularization": self.regularization,
            "layer_norm": self.layer_norm,
        }


def _normalize(x, padding_mask):
    """Normalise the features of all real tokens together to mean 0 and variance 1."""
    dtype, x = x.dtype, ops.cast(x, "float32")
    if padding_mask is None:
        padding_mask = ops.ones_like(x[:, :, 0])
    mask = ops.expand_dims(ops.cast(padding_mask, "float32"), -1)  # (B, S, 1)
    count = ops.maximum(ops.sum(mask) * x.shape[-1], 1.0)
    mean = ops.sum(x * mask) / count
    variance = ops.sum(ops.square((x - mean) * mask)) / count
    return ops.cast((x - mean) * ops.rsqrt(variance + 1e-12), dtype)
