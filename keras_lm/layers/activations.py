"""Activations that Keras lacks."""

import keras


@keras.saving.register_keras_serializable("keras_lm")
def gelu_tanh(x):
    """GELU in the tanh approximation, as google-research's BERT, ALBERT, XLNet and GPT compute it.

    Keras's own `"gelu"` is the exact (erf) form; the two differ by up to 5e-4.

    Args:
        x: tensor of floats.

    Source: https://arxiv.org/abs/1606.08415, section 2.
    """
    return keras.activations.gelu(x, approximate=True)


def get_activation(name):
    """Return the activation called `name`: `"gelu_tanh"`, or any name that Keras knows.

    Args:
        name: str.

    Raises:
        ValueError: if there is no such activation.
    """
    return gelu_tanh if name == "gelu_tanh" else keras.activations.get(name)
