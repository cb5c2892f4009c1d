"""Attention, Dense, the post-norm block, activations and heads, against plain numpy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.layers import (
    Dense,
    FeedForward,
    LayerNormalization,
    MaskedLMHead,
    PooledClassifier,
    PostNormBlock,
    SelfAttention,
    gelu_tanh,
    get_activation,
)
from keras_lm.layers.masks import MASKED


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def randomised(layer, scale=0.3):
    """Every weight random, so that no bias or offset hides behind a zero."""
    rng = np.random.default_rng(1)
    for weight in layer.weights:
        if weight.dtype == "float32":
            weight.assign(rng.normal(size=weight.shape, scale=scale))
    return layer


def numpy_attention(layer, x, bias=0.0):
    kernel, kernel_bias = (w.numpy() for w in layer.query_key_value.weights)
    out_kernel, out_bias = (w.numpy() for w in layer.output_dense.weights)
    width = x.shape[-1]
    head = width // layer.num_heads
    query, key, value = np.split(x @ kernel + kernel_bias, 3, axis=-1)
    probabilities, contexts = [], []
    for n in range(layer.num_heads):
        part = slice(n * head, (n + 1) * head)
        scores = query[..., part] @ key[..., part].swapaxes(1, 2) / np.sqrt(head)
        scores = scores + np.broadcast_to(bias, (len(x), layer.num_heads, *scores.shape[1:]))[:, n]
        probabilities.append(softmax(scores))
        contexts.append(probabilities[-1] @ value[..., part])
    return np.concatenate(contexts, -1) @ out_kernel + out_bias, np.stack(probabilities, 1)


@pytest.fixture
def attention():
    layer = SelfAttention(num_heads=4)
    layer.build((None, None, 12))
    return randomised(layer)


@pytest.mark.parametrize("bias", [None, "padding", "relative"])
def test_attention_equals_numpy(attention, bias):
    x = random(3, 5, 12)
    if bias == "padding":
        bias = np.zeros((3, 1, 1, 5), "float32")
        bias[1, ..., 3:] = MASKED
    elif bias == "relative":
        bias = random(1, 4, 5, 5, seed=3)
    expected, probabilities = numpy_attention(attention, x, 0.0 if bias is None else bias)
    np.testing.assert_allclose(attention(x, bias=bias), expected, atol=1e-5)
    np.testing.assert_allclose(attention.probabilities(x, bias), probabilities, atol=1e-5)


def test_attention_equals_that_of_keras(attention):
    x = random(2, 6, 12)
    theirs = keras.layers.MultiHeadAttention(num_heads=4, key_dim=3)
    theirs.build(x.shape, x.shape)
    kernel, bias = (w.numpy() for w in attention.query_key_value.weights)
    weights = []
    for part in range(3):
        columns = slice(12 * part, 12 * (part + 1))
        weights += [kernel[:, columns].reshape(12, 4, 3), bias[columns].reshape(4, 3)]
    out_kernel, out_bias = (w.numpy() for w in attention.output_dense.weights)
    theirs.set_weights([*weights, out_kernel.reshape(4, 3, 12), out_bias])
    np.testing.assert_allclose(attention(x), theirs(x, x), atol=1e-5)


def test_masked_tokens_have_no_influence(attention):
    bias = np.zeros((1, 1, 1, 5), "float32")
    bias[..., 3:] = MASKED
    x = random(1, 5, 12)
    changed = x.copy()
    changed[:, 3:] += 5.0
    np.testing.assert_array_equal(
        attention(x, bias=bias)[:, :3], attention(changed, bias=bias)[:, :3]
    )


def test_attention_over_nothing_but_padding_is_finite(attention):
    bias = np.full((2, 1, 1, 5), MASKED, "float32")
    assert np.isfinite(attention(random(2, 5, 12), bias=bias)).all()


def test_attention_refuses_heads_that_do_not_divide_the_width():
    with pytest.raises(ValueError, match=r"num_heads=5 does not divide the width 12"):
        SelfAttention(num_heads=5).build((None, None, 12))


def test_attention_dropout_is_for_training_only():
    layer = SelfAttention(num_heads=2, dropout=0.9)
    x = random(2, 5, 12)
    np.testing.assert_array_equal(layer(x), layer(x))
    assert np.abs(layer(x, training=True) - layer(x, training=True)).max() > 0


@pytest.mark.parametrize("shape", [(3, 6), (2, 5, 6), (2, 0, 6), (2, 3, 4, 6)])
@pytest.mark.parametrize("activation", [None, "relu", "gelu"])
@pytest.mark.parametrize("jit", [False, True])
def test_dense_equals_that_of_keras(shape, activation, jit):
    ours, theirs = Dense(4, activation=activation), keras.layers.Dense(4, activation=activation)
    for layer in (ours, theirs):
        layer.build(shape)
    theirs.set_weights(randomised(ours).get_weights())
    x = random(*shape)
    y = tf.function(ours, jit_compile=jit, autograph=False)(x)
    assert y.shape == (*shape[:-1], 4)
    np.testing.assert_allclose(y, theirs(x), atol=1e-6)


@pytest.mark.parametrize("kind", ["plain", "lora", "adapter", "bias alone", "bfloat16"])
def test_columns_are_those_of_a_whole_call(kind):
    activation = None if kind == "bias alone" else "gelu"
    layer = Dense(7, activation=activation, dtype="mixed_bfloat16" if kind == "bfloat16" else None)
    layer.build((None, None, 6))
    if kind == "lora":
        layer.enable_lora(2)
    if kind == "adapter":
        layer.add_adapter(3)
    randomised(layer)
    x = keras.ops.cast(random(2, 5, 6), layer.compute_dtype)
    columns = layer.columns(x, 2, 6)
    assert columns.dtype == layer.compute_dtype
    atol = 0.02 if kind == "bfloat16" else 1e-6
    np.testing.assert_allclose(
        tf.cast(columns, "float32"), tf.cast(layer(x)[..., 2:6], "float32"), atol=atol
    )


def test_dense_knows_its_shape_in_a_functional_model():
    tensor = Dense(4)(keras.Input((None, 6)))
    assert tensor.shape == (None, None, 4)
    assert Dense(4)(keras.Input((7, 6))).shape == (None, 7, 4)


def test_block_equals_numpy():
    block = PostNormBlock(
        num_heads=2, intermediate_dim=10, activation="relu", layer_norm_epsilon=0.1
    )
    block.build((None, None, 6))
    randomised(block)
    x = random(2, 4, 6)

    def norm(layer, x):
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) / np.sqrt(variance + 0.1) * layer.gamma.numpy() + layer.beta.numpy()

    attended, _ = numpy_attention(block.attention, x)
    expected = norm(block.attention_norm, x + attended)
    w1, b1, w2, b2 = (w.numpy() for w in block.feedforward.weights)
    expected = norm(block.feedforward_norm, expected + np.maximum(expected @ w1 + b1, 0) @ w2 + b2)
    np.testing.assert_allclose(block(x), expected, atol=2e-5)


BLOCK = {
    "num_heads": 2,
    "intermediate_dim": 10,
    "dropout": 0.2,
    "attention_dropout": 0.3,
    "activation": "gelu_tanh",
    "layer_norm_epsilon": 1e-5,
}


@pytest.mark.parametrize(
    "layer",
    [
        PostNormBlock(**BLOCK, name="block"),
        SelfAttention(num_heads=2, dropout=0.2, name="attention"),
        FeedForward(10, "gelu_tanh", name="feedforward"),
        Dense(3, activation=gelu_tanh, name="dense"),
    ],
    ids=lambda layer: layer.name,
)
def test_config_and_keras_file_round_trip(layer, tmp_path):
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    inputs = keras.Input((None, 6))
    model = keras.Model(inputs, layer(inputs))
    randomised(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    x = random(2, 4, 6)
    np.testing.assert_array_equal(model(x), loaded(x))


def test_block_config_holds_every_argument():
    config = PostNormBlock(**BLOCK).get_config()
    assert {name: config[name] for name in BLOCK} == BLOCK


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_block_keeps_the_compute_dtype_and_float32_probabilities(policy):
    block = PostNormBlock(num_heads=2, intermediate_dim=10, dtype=policy)
    x = random(2, 4, 6)
    bias = np.zeros((2, 1, 1, 4), "float32")
    bias[1] = MASKED
    y = block(x, bias=bias)
    assert y.dtype == policy.removeprefix("mixed_")
    assert np.isfinite(np.asarray(y, "float32")).all()
    probabilities = block.attention_probabilities(tf.cast(x, y.dtype), bias)
    assert probabilities.dtype == "float32"
    np.testing.assert_allclose(np.sum(probabilities, axis=-1), 1.0, atol=1e-5)


def test_gelu_tanh_is_its_formula():
    x = np.linspace(-4, 4, 41).astype("float32")
    expected = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(gelu_tanh(x), expected, atol=1e-6)
    assert get_activation("gelu_tanh") is gelu_tanh
    assert np.abs(get_activation("gelu")(x) - expected).max() > 1e-4  # the exact form


def test_unknown_activation_is_an_error():
    with pytest.raises(ValueError, match="no_such"):
        get_activation("no_such")


# === Heads ===


def test_classifier_is_linear_in_the_pooled_output():
    head = PooledClassifier(num_classes=3, dropout=0.5)
    outputs = {"sequence_output": random(2, 4, 6), "pooled_output": random(2, 6, seed=2)}
    head(outputs)
    randomised(head)
    kernel, bias = (w.numpy() for w in head.logits.weights)
    np.testing.assert_allclose(head(outputs), outputs["pooled_output"] @ kernel + bias, atol=1e-5)
    assert head.pooler is None


def test_classifier_brings_a_pooler_where_there_is_none():
    head = PooledClassifier(num_classes=3)
    x = random(2, 4, 6)
    head({"sequence_output": x})
    randomised(head)
    pooler_kernel, pooler_bias = (w.numpy() for w in head.pooler.weights)
    kernel, bias = (w.numpy() for w in head.logits.weights)
    expected = np.tanh(x[:, 0] @ pooler_kernel + pooler_bias) @ kernel + bias
    np.testing.assert_allclose(head({"sequence_output": x}), expected, atol=1e-5)
    assert PooledClassifier.from_config(head.get_config()).num_classes == 3


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_token_head_projects_on_the_embedding(dtype):
    embedding = keras.layers.ReversibleEmbedding(9, 6, dtype=dtype)
    embedding.build((None, None))
    head = MaskedLMHead(embedding, "relu", layer_norm_epsilon=1e-3, dtype=dtype)
    x = random(2, 4, 6)
    head({"sequence_output": x})
    randomised(head)
    randomised(embedding)
    logits = head({"sequence_output": x})
    assert logits.shape == (2, 4, 9)
    assert logits.dtype == "float32"

    h = np.maximum(x @ head.dense.kernel.numpy() + head.dense.bias.numpy(), 0)
    h = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-3)
    h = h * head.norm.gamma.numpy() + head.norm.beta.numpy()
    expected = h @ embedding.embeddings.numpy().T + head.bias.numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-5 if dtype == "float32" else 0.03)

    positions = np.array([[3, 0], [1, 1]], "int32")
    some = head({"sequence_output": x}, {"mask_positions": positions})
    np.testing.assert_allclose(
        some, np.stack([logits[i].numpy()[p] for i, p in enumerate(positions)]), atol=1e-5
    )


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "float64"])
def test_layer_normalization_equals_that_of_keras(dtype):
    x = np.random.default_rng(0).normal(3.0, 2.0, (2, 5, 8))
    ours = LayerNormalization(epsilon=1e-5, dtype=dtype)
    theirs = keras.layers.LayerNormalization(epsilon=1e-5, dtype=dtype)
    for layer in (ours, theirs):
        layer.build(x.shape)
        layer.gamma.assign(np.linspace(0.5, 2.0, 8))
        layer.beta.assign(np.linspace(-1.0, 1.0, 8))
    result, expected = ours(x), theirs(x)
    assert result.dtype == expected.dtype
    tolerance = 2e-2 if "bfloat16" in dtype else 2e-6
    as_floats = [
        keras.ops.convert_to_numpy(keras.ops.cast(y, "float64")) for y in (result, expected)
    ]
    np.testing.assert_allclose(*as_floats, atol=tolerance)
