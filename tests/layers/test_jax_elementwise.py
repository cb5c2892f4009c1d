"""Dropout, GELU and the scores of words on JAX, in a process of its own."""

import pytest


@pytest.mark.slow
def test_on_jax(on_jax):
    on_jax()


def check_dropout():
    """As many are dropped as asked for, others by each seed, without a pattern."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from keras_lm.layers.jax_elementwise import dropout

    x = jnp.ones((4, 3, 128, 130), "bfloat16")
    drawn = {}
    for seed in [(0, 0), (0, 1), (1, 0), (1, 1), (7, 123456789), (2**32 - 1, 2**32 - 1)]:
        for rate in (0.1, 0.5):
            y = jax.jit(dropout, static_argnums=1)(x, rate, jnp.asarray(seed, "uint32"))
            y = np.asarray(y, "float32")
            drawn[seed, rate] = is_kept = y != 0
            expected = np.asarray(jnp.bfloat16(1 / (1 - rate)), "float32")
            assert np.all(y[is_kept] == expected)
            spread = 4 * (rate * (1 - rate)) ** 0.5  # of a mean, times the root of the number
            assert abs(is_kept.mean() - (1 - rate)) < spread / is_kept.size**0.5
            for axis in range(4):
                near = np.diff(is_kept.astype(int), axis=axis) == 0
                chance = rate**2 + (1 - rate) ** 2
                assert abs(near.mean() - chance) < 4 * 0.5 / near.size**0.5 + 1e-3, (seed, axis)
    kept = [value.astype("float32") - 0.5 for (_, rate), value in drawn.items() if rate == 0.5]
    for i, one in enumerate(kept):
        for other in kept[:i]:
            assert abs((one * other).mean()) < 4 * 0.25 / one.size**0.5
    gradient = jax.grad(lambda x: dropout(x, 0.5, jnp.asarray((1, 2), "uint32")).sum())(x)
    again = dropout(x, 0.5, jnp.asarray((1, 2), "uint32"))
    assert np.array_equal(np.asarray(gradient != 0), np.asarray(again != 0))


def check_dropout_layer():
    """Each call drops others, the seed repeats them, and gradients are of what was kept."""
    import jax
    import keras
    import numpy as np

    from keras_lm.layers.backend import Dropout

    x = np.ones((50, 60), "float32")
    layer, again = Dropout(0.25, seed=3), Dropout(0.25, seed=3)
    first, second = (np.asarray(layer(x, training=True)) for _ in range(2))
    assert 0.2 < (first == 0).mean() < 0.3 and (first != second).any()
    np.testing.assert_array_equal(first, again(x, training=True))
    np.testing.assert_array_equal(layer(x), x)
    np.testing.assert_array_equal(Dropout(0.0)(x, training=True), x)
    assert not np.asarray(Dropout(1.0)(x, training=True)).any()
    columns = Dropout(0.5, noise_shape=(50, 1))(x, training=True)
    assert set(np.asarray(columns).mean(axis=1)) == {0.0, 2.0}

    state = [(variable, variable.value) for variable in layer.variables]

    def total(x):
        with keras.StatelessScope(state):
            return (dropped := layer(x, training=True)).sum(), dropped

    gradient, dropped = jax.jit(jax.grad(total, has_aux=True))(x)
    np.testing.assert_array_equal(gradient, dropped)


def check_gelu():
    """Values and slopes are those of Keras in float64, and of its own functions by name."""
    import jax
    import keras
    import numpy as np

    from keras_lm.layers import get_activation

    x = np.linspace(-9, 9, 2001)
    for name, approximate in {"gelu": False, "gelu_tanh": True}.items():
        ours = get_activation(name)

        def theirs(x, approximate=approximate):
            return keras.activations.gelu(x, approximate=approximate)

        with jax.enable_x64(True):
            value, slope = theirs(x), jax.vmap(jax.grad(theirs))(x)
        for dtype, atol in {"float32": 4e-6, "bfloat16": 0.01}.items():
            given = jax.numpy.asarray(x, dtype)
            actual = ours(given), jax.vmap(jax.grad(ours))(given)
            for own, expected in zip(actual, (value, slope), strict=True):
                assert own.dtype == dtype
                own = np.asarray(own, "float64")
                np.testing.assert_allclose(own, expected, rtol=atol, atol=atol)


def check_word_scores():
    """Vocabularies that are no multiple of 64 have the same scores, and gradients."""
    import jax
    import keras
    import numpy as np

    from keras_lm.layers.backend import word_scores

    generator = np.random.default_rng(0)
    table = generator.normal(size=(4099, 8)).astype("float32")
    weights = generator.normal(size=4099).astype("float32")
    for shape in ((3, 8), (41, 100, 8)):  # few vectors, and many
        x = generator.normal(size=shape).astype("float32")
        scores = word_scores(x, table)
        np.testing.assert_allclose(scores, x @ table.T, rtol=1e-5, atol=1e-5)
        of_x, of_table = jax.grad(lambda x, t: (word_scores(x, t) * weights).sum(), (0, 1))(
            x, table
        )
        np.testing.assert_allclose(of_x[..., 0], (weights @ table)[0], rtol=2e-4)
        expected = np.outer(weights, x.reshape(-1, 8).sum(0))
        np.testing.assert_allclose(of_table, expected, rtol=1e-3, atol=1e-3)
    scores = word_scores(keras.Input((None, 8)), table)  # of sizes that are not known yet
    assert scores.shape == (None, None, 4099)


if __name__ == "__main__":
    check_dropout()
    check_dropout_layer()
    check_gelu()
    check_word_scores()
