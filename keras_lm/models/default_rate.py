"""The learning rate that suits a model: by its width, and by whether its weights are random."""

import numpy as np

# At 768 units, and the power of the width by which it falls, and the most. BERT, section A.3.
FINE_TUNING, POWER, MOST = 5e-5, 2.0, 3e-4
MOST_OF_RANDOM = 1e-3


def default_rate(backbone):
    """Return the peak learning rate of a task over a backbone that is compiled with its defaults.

    See `docs/training.md` for what was measured.
    """
    width = 768 / backbone.config.get("hidden_dim", 768)
    if has_random_weights(backbone):
        rate, power = backbone.SCRATCH_RATE
        return min(rate * width**power, MOST_OF_RANDOM)
    return min(FINE_TUNING * width**POWER, MOST)


def has_random_weights(model):
    """Whether weights are still those that a model was made with.

    Norms and biases begin as ones and zeros, and neither a checkpoint nor training leaves them so.
    """
    vectors = (weight for weight in model.weights if len(weight.shape) == 1)
    return all(np.isin(vector.numpy().astype(float), (0, 1)).all() for vector in vectors)
