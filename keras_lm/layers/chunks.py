"""Computing some rows at a time. Shapes: N rows, C of them at once; (B, S) labels, D hidden."""

import keras
from keras import ops

from keras_lm.layers.backend import map_chunks
from keras_lm.layers.masks import IGNORED

NUMBERS_AT_ONCE = 2**24  # logits, 64 MB


def in_chunks(function, variables, most, *tensors):
    """Apply a function that computes each row independently, to C = `most` rows at a time.

    The gradient computes them again, so the values between inputs and outputs are never in memory
    for all rows, at the cost of an additional forward pass.

    Args:
        function: callable of tensors (n, …) that returns (n, …) floats, and keeps no state.
        variables: list of the variables that it reads.
        most: int, C.
        *tensors: (N, …) each, the first of them floats.

    Example:

        dense = keras_lm.layers.Dense(4)
        dense.build((None, 8))
        outputs = in_chunks(dense, dense.variables, 100, np.ones((250, 8), "float32"))  # (250, 4)

    Source: Reformer, https://arxiv.org/abs/2001.04451, section 3, "Chunking".
    """
    number = ops.shape(tensors[0])[0]

    def whole():
        return function(*tensors)

    def chunked():
        size = min(number, most) if isinstance(number, int) else ops.minimum(number, most)
        lacking = -number % size
        parts = []
        for x in tensors:
            x = ops.pad(x, [[0, lacking]] + [[0, 0]] * (len(x.shape) - 1))
            parts.append(ops.reshape(x, (-1, size, *ops.shape(x)[1:])))

        def compute(parts, values):
            with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
                return function(*parts)

        outputs = map_chunks(compute, parts, [variable.value for variable in variables])
        return ops.reshape(outputs, (-1, *ops.shape(outputs)[2:]))[:number]

    if isinstance(number, int):
        return whole() if number <= most else chunked()
    return ops.cond(number <= most, whole, chunked)


def losses_in_chunks(head, x, labels):
    """Return the cross-entropies (B, S) float32 of labels, without the logits of all tokens.

    Args:
        head: layer of a `token_embedding` that reads `{"sequence_output": (1, C, D)}`, each row by
            itself, and returns logits.
        x: (B, S, D) floats.
        labels: (B, S) int. The loss of an `IGNORED` one is 0.
    """

    def losses(x, labels):
        logits = ops.cast(head({"sequence_output": x[None]})[0], "float32")
        return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)

    most = max(NUMBERS_AT_ONCE // head.token_embedding.input_dim, 1)
    known = ops.not_equal(labels, IGNORED)
    rows = ops.reshape(x, (-1, x.shape[-1])), ops.reshape(ops.where(known, labels, 0), (-1,))
    flat_losses = in_chunks(losses, head.variables, most, *rows)
    return ops.where(known, ops.reshape(flat_losses, ops.shape(labels)), 0.0)
