"""Attention's fused kernel and dropout on JAX, in a process of its own.

There is no GPU here, so XLA computes what the kernel is asked for.
"""

import importlib.util
import os
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax"),
]


def test_on_jax():
    done = subprocess.run(
        [sys.executable, __file__],
        env=os.environ | {"KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def check_kernel():
    """Outputs and gradients are those of plain attention, whatever the bias."""
    import jax
    import numpy as np

    from keras_lm.layers import SelfAttention, jax_attention
    from keras_lm.layers.attention import AttentionContext
    from keras_lm.layers.cache import CausalBias
    from keras_lm.layers.masks import PaddingBias, as_tensor

    calls = []
    real = jax.nn.dot_product_attention

    def counted(*arguments, **options):
        calls.append(sorted(options))
        return real(*arguments, **options)

    jax.nn.dot_product_attention = counted
    jax_attention.KERNEL, jax_attention.FEWEST_SCORES = "xla", 0
    jax_attention.has_fused_kernel = lambda: True
    generator = np.random.default_rng(0)
    batch, length = 3, 8
    layer = SelfAttention(num_heads=2, dtype="bfloat16")
    x = generator.normal(size=(batch, length, 16)).astype("float32")
    layer(x)
    weights = [variable.value for variable in layer.trainable_variables]
    others = [variable.value for variable in layer.non_trainable_variables]

    right = np.arange(length) < [[8], [5], [1]]
    left = right[:, ::-1]
    holes = generator.random((batch, length)) < 0.6
    none = right & [[True], [True], [False]]
    masks = {"right": right, "left": left, "holes": holes, "one row of padding": none}
    positions = generator.normal(size=(1, 2, length, length)).astype("float32")
    contexts = {"no bias": None, "positions": positions}
    for name, mask in masks.items():
        mask = mask.astype("int32")
        contexts[name] = PaddingBias()(mask)
        contexts[f"{name}, positions"] = PaddingBias()(mask) + positions
        contexts[f"{name}, causal"] = CausalBias().visible(mask)
        contexts[f"{name}, window"] = CausalBias(window=3).visible(mask)
        slots = np.tile(np.arange(length)[::-1], (batch, 1)).astype("int32")
        contexts[f"{name}, other slots"] = CausalBias().visible(mask, slots)

    def run(weights, x, bias):
        (found, _), _ = layer.stateless_call(weights, others, x, AttentionContext(bias=bias))
        # Not of queries that see nothing, whose average has no meaning.
        sees = 1.0 if bias is None else (as_tensor(bias).max(axis=(1, 3)) > -1e4)[..., None]
        found = found.astype("float32") * sees
        return found, (found * positions[0, 0, :, :1]).sum()

    results, seen = [], set()
    for fewest in (0, float("inf")):
        jax_attention.FEWEST_SCORES = fewest
        # One for all, which is traced once for each kind of bias.
        gradient = jax.jit(jax.value_and_grad(lambda *given: run(*given)[::-1], (0, 1), True))
        results.append({})
        for name, bias in contexts.items():
            kind = jax.tree.structure(bias), *(leaf.shape for leaf in jax.tree.leaves(bias))
            before = len(calls)
            (_, output), found = gradient(weights, x, bias)
            assert (len(calls) > before) == (fewest == 0 and kind not in seen), name
            seen.add(kind)
            results[-1][name] = [output, *jax.tree.leaves(found)]
    assert len(seen) == 7
    for name, found in results[0].items():
        for kernel, plain in zip(found, results[1][name], strict=True):
            # A bias is rounded to bfloat16.
            np.testing.assert_allclose(
                *(np.asarray(y, "float32") for y in (kernel, plain)),
                rtol=0.05,
                atol=0.05 * float(abs(np.asarray(plain, "float32")).max()),
                err_msg=name,
            )
    assert ["implementation", "is_causal", "key_value_seq_lengths", "scale"] in calls

    jax_attention.FEWEST_SCORES = 0
    before = len(calls)
    SelfAttention(num_heads=2, dtype="float32")(x)
    SelfAttention(num_heads=4, dtype="bfloat16")(x)  # heads of 4 are too narrow
    layer(x[:, :7])  # an odd length
    SelfAttention(num_heads=2, dropout=0.5, dtype="bfloat16")(x, training=True)
    assert len(calls) == before


def check_dropout():
    """As many are dropped as asked for, others by each seed, without a pattern."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from keras_lm.layers.jax_attention import dropout

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


def check_compiled():
    """A step is compiled as a whole unless asked otherwise, also by a file of TensorFlow's."""
    from keras_lm import models, tasks

    backbone = models.BertBackbone(20, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=8)
    task = tasks.TextClassifier(backbone, num_classes=2)
    assert task.jit_compile is True
    config = task.get_compile_config()
    assert "jit_compile" not in config
    task.compile(jit_compile=False)
    assert task.jit_compile is False
    task.compile_by(config | {"jit_compile": False})
    assert task.jit_compile is True


if __name__ == "__main__":
    check_dropout()
    check_compiled()
    check_kernel()  # the last, as it sets what others would find
