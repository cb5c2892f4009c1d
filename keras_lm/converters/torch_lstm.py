"""The weights of `torch.nn.LSTM`, which have the same names in all checkpoints.

PyTorch keeps two biases, of which only the sum counts: `join_torch_lstm` adds them.
"""

import numpy as np

from keras_lm.converters.names import transpose_kernels


def torch_lstm(ours, theirs, layer="l0"):
    """Return the entries of a `NameTable` for one direction of one layer.

    `ours` is the path of our `LSTM`, `theirs` the prefix of their names with the final dot, and
    `layer` their suffix: `"l0"` for the first layer, `"l0_reverse"` backwards.

    Example:
        names = torch_lstm("lstm_0", "rnn.") | torch_lstm("lstm_1", "rnn.", "l1")
        NameTable(names, {}, layout=transpose_torch_lstm, join=join_torch_lstm)
    """
    return {
        f"{ours}/kernel": f"{theirs}weight_ih_{layer}",
        f"{ours}/recurrent_kernel": f"{theirs}weight_hh_{layer}",
        f"{ours}/bias": (f"{theirs}bias_ih_{layer}", f"{theirs}bias_hh_{layer}"),
    }


def transpose_torch_lstm(path, array):
    """The layout of PyTorch's LSTM, and of its `Linear`: kernels are stored (out, in)."""
    return array.T if path.endswith("/recurrent_kernel") else transpose_kernels(path, array)


def join_torch_lstm(path, arrays):
    """Add the two biases of an LSTM; whatever else comes in parts is joined on the last axis."""
    if path.endswith("/bias"):
        return np.sum(arrays, axis=0, dtype="float32")  # as they may be float16, in which it rounds
    return np.concatenate(arrays, axis=-1)
