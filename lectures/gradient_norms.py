"""How much the last state of a recurrent network depends on each step: RNN, LSTM, GRU."""

CLAIM = (
    "Gradients of an RNN vanish or explode with the number of steps, as a product of one factor a "
    "step; an LSTM's gates let them pass."
)
PUBLISHED = "no figure: «in practice, they seem to suffer much less»"
SOURCE = (
    "Hochreiter and Schmidhuber 1997, https://doi.org/10.1162/neco.1997.9.8.1735; Pascanu et al. "
    "2013, https://arxiv.org/abs/1211.5063, section 2"
)
NEEDS = ()
FOUND = (
    "Over 100 steps the RNN's gradient falls to 6e-6 with orthogonal weights × 0.9, to 0.018 with "
    "× 1, and grows 3,755 times with × 1.5. With its usual initial weights an LSTM is no better: "
    "1e-7, and a GRU 1e-21, as their gates let through 0.73 and half a step. Only with an open "
    "forget gate (a bias of 3) half or more is left after 50 steps; after 100 it has grown 39 "
    "times."
)
SHOWS = (
    "What initial weights let pass, on random inputs: that a gate can hold gradients, not that it "
    "does. Training changes them, but begins here."
)

STEPS = (0, 1, 5, 10, 25, 50, 100)


def run(quick=False):
    """Return a row for each distance from the last step, and a column for each layer; one seed."""
    import keras
    import numpy as np

    from keras_lm import analysis

    keras.utils.set_random_seed(0)
    layers, orthogonal = keras.layers, keras.initializers.Orthogonal
    networks = {
        "RNN, orthogonal × 0.9": layers.SimpleRNN(64, recurrent_initializer=orthogonal(0.9)),
        "RNN, orthogonal": layers.SimpleRNN(64, recurrent_initializer=orthogonal()),
        "RNN, orthogonal × 1.5": layers.SimpleRNN(64, recurrent_initializer=orthogonal(1.5)),
        "GRU": layers.GRU(64),
        "LSTM": layers.LSTM(64),
        "LSTM, forget bias 3": layers.LSTM(
            64, bias_initializer=_forgets_little, unit_forget_bias=False
        ),
    }
    # Small inputs, so that a tanh is nearly a line, as its network's weights alone decide.
    steps = STEPS[:4] if quick else STEPS
    inputs = 0.1 * np.random.default_rng(0).standard_normal((32, steps[-1] + 1, 16))
    norms = {name: analysis.step_gradient_norms(net, inputs) for name, net in networks.items()}
    return [
        {"steps back": back}
        | {name: float(norm[-1 - back] / norm[-1]) for name, norm in norms.items()}
        for back in steps
    ]


def _forgets_little(shape, dtype=None):
    """Return an LSTM's biases (4 · units,) of its input, forget, cell and output gates."""
    import numpy as np

    return np.repeat([0.0, 3.0, 0.0, 0.0], shape[0] // 4).astype("float32")
