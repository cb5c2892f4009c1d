"""What makes a layer causal: its bias, its memory of earlier tokens, its blocks and its heads."""

from functools import partial

import keras
import numpy as np
import pytest

from keras_lm.layers import (
    AttentionContext,
    CausalBias,
    CausalLMHead,
    CausalPostNormBlock,
    CausalPreNormBlock,
    CausalSelfAttention,
    LastTokenClassifier,
    PositionEmbedding,
    PostNormBlock,
    PreNormBlock,
    SelfAttention,
)
from keras_lm.layers.basic import last_real_token
from keras_lm.layers.tensorflow import write_slots

BLOCK = {
    "num_heads": 2,
    "intermediate_dim": 10,
    "dropout": 0.2,
    "attention_dropout": 0.3,
    "activation": "gelu_tanh",
    "layer_norm_epsilon": 0.1,
    "output_stddev": 0.01,
}


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def randomised(layer, shape=(None, None, 6)):
    layer.build(shape)
    rng = np.random.default_rng(1)
    for weight in layer.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.3))
    return layer


def indices(rows, heads, slots):
    """Return (B·N·S, 3): row, head and slot of each new token; `slots` is (B, S)."""
    results = [
        [[[row, head, slot] for slot in slots[row]] for head in range(heads)] for row in range(rows)
    ]
    return np.array(results, "int32").reshape(-1, 3)


def write(old, new, indices):
    return write_slots(old, keras.ops.reshape(new, (-1, new.shape[-1])), indices)


# === Bias ===


def visible(bias):
    return (np.asarray(bias)[:, 0] == 0).astype(int).tolist()


@pytest.mark.parametrize(
    "mask, window, expected",
    [
        ([1, 1, 1, 1], None, [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]),
        ([1, 1, 1, 1], 2, [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]),
        ([0, 1, 1, 1], 2, [[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]),
        # Padding in between does not count: the last token still sees the one before it.
        ([1, 1, 0, 1], 2, [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1]]),
    ],
)
def test_who_sees_whom(mask, window, expected):
    bias = CausalBias(window)(np.array([mask], "int32"))
    assert bias.shape == (1, 1, 4, 4)
    assert bias.dtype == "float32"
    assert visible(bias) == [expected]


@pytest.mark.parametrize("window", [None, 2])
def test_some_queries_see_what_they_see_among_all(window):
    mask = np.array([[1, 1, 1, 1, 0], [0, 1, 1, 0, 1]], "int32")
    slots = np.array([[2, 3], [1, 4]], "int32")
    layer = CausalBias(window)
    every, some = layer(mask), layer(mask, slots)
    assert some.shape == (2, 1, 2, 5)
    for row in range(2):
        np.testing.assert_array_equal(some[row], every.numpy()[row][:, slots[row]])


def test_bias_in_a_functional_model_and_from_config():
    tensor = CausalBias(window=3)(keras.Input((None,), dtype="int32"))
    assert tensor.shape == (None, 1, None, None)
    assert CausalBias.from_config(CausalBias(window=3).get_config()).window == 3
    with pytest.raises(ValueError, match="window=0"):
        CausalBias(window=0)


# === Attention and blocks ===


def test_attention_goes_on_from_a_past():
    layer = randomised(SelfAttention(num_heads=2))
    x = random(2, 5, 6)
    mask = np.ones((2, 5), "int32")
    bias = CausalBias()
    whole, (keys, values) = layer(x, AttentionContext(bias=bias(mask)))
    past = (np.zeros((2, 2, 5, 3), "float32"),) * 2
    for slots in ([0, 1, 2], [3], [4]):
        slots = np.array([slots] * 2, "int32")
        output, past = layer(
            x[:, slots[0]], AttentionContext(bias(mask, slots), past, indices(2, 2, slots))
        )
        np.testing.assert_allclose(output, whole.numpy()[:, slots[0]], atol=1e-5)
    np.testing.assert_allclose(past[0], keys, atol=1e-6)
    np.testing.assert_allclose(past[1], values, atol=1e-6)


def test_rows_may_stand_at_different_slots():
    layer = randomised(SelfAttention(num_heads=2))
    past = (np.zeros((2, 2, 4, 3), "float32"),) * 2
    write_at = indices(2, 2, np.array([[3], [1]], "int32"))
    _, (keys, _) = layer(random(2, 1, 6), AttentionContext(past=past, write_at=write_at))
    written = np.any(np.asarray(keys), axis=(1, 3)).astype(int).tolist()
    assert written == [[0, 0, 0, 1], [0, 1, 0, 0]]


def norm(layer, x):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 0.1) * layer.gamma.numpy() + layer.beta.numpy()


def test_pre_norm_block_equals_numpy():
    block = randomised(PreNormBlock(**BLOCK | {"activation": "relu"}))
    x = random(2, 4, 6)
    after = x + block.attention(norm(block.attention_norm, x)).numpy()
    w1, b1, w2, b2 = (w.numpy() for w in block.feedforward.weights)
    inside = np.maximum(norm(block.feedforward_norm, after) @ w1 + b1, 0)
    np.testing.assert_allclose(block(x), after + inside @ w2 + b2, atol=2e-5)
    np.testing.assert_allclose(
        block.attention_probabilities(x),
        block.attention.probabilities(norm(block.attention_norm, x)),
        atol=1e-5,
    )


