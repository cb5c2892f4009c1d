"""What layers need of JAX: seeds, and a gradient of its own."""

import functools

import jax


def draw_seed(generator):
    """Return the next seed of a `keras.random.SeedGenerator`."""
    return generator.next()


def split_seed(seed, number):
    """Return as many seeds from one, (number, 2)."""
    return jax.random.split(seed, number)


def map_chunks(function, tensors, weights):
    """See `keras_lm.layers.tensorflow.recomputation.map_chunks`."""
    compute = jax.checkpoint(function)
    return jax.lax.map(lambda parts: compute(parts, weights), tensors)


def reversible(functions, x, y, weights, given):
    """See `keras_lm.layers.tensorflow.recomputation.reversible`."""

    def compute(x, y, weights, given):
        for function, own, other in zip(functions, weights, given, strict=True):
            x, y = y, x + function(y, own, other)
        return x, y

    def forward(x, y, weights, given):
        outputs = compute(x, y, weights, given)
        return outputs, (outputs, weights, given)

    def backward(kept, upstream):
        ((x, y), weights, given), (of_x, of_y) = kept, upstream
        found = []
        for function, own, other in reversed([*zip(functions, weights, given, strict=True)]):
            # Not before the gradient is there, and not merged with what was computed before.
            x, of_y = jax.lax.optimization_barrier((x, of_y))
            added, pull = jax.vjp(functools.partial(_call, function, other), x, own)
            of_stream, of_weights = pull(of_y)
            x, y = y - added, x
            of_x, of_y = of_y, of_x + of_stream
            found.append(of_weights)
        return of_x, of_y, found[::-1], None

    run = jax.custom_vjp(compute)
    run.defvjp(forward, backward)
    return run(x, y, weights, given)


def _call(function, given, stream, weights):
    return function(stream, weights, given)
