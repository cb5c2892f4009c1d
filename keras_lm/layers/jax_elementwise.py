"""What JAX's own functions compute slowly on a GPU, between the products: dropout and GELU."""

import functools
import math

import jax
import jax.numpy as jnp
import keras


class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` by `dropout`: with Keras's own, random numbers take half of its time.

    Args:
        rate: float. Fraction of the inputs to drop in training.
    """

    def call(self, inputs, training=False):
        if not training or not self.rate or self.noise_shape is not None:
            return super().call(inputs, training=training)
        return dropout(inputs, self.rate, self.seed_generator.next())


def dropout(x, rate, seed):
    """Return `x` with a fraction `rate` dropped; the seed decides which.

    An element is dropped by a hash of its index and the seed, which XLA computes along with what
    is done to it, forwards and backwards, instead of keeping random numbers.

    Args:
        x: tensor.
        rate: float.
        seed: (2,) uint32.

    Source: the hash is Wang and Wellons's "lowbias32", https://github.com/skeeto/hash-prospector.
    """
    if rate == 1:  # the threshold would overflow, and the scale would be infinite
        return jnp.zeros_like(x)
    index = jnp.zeros(x.shape, "uint32")
    for axis in range(x.ndim):
        stride = math.prod(x.shape[axis + 1 :]) % 2**32
        index += jax.lax.broadcasted_iota("uint32", x.shape, axis) * jnp.uint32(stride)
    first, second = jnp.asarray(seed).astype("uint32")
    bits = _hash(_hash(index ^ first) ^ second)
    is_kept = bits >= jnp.uint32(round(rate * 2**32))
    return jnp.where(is_kept, x / (1 - rate), 0).astype(x.dtype)


def _hash(x):
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def gelu(x, approximate=False):
    """As `keras.activations.gelu`, computed in float32 or wider.

    JAX's form takes the complement of the error function, with two divisions and an exponential,
    and writes the derivative beside the result; here the gradient is computed from `x`.

    Args:
        x: tensor of floats.
        approximate: bool. Whether to take the form with tanh.

    Source: https://arxiv.org/abs/1606.08415, section 2.
    """
    return _gelu(jnp.asarray(x), approximate)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _gelu(x, approximate):
    return _gelu_and_slope(x, approximate)[0]


def _forward(x, approximate):
    return _gelu(x, approximate), x


def _backward(approximate, x, upstream):
    return ((upstream * _gelu_and_slope(x, approximate)[1]).astype(x.dtype),)


_gelu.defvjp(_forward, _backward)


def _gelu_and_slope(x, approximate):
    """Return GELU of `x`, of its dtype, and the slope, float32 or wider."""
    dtype, x = x.dtype, x.astype(jnp.promote_types(x.dtype, "float32"))
    if approximate:
        scale = math.sqrt(2 / math.pi)
        tanh = jnp.tanh(scale * (x + 0.044715 * x**3))
        below = (1 + tanh) / 2
        density = (1 - tanh**2) / 2 * scale * (1 + 3 * 0.044715 * x**2)
    else:
        below = (1 + jax.lax.erf(x * math.sqrt(0.5))) / 2
        density = jnp.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return (x * below).astype(dtype), below + x * density


def draw_seed(generator):
    """Return the next seed of a `keras.random.SeedGenerator`."""
    return generator.next()


def split_seed(seed, number):
    """Return as many seeds from one, (number, 2)."""
    return jax.random.split(seed, number)


def map_chunks(function, tensors, weights):
    """See `keras_lm.layers.tensorflow.map_chunks`."""
    compute = jax.checkpoint(function)
    return jax.lax.map(lambda parts: compute(parts, weights), tensors)


def reversible(functions, x, y, weights, given):
    """See `keras_lm.layers.tensorflow.reversible`."""

    def compute(x, y, weights, given):
        for function, own, other in zip(functions, weights, given, strict=True):
            x, y = y, x + function(y, own, other)
        return x, y

    def forward(x, y, weights, given):
        outputs = compute(x, y, weights, given)
        return outputs, (outputs, weights, given)

    def backward(kept, upstream):
        ((x, y), weights, given), (of_x, of_y) = kept, upstream
        gradients = []
        for function, own, other in reversed([*zip(functions, weights, given, strict=True)]):
            # Not before the gradient is there, and not merged with what was computed before.
            x, of_y = jax.lax.optimization_barrier((x, of_y))
            added, pull = jax.vjp(functools.partial(_call, function, other), x, own)
            of_stream, of_weights = pull(of_y)
            x, y = y - added, x
            of_x, of_y = of_y, of_x + of_stream
            gradients.append(of_weights)
        return of_x, of_y, gradients[::-1], None

    run = jax.custom_vjp(compute)
    run.defvjp(forward, backward)
    return run(x, y, weights, given)


def _call(function, given, stream, weights):
    return function(stream, weights, given)
