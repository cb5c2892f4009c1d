"""Attention's fused kernel on JAX, in a process of its own.

There is no GPU here, so XLA computes what the kernel is asked for.
"""

import pytest


@pytest.mark.slow
def test_on_jax(on_jax):
    on_jax()


def check_kernel():
    """Outputs and gradients are those of plain attention, whatever the bias."""
    import jax
    import numpy as np

    from keras_lm.layers import SelfAttention, jax_attention
    from keras_lm.layers.attention import AttentionContext, CausalBias, PaddingBias, bias_tensor

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
        (actual, _), _ = layer.stateless_call(weights, others, x, AttentionContext(bias=bias))
        # Not of queries that see nothing, whose average has no meaning.
        sees = 1.0 if bias is None else (bias_tensor(bias).max(axis=(1, 3)) > -1e4)[..., None]
        actual = actual.astype("float32") * sees
        return actual, (actual * positions[0, 0, :, :1]).sum()

    results, seen = [], set()
    for fewest in (0, float("inf")):
        jax_attention.FEWEST_SCORES = fewest
        # One for all, which is traced once for each kind of bias.
        gradient = jax.jit(jax.value_and_grad(lambda *given: run(*given)[::-1], (0, 1), True))
        results.append({})
        for name, bias in contexts.items():
            kind = jax.tree.structure(bias), *(leaf.shape for leaf in jax.tree.leaves(bias))
            before = len(calls)
            (_, output), actual = gradient(weights, x, bias)
            assert (len(calls) > before) == (fewest == 0 and kind not in seen), name
            seen.add(kind)
            results[-1][name] = [output, *jax.tree.leaves(actual)]
    assert len(seen) == 7
    for name, actual in results[0].items():
        for kernel, plain in zip(actual, results[1][name], strict=True):
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
    check_compiled()
    check_kernel()  # the last, as it sets what others would find
