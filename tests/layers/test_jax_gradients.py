"""Reversible layers on JAX: what a gradient keeps does not grow with their number."""

import numpy as np
import pytest

ROWS, WIDTH = 4096, 16


@pytest.mark.slow
def test_memory_does_not_grow_with_depth():
    """XLA's own account of what the compiled gradient needs beside arguments and answers.

    (What is drawn for dropout it does keep.)
    """
    jax = pytest.importorskip("jax")
    from keras_lm.layers.jax_elementwise import reversible

    def function(stream, weights, given):
        return jax.numpy.tanh(stream @ weights[0])

    def plain(functions, x, y, weights, given):
        for half, own, other in zip(functions, weights, given, strict=True):
            x, y = y, x + half(y, own, other)
        return x, y

    def compiled(run, depth):
        def loss(weights, x):
            return sum((part**3).sum() for part in run(functions, x, x, weights, given))

        functions, given = [function] * depth, [()] * depth
        weights = [[np.eye(WIDTH, dtype="float32") * (i + 1)] for i in range(depth)]
        x = np.ones((ROWS, WIDTH), "float32")
        return jax.jit(jax.grad(loss)).lower(weights, x).compile().memory_analysis()

    def kept(run):
        streams = ROWS * WIDTH * 4
        return [compiled(run, depth).temp_size_in_bytes / streams for depth in (4, 8, 16)]

    few, more, most = kept(reversible)
    assert most < few + 1, (few, more, most)
    few, more, most = kept(plain)
    assert most > few + 8, (few, more, most)