@pytest.mark.parametrize("kind", [PreNormBlock, PostNormBlock])
def test_a_block_returns_its_keys_and_values(kind, tmp_path):
    x, bias = random(2, 4, 6), CausalBias()(np.ones((2, 4), "int32"))
    block = randomised(kind(**BLOCK))
    output, (keys, values) = block(x, AttentionContext(bias=bias))
    np.testing.assert_array_equal(output, block(x, bias=bias))
    assert keys.shape == values.shape == (2, 2, 4, 3)

    again = kind.from_config(block.get_config())
    assert again.get_config() == block.get_config()
    assert {name: block.get_config()[name] for name in BLOCK} == BLOCK


CAUSAL = {
    CausalPreNormBlock: PreNormBlock,
    CausalPostNormBlock: PostNormBlock,
    CausalSelfAttention: SelfAttention,
}


@pytest.mark.parametrize("causal", CAUSAL)
def test_names_of_earlier_releases(causal, tmp_path):
    options = BLOCK if causal is not CausalSelfAttention else {"num_heads": 2, "dropout": 0.2}
    x, bias = random(2, 4, 6), CausalBias()(np.ones((2, 4), "int32"))
    with pytest.warns(DeprecationWarning, match=f"use {CAUSAL[causal].__name__}, which"):
        block = randomised(causal(**options))
    other = randomised(CAUSAL[causal](**options))
    output, keys, values = block(x, bias=bias)
    np.testing.assert_array_equal(output, other(x, bias=bias))
    assert keys.shape == values.shape == (2, 2, 4, 3)

    slots = np.array([[3], [1]], "int32")
    put = partial(write, indices=indices(2, 2, slots))
    context = AttentionContext(past=(keys, values), write_at=indices(2, 2, slots))
    results = block(x[:, :1], past=(keys, values), write=put)
    expected, kept = other(x[:, :1], context)
    for one, another in zip(results, (expected, *kept), strict=True):
        np.testing.assert_array_equal(one, another)

    inputs = keras.Input((None, 6))
    model = keras.Model(inputs, block(inputs))
    assert [tensor.shape for tensor in model.outputs] == [
        (None, None, 6),
        *[(None, 2, None, 3)] * 2,
    ]
    model.save(tmp_path / "model.keras")
    with pytest.warns(DeprecationWarning):
        loaded = keras.models.load_model(tmp_path / "model.keras")
    for actual, expected in zip(loaded(x), model(x), strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    "mask, start, expected",
    [
        ([1, 1, 1], 2, [2, 3, 4]),
        ([0, 1, 1], 2, [2, 2, 3]),
        ([1, 0, 0], 5, [5, 5, 5]),  # beyond the last there is padding only
        ([1, 1, 1], 0, [0, 1, 2]),
    ],
)
def test_positions_that_go_on(mask, start, expected):
    layer = PositionEmbedding(max_sequence_length=6, hidden_dim=3)
    vectors = layer(np.array([mask], "int32"), np.array([start], "int32"))
    np.testing.assert_array_equal(vectors[0], layer.embeddings.numpy()[expected])


# === Heads ===

MASK = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]], "int32")


def test_last_real_token():
    assert last_real_token(keras.ops.convert_to_tensor(MASK)).numpy().tolist() == [1, 3, 0]


@pytest.mark.parametrize("use_bias", [False, True])
def test_classifier_reads_the_last_real_token(use_bias):
    head = LastTokenClassifier(num_classes=5, dropout=0.5, use_bias=use_bias)
    outputs, inputs = {"sequence_output": random(3, 4, 6)}, {"padding_mask": MASK}
    head(outputs, inputs)
    kernel, *bias = (w.numpy() for w in head.logits.weights)
    assert len(bias) == use_bias
    x = outputs["sequence_output"]
    # The third text has no tokens: it is answered as zeros, whatever its padding is.
    expected = np.stack([x[0, 1], x[1, 3], 0 * x[2, 0]]) @ kernel + sum(bias)
    np.testing.assert_allclose(head(outputs, inputs), expected, atol=1e-5)
    np.testing.assert_allclose(head(outputs), x[:, -1] @ kernel + sum(bias), atol=1e-5)
    again = LastTokenClassifier.from_config(head.get_config())
    assert again.get_config() == head.get_config()


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_language_model_projects_on_the_embedding(dtype):
    embedding = keras.layers.ReversibleEmbedding(9, 6, dtype=dtype)
    embedding.build((None, None))
    head = CausalLMHead(embedding, dtype=dtype)
    x = random(2, 4, 6)
    logits = head({"sequence_output": x})
    assert logits.shape == (2, 4, 9)
    assert logits.dtype == "float32"
    assert [weight.path for weight in head.weights] == [embedding.embeddings.path]
    expected = x @ embedding.embeddings.numpy().T
    np.testing.assert_allclose(logits, expected, atol=1e-5 if dtype == "float32" else 0.03)
