"""How far back a recurrent network learns: gradients by step. Shapes: B batch, T steps, D width."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from keras import ops

from keras_lm.tasks.runtime import require_tensorflow
from keras_lm.tensorflow import tf
from keras_lm.utils.argument_types import Tensor


def step_gradient_norms(
    layer: Callable[[Tensor], Tensor], inputs: npt.ArrayLike, seed: int = 0
) -> np.ndarray:
    """Return how much the last state depends on each step's input: (T,) floats.

    It is the length of the gradient of the last state, in a random direction, by the input of each
    step, a mean over rows. If it falls by a factor a step, what lies far back cannot be learned.

    Args:
        layer: a recurrent layer of Keras that returns its last state, such as
            `keras.layers.LSTM(64)`; or a function from (B, T, D) to (B, units).
        inputs: (B, T, D) floats.
        seed: int, of the direction.

    Raises:
        ValueError: if the shapes are others.

    Example:

        import keras

        inputs = np.random.default_rng(0).normal(size=(4, 30, 8)).astype("float32")
        rnn = keras.layers.SimpleRNN(16, recurrent_initializer="glorot_uniform")
        norms = step_gradient_norms(rnn, inputs)
        bool(norms[0] < norms[-1])  # True

    Source: Pascanu et al. 2013, https://arxiv.org/abs/1211.5063, section 2.
    """
    require_tensorflow("step_gradient_norms")
    x = tf.constant(np.asarray(inputs, "float32"))
    if x.shape.rank != 3:
        raise ValueError(f"inputs has the shape {x.shape}: pass (B, T, D).")
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(x)
        last = layer(x)
        if len(last.shape) != 2:
            raise ValueError(
                f"layer returns {tuple(last.shape)}: it must return the last state, (B, units), so "
                "make it with return_sequences=False."
            )
        direction = np.random.default_rng(seed).standard_normal(last.shape[1]).astype("float32")
        along = ops.sum(last * (direction / np.linalg.norm(direction)))
    return np.linalg.norm(tape.gradient(along, x).numpy(), axis=2).mean(axis=0)
