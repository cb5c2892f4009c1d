"""What the models of other papers ask of attention and blocks, each against plain numpy."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_lm.layers import (
    AttentionContext,
    CausalBias,
    CrossAttention,
    DecoderPostNormBlock,
    DecoderPreNormBlock,
    Dense,
    PaddingBias,
    PostNormBlock,
    PreNormBlock,
    SelfAttention,
    attention,
)
from keras_lm.layers import tensorflow as tensorflow_ops
from keras_lm.layers.attention import Visible
from keras_lm.layers.masks import MASKED
from keras_lm.layers.tensorflow import Dropout, dropout, for_lite
from keras_lm.models import GPT2Backbone


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def randomised(layer, *shapes):
    layer.build(*(shapes or [(None, None, 10)]))
    rng = np.random.default_rng(1)
    for weight in layer.trainable_weights:
        weight.assign(rng.normal(size=weight.shape, scale=0.3))
    return layer


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def linear(layer, x):
    kernel, *bias = (w.numpy() for w in layer.weights)
    return x @ kernel + sum(bias)


def heads(x, parts, number):
    """(B, S, parts·N·H) → a list of (B, N, S, H)."""
    split = [np.split(part, number, axis=-1) for part in np.split(x, parts, axis=-1)]
    return [np.stack(part, axis=1) for part in split]


def read(layer, query, key, value, scores=0.0, head_mask=1.0):
    """Return the output of attention, and the scores with `scores` added to them."""
    scores = scores + query @ key.swapaxes(-1, -2) * layer.scale
    context = softmax(scores) @ value * np.reshape(head_mask, (*np.shape(head_mask), 1, 1))
    return linear(layer.output_dense, np.concatenate(list(context.swapaxes(0, 1)), -1)), scores


BIAS = np.array([[0, 0, 0, 0, MASKED], [0] * 5], "float32")[:, None, None]


def test_a_head_width_of_its_own():
    layer = randomised(SelfAttention(num_heads=3, head_dim=4))
    assert layer.query_key_value.kernel.shape == (10, 36)
    assert layer.output_dense.kernel.shape == (12, 10)
    x = random(2, 5, 10)
    expected, scores = read(layer, *heads(linear(layer.query_key_value, x), 3, 3), BIAS)
    output, (keys, _) = layer(x, AttentionContext(bias=BIAS))
    assert keys.shape == (2, 3, 5, 4)
    np.testing.assert_array_equal(output, layer(x, bias=BIAS))
    np.testing.assert_array_equal(output, layer(x, BIAS))
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_allclose(layer.scores(x, BIAS), scores, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(layer.probabilities(x, BIAS), softmax(scores), atol=1e-5)
    assert SelfAttention.from_config(layer.get_config()).get_config() == layer.get_config()


@pytest.mark.parametrize("source_dim", [10, 6])
def test_attention_to_another_sequence(source_dim):
    layer = CrossAttention(num_heads=2)
    randomised(layer, (None, None, 10), (None, None, source_dim))
    x, source = random(2, 3, 10), random(2, 5, source_dim, seed=2)
    (query,) = heads(linear(layer.query, x), 1, 2)
    keys_and_values = heads(linear(layer.key_value, source), 2, 2)
    expected, scores = read(layer, query, *keys_and_values, BIAS)
    np.testing.assert_allclose(layer(x, source, bias=BIAS), expected, atol=1e-5)
    np.testing.assert_allclose(layer.scores(x, source, bias=BIAS), scores, rtol=1e-5, atol=1e-5)
    context = AttentionContext(source=source, bias=BIAS)
    np.testing.assert_allclose(layer.probabilities(x, context), softmax(scores), atol=1e-5)
    output, kept = layer(x, context)
    np.testing.assert_allclose(output, expected, atol=1e-5)
    np.testing.assert_allclose(kept, keys_and_values, atol=1e-5)

    past = layer.keys_and_values(source)  # once, for all steps of a loop
    np.testing.assert_allclose(past, keys_and_values, atol=1e-5)
    for column in range(3):
        step = layer(x[:, column : column + 1], bias=BIAS, past=tuple(past))
        np.testing.assert_allclose(step[:, 0], expected[:, column], atol=1e-5)


def test_attention_to_another_sequence_in_a_functional_model(tmp_path):
    x, source = keras.Input((None, 10)), keras.Input((None, 6))
    layer = CrossAttention(num_heads=2, head_dim=7)
    model = keras.Model([x, source], layer(x, source))
    assert layer.key_value.kernel.shape == (6, 28)
    assert model.output.shape == (None, None, 10)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    arrays = [random(2, 3, 10), random(2, 5, 6)]
    np.testing.assert_array_equal(model(arrays), loaded(arrays))


@pytest.mark.parametrize("kind", [SelfAttention, CrossAttention])
@pytest.mark.parametrize("head_mask", [[1.0, 0.0], [[0.5, 1.0], [0.0, 2.0]]])
def test_a_mask_over_heads(kind, head_mask):
    layer = randomised(kind(num_heads=2))
    x, head_mask = random(2, 4, 10), np.array(head_mask, "float32")
    if kind is CrossAttention:
        output = layer(x, x, head_mask=head_mask)
        parts = [*heads(linear(layer.query, x), 1, 2), *heads(linear(layer.key_value, x), 2, 2)]
    else:
        output = layer(x, head_mask=head_mask)
        parts = heads(linear(layer.query_key_value, x), 3, 2)
    np.testing.assert_allclose(output, read(layer, *parts, head_mask=head_mask)[0], atol=1e-5)


@pytest.mark.parametrize("kind", [PostNormBlock, PreNormBlock])
def test_blocks_hand_on_what_attention_can(kind):
    block = randomised(kind(num_heads=3, intermediate_dim=8, head_dim=4))
    assert kind.from_config(block.get_config()).head_dim == 4
    x = random(2, 5, 10)
    attended = block.read(x, block.attention_norm)
    scores = block.attention_scores(x, BIAS)
    np.testing.assert_array_equal(scores, block.attention.scores(attended, BIAS))
    assert scores.shape == (2, 3, 5, 5)
    assert scores.dtype == "float32"
    np.testing.assert_allclose(
        block.attention_probabilities(x, BIAS), softmax(scores.numpy()), atol=1e-6
    )
    outputs = [block(x, head_mask=mask) for mask in (np.zeros(3), np.ones(3))]
    np.testing.assert_array_equal(outputs[1], block(x))
    added = np.zeros_like(x) + block.attention.output_dense.bias.numpy()
    alone = block.add_feedforward(block.residual(x, block.attention_norm, added))
    np.testing.assert_allclose(outputs[0], alone, atol=1e-5)


@pytest.mark.parametrize("kind", [PostNormBlock, PreNormBlock])
def test_a_memory_is_what_the_block_read_before(kind):
    block, x = randomised(kind(num_heads=2, intermediate_dim=8)), random(2, 5, 10)
    whole = block(x, bias=CausalBias()(np.ones((2, 5), "int32")))
    bias = CausalBias()(np.ones((2, 5), "int32"), np.array([[3, 4]] * 2, "int32"))
    context = AttentionContext(bias=bias, memory=x[:, :3])
    output, (keys, _) = block(x[:, 3:], context)
    np.testing.assert_allclose(output, whole[:, 3:], atol=1e-5)
    assert keys.shape == (2, 2, 5, 5)
    np.testing.assert_allclose(
        block.attention_probabilities(x[:, 3:], context),
        block.attention_probabilities(x, CausalBias()(np.ones((2, 5), "int32")))[:, :, 3:],
        atol=1e-6,
    )


@pytest.mark.parametrize("kind", [DecoderPostNormBlock, DecoderPreNormBlock])
def test_a_decoder_reads_a_source_or_its_keys_and_values(kind):
    block = randomised(kind(num_heads=2, intermediate_dim=8))
    x, source = random(2, 3, 10), random(2, 5, 10, seed=2)
    context = AttentionContext(source=source, source_bias=BIAS)
    output, (own, of_source) = block(x, context)
    assert [part.shape[2] for part in (*own, *of_source)] == [3, 3, 5, 5]
    context = context._replace(source=of_source)
    np.testing.assert_array_equal(block(x, context)[0], output)
    np.testing.assert_array_equal(block(x, source, source_bias=BIAS), output)
    actual = block.cross_attention_probabilities(x, context)
    assert actual.shape == (2, 2, 3, 5)
    assert np.all(actual.numpy()[0, ..., -1] == 0)


def test_shapes_of_what_is_kept_are_known_when_a_model_is_made():
    x, memory, source = keras.Input((3, 10)), keras.Input((2, 10)), keras.Input((None, 10))
    block = PostNormBlock(num_heads=2, intermediate_dim=8)
    _, kept = block(x, AttentionContext(memory=memory))
    assert [part.shape for part in kept] == [(None, 2, 5, 5)] * 2
    block = DecoderPreNormBlock(num_heads=2, intermediate_dim=8)
    y, (own, of_source) = block(x, AttentionContext(source=source))
    assert y.shape == (None, 3, 10)
    assert [part.shape for part in own] == [(None, 2, 3, 5)] * 2
    assert [part.shape for part in of_source] == [(None, 2, None, 5)] * 2


def test_a_functional_model_with_a_context_is_saved_and_loaded(tmp_path):
    x, mask = keras.Input((None, 10)), keras.Input((None,), dtype="int32")
    context = AttentionContext(bias=PaddingBias()(mask))
    y, kept = PostNormBlock(num_heads=2, intermediate_dim=8)(x, context)
    model = keras.Model([x, mask], [y, *kept])
    model.save(tmp_path / "model.keras")
    arrays = [random(2, 3, 10), np.array([[1, 1, 0], [1, 1, 1]])]
    for actual, expected in zip(
        keras.models.load_model(tmp_path / "model.keras")(arrays), model(arrays), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


# === Other papers' attention by overriding small methods ===


class T5Attention(SelfAttention):
    """Without scaling and without biases; what depends on distance comes as `bias`."""

    def make_scale(self):
        return 1.0

    def make_projection(self, units, name):
        return Dense(units, use_bias=False, dtype=self.dtype_policy, name=name)

    def make_output(self, units):
        return self.make_projection(units, "output")


class RelativeAttention(SelfAttention):
    """Transformer-XL's: queries attend to a memory too, and scores have a part by distance."""

    def build(self, input_shape):
        super().build(input_shape)
        self.position = self.make_projection(self.num_heads * self.head_dim, "position")
        self.position.build(input_shape)
        shape = (self.num_heads, 1, self.head_dim)
        self.content_bias = self.add_weight(name="content_bias", shape=shape)
        self.position_bias = self.add_weight(name="position_bias", shape=shape)

    def project(self, x, context):
        query, key, value = super().project(x, context)
        (distances,) = self.split_heads(self.position(context.positions), 1)  # longest first
        # How many columns come after that of a query.
        after = ops.reshape(ops.arange(query.shape[2] - 1, -1, -1), (1, 1, -1, 1))
        query = query + self.content_bias, query + self.position_bias, after
        return query, (key, distances), value

    def raw_scores(self, query, key):
        (content, position, after), (key, distances) = query, key
        scores = super().raw_scores(position, distances)  # (B, N, S, T)
        places = ops.arange(key.shape[2]) + after  # of a column's distance
        places = ops.minimum(places, key.shape[2] - 1) + ops.zeros_like(scores, "int32")
        return super().raw_scores(content, key) + ops.take_along_axis(scores, places, axis=3)


def test_scores_without_scale_and_biases():
    layer = randomised(T5Attention(num_heads=2, head_dim=3))
    assert [weight.name for weight in layer.trainable_weights] == ["kernel"] * 2
    x, bias = random(2, 4, 10), random(1, 2, 4, 4, seed=3)
    expected, _ = read(layer, *heads(linear(layer.query_key_value, x), 3, 2), bias)
    np.testing.assert_allclose(layer(x, bias=bias), expected, atol=1e-5)


def test_scores_by_distance():
    layer = randomised(RelativeAttention(num_heads=2))
    x, memory, distances = random(2, 3, 10), random(2, 4, 10, seed=2), random(1, 7, 10, seed=3)
    query, key, value = heads(
        linear(layer.query_key_value, np.concatenate([memory, x], axis=1)), 3, 2
    )
    query = query[:, :, 4:]
    (far,) = heads(linear(layer.position, distances), 1, 2)
    scores = np.zeros((2, 2, 3, 7), "float32")
    for i in range(3):
        for j in range(i + 5):  # distance i + 4 - j, and the last of `distances` is that of 0
            place = 6 - (i + 4 - j)
            added = (
                layer.content_bias.numpy()[:, 0] * key[:, :, j]
                + (query[:, :, i] + layer.position_bias.numpy()[:, 0]) * far[:, :, place]
            )
            scores[:, :, i, j] = added.sum(-1) * layer.scale
    bias = np.triu(np.full((3, 7), MASKED, "float32"), 5)
    expected, biased = read(layer, query, key, value, scores + bias)
    context = AttentionContext(bias=bias, memory=memory, positions=distances)
    np.testing.assert_allclose(layer(x, context)[0], expected, atol=1e-5)
    np.testing.assert_allclose(layer.scores(x, context), biased, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer.probabilities(x, context), softmax(biased), atol=1e-5)
    masked, _ = layer(x, context._replace(head_mask=np.array([0.5, 0.0], "float32")))
    expected, _ = read(layer, query, key, value, scores + bias, head_mask=[0.5, 0.0])
    np.testing.assert_allclose(masked, expected, atol=1e-5)
    context = AttentionContext(
        memory=keras.Input((4, 10)), positions=keras.Input(batch_shape=(1, 7, 10))
    )
    assert layer(keras.Input((3, 10)), context)[0].shape == (None, 3, 10)


class DecoderBlock(PostNormBlock):
    """Two lines more than its base: cross-attention comes before the feed-forward."""

    def build(self, input_shape):
        super().build(input_shape)
        self.cross_attention = CrossAttention(self.num_heads, dtype=self.dtype_policy)
        self.cross_attention.build(input_shape)
        self.cross_attention_norm = self.make_norm("cross_attention_norm")
        self.cross_attention_norm.build(input_shape)

    def call(self, x, past, bias=None, training=None):
        norm = self.attention_norm
        attended = self.attention(self.read(x, norm), bias=bias, training=training)
        x = self.residual(x, norm, attended, training)
        norm = self.cross_attention_norm
        attended = self.cross_attention(self.read(x, norm), past=past, training=training)
        return self.add_feedforward(self.residual(x, norm, attended, training), training)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_decoder_block(policy):
    block = randomised(DecoderBlock(num_heads=2, intermediate_dim=8, dtype=policy))
    x, source = random(2, 3, 10), random(2, 5, 10, seed=2)
    past = block.cross_attention.keys_and_values(source)
    output = block(x, tuple(past))

    def norm(layer, x):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return x * layer.gamma.numpy() + layer.beta.numpy()

    def numbers(x):
        return keras.ops.convert_to_numpy(keras.ops.cast(x, "float32"))

    expected = norm(block.attention_norm, x + numbers(block.attention(x)))
    attended = numbers(block.cross_attention(expected, source))
    expected = norm(block.cross_attention_norm, expected + attended)
    expected = norm(block.feedforward_norm, expected + numbers(block.feedforward(expected)))
    assert output.dtype == policy.removeprefix("mixed_")
    np.testing.assert_allclose(numbers(output), expected, atol=2e-5 if policy == "float32" else 0.1)


def test_what_is_new_runs_in_litert():
    layer = randomised(CrossAttention(num_heads=2, head_dim=3))
    shapes = [(1, None, 10), (1, None, 10), (2,)]
    function = tf.function(lambda x, y, mask: layer(x, y, head_mask=mask), autograph=False)
    function = function.get_concrete_function(*[tf.TensorSpec(s, tf.float32) for s in shapes])
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], layer)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    assert len(converter.convert()) > 0


def test_one_token_does_not_warn(recwarn):
    SelfAttention(2)(np.ones((1, 1, 8), "float32"))
    assert not [warning for warning in recwarn if "softmax" in str(warning.message)]


# === In blocks of queries ===

LENGTH = 11  # blocks of 4: the last is shorter


@pytest.fixture
def compute(monkeypatch):
    """`compute(layer, *inputs, blocks=…, bias=…)` → the output, gradients of all that has any.

    Blocks are computed in a graph, for which the number of rows is unknown.
    """
    monkeypatch.setattr(tensorflow_ops, "BLOCK", 4)

    def run(layer, *inputs, blocks, bias=None, **options):
        monkeypatch.setattr(tensorflow_ops, "MANY_SCORES", 0 if blocks else 10**9)
        sources = [*map(tf.constant, inputs), *([bias] if tf.is_tensor(bias) else [])]
        specs = [tf.TensorSpec([None, *x.shape[1:]]) for x in sources]

        def step(*given):
            some_bias = given[-1] if tf.is_tensor(bias) else bias
            with tf.GradientTape() as tape:
                tape.watch(given)
                output = layer(*given[: len(inputs)], bias=some_bias, **options)
                output = tf.cast(tf.nest.flatten(output)[0], "float32")
                loss = tf.reduce_sum(output**3)
            return output, *tape.gradient(loss, [*given, *layer.trainable_variables])

        if blocks:  # the whole, with which they are compared, needs no graph
            step = tf.function(step, input_signature=specs, autograph=False)
            assert "While" in operations(step.get_concrete_function())
        return [x.numpy() for x in step(*sources)]

    return run


def nodes(concrete):
    graph = concrete.graph.as_graph_def(add_shapes=True)
    return [
        *graph.node,
        *(node for function in graph.library.function for node in function.node_def),
    ]


def operations(concrete):
    return {node.op.removeprefix("Stateless") for node in nodes(concrete)}


def close(actual, expected, **tolerance):
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, **({"rtol": 1e-4, "atol": 1e-4} | tolerance))


PADDING = np.array([[1] * 8 + [0] * 3, [0, 0] + [1] * 9], "int32")
BIASES = {
    "none": lambda: None,
    "padding": lambda: PaddingBias()(PADDING),
    "full": lambda: tf.constant(random(1, 2, LENGTH, LENGTH)),
    "causal": lambda: CausalBias().visible(PADDING),
    "window": lambda: CausalBias(3).visible(PADDING),
}


@pytest.mark.parametrize("name", BIASES)
def test_blocks_equal_the_whole(compute, name):
    layer, x, bias = randomised(SelfAttention(num_heads=2)), random(2, LENGTH, 10), BIASES[name]()
    whole = bias.bias() if isinstance(bias, Visible) else bias
    expected = compute(layer, x, bias=whole, blocks=False)
    results = compute(layer, x, bias=bias, blocks=True)
    close(results[:2] + results[-4:], expected[:2] + expected[-4:])
    if tf.is_tensor(bias):
        close(results[2], expected[2])


def test_blocks_of_attention_to_another_sequence(compute):
    layer = randomised(CrossAttention(num_heads=2), (None, None, 10), (None, None, 6))
    inputs = random(2, LENGTH, 10), random(2, 5, 6, seed=2)
    results, expected = (compute(layer, *inputs, bias=tf.constant(BIAS), blocks=b) for b in (1, 0))
    close(results, expected)


def test_blocks_of_scores_by_distance(compute):
    layer = randomised(RelativeAttention(num_heads=2))
    memory, distances = random(2, 4, 10, seed=2), random(1, LENGTH + 4, 10, seed=3)
    slots = np.arange(4, LENGTH + 4, dtype="int32")[None]
    bias = CausalBias().visible(np.pad(PADDING, [(0, 0), (4, 0)], constant_values=1), slots)
    options = {"memory": memory, "positions": distances, "head_mask": np.array([0.5, 2.0], "f4")}
    x = random(2, LENGTH, 10)
    results = compute(layer, x, bias=bias, blocks=True, **options)
    output, gradient, _, *of_weights = compute(
        layer, x, bias=bias.bias(), blocks=False, **options
    )  # the third is that of the bias
    close(results, [output, gradient, *of_weights])


@pytest.mark.parametrize("kind", [SelfAttention, CrossAttention])
def test_attention_in_a_loop_of_ones_own(kind):
    """Where oneDNN is on, TensorFlow once made it empty: scale, product and bias in one."""
    shapes = [(None, None, 10)] * (2 if kind is CrossAttention else 1)
    layer = randomised(kind(num_heads=2), *shapes)
    x, bias = random(3, 2, 5, 10), tf.constant(BIAS)

    def attend(text):
        return layer(text, text, bias=bias) if kind is CrossAttention else layer(text, bias=bias)

    results = tf.function(lambda texts: tf.map_fn(attend, texts), autograph=False)(tf.constant(x))
    close(results, [attend(text) for text in x])


def test_blocks_in_float16(compute):
    layer = randomised(SelfAttention(num_heads=2, dtype="mixed_float16"))
    bias = CausalBias().visible(PADDING)
    actual, expected = (
        compute(layer, random(2, LENGTH, 10), bias=bias, blocks=b) for b in (True, False)
    )
    assert all(np.isfinite(x).all() for x in actual)
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=0.01 * np.abs(other).max())


def test_the_bias_of_causal_attention_is_a_rule_where_texts_are_long(monkeypatch):
    steps = np.array([[4], [9]], "int32")
    for window in (None, 3):
        layer = CausalBias(window)
        whole, step = layer(PADDING), layer(PADDING, steps)
        monkeypatch.setattr(tensorflow_ops, "MANY_SCORES", LENGTH**2)
        rule = layer(PADDING)
        assert isinstance(rule, Visible)
        np.testing.assert_array_equal(rule.bias(), whole)
        np.testing.assert_array_equal(layer(PADDING, steps), step)  # generation's: a tensor
        monkeypatch.undo()


def test_dropout_is_the_same_in_both_passes_of_a_block(compute, monkeypatch):
    layer, x = randomised(SelfAttention(num_heads=2, dropout=0.4)), random(2, LENGTH, 10)

    def run(blocks):
        layer.dropout.seed_generator.state.assign([3, 4])
        return compute(layer, x, blocks=blocks, training=True)

    actual = run(blocks=True)
    close(actual, run(blocks=True), rtol=0, atol=0)
    # The mask by hand: each block has its own.
    seeds = [tf.random.experimental.stateless_fold_in([3, 4], i) for i in range(3)]
    kept = [dropout(tf.ones((2, 2, 4, LENGTH)), 0.4, seed) for seed in seeds]
    kept = tf.concat(kept, axis=2)[:, :, :LENGTH]
    assert 0.5 < np.mean(kept.numpy() > 0) < 0.7
    monkeypatch.setattr(attention, "dropout", lambda x, rate, seed: x * kept)
    close(actual, run(blocks=False))


def test_dropout_of_the_whole_is_that_of_a_layer(compute):
    layer, x = randomised(SelfAttention(num_heads=2, dropout=0.4)), random(2, LENGTH, 10)
    twin = Dropout(0.4)
    for each in (layer.dropout, twin):
        each.seed_generator.state.assign([2**31 + 3, 4])
    value = layer.project(x, AttentionContext())[2]
    context = twin(layer.probabilities(x), training=True) @ value
    context = tf.reshape(tf.transpose(context, (0, 2, 1, 3)), x.shape)
    np.testing.assert_allclose(
        layer(x, training=True), layer.output_dense(context), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("blocks", [True, False])
def test_a_step_in_blocks_has_nothing_of_length_by_length(monkeypatch, blocks):
    monkeypatch.setattr(tensorflow_ops, "BLOCK", 4)
    monkeypatch.setattr(tensorflow_ops, "MANY_SCORES", 0 if blocks else 10**9)
    length = 37
    backbone = GPT2Backbone(20, 1, 2, 6, 10, dropout=0.1, max_sequence_length=50)

    @tf.function(autograph=False)
    def step(token_ids):
        with tf.GradientTape() as tape:
            x = backbone({"token_ids": token_ids}, training=True)["sequence_output"]
            loss = tf.reduce_sum(x**2)
        return tape.gradient(loss, backbone.trainable_variables)

    concrete = step.get_concrete_function(tf.TensorSpec((3, length), tf.int32))
    shapes = [
        [dim.size for dim in shape.dim]
        for node in nodes(concrete)
        for shape in node.attr["_output_shapes"].list.shape
    ]
    longs = [sum(size >= length for size in shape if size < 50) for shape in shapes]
    assert max(longs) == (1 if blocks else 2)
    assert any(shape[-2:] == [4, length] for shape in shapes) == blocks


def test_a_saved_model_has_blocks_for_long_rows_only_and_litert_none(
    compute, monkeypatch, tmp_path
):
    layer, module = randomised(SelfAttention(num_heads=2)), tf.Module()
    module.layer = [weight.value for weight in layer.weights]

    def traced(length):
        monkeypatch.setattr(tensorflow_ops, "MANY_SCORES", LENGTH**2)
        spec = [tf.TensorSpec((None, length, 10))]
        return tf.function(lambda x: layer(x), input_signature=spec, autograph=False)

    module.call = traced(LENGTH)
    tf.saved_model.save(module, tmp_path)
    loaded = tf.saved_model.load(tmp_path)
    assert "While" in operations(module.call.get_concrete_function())
    x = random(3, LENGTH, 10)
    expected = compute(layer, x, blocks=False)[0]
    close([loaded.call(x), layer(x)], [expected, expected])
    for length in (LENGTH - 1, None):
        assert "While" not in operations(traced(length).get_concrete_function())
    with for_lite():
        assert "While" not in operations(traced(LENGTH).get_concrete_function())


@pytest.mark.parametrize(
    ("number", "jit_compile"),
    [
        (4, True),
        # The last batch has one row.
        pytest.param(3, True, marks=pytest.mark.thorough),
        pytest.param(3, False, marks=pytest.mark.thorough),
    ],
)
def test_fit_in_blocks(compute, monkeypatch, number, jit_compile):
    losses = []
    for most in (0, 10**9):
        monkeypatch.setattr(tensorflow_ops, "MANY_SCORES", most)
        layer, x = randomised(SelfAttention(num_heads=2)), keras.Input((LENGTH, 10))
        model = keras.Model(x, layer(x))
        options = {"run_eagerly": True} if most else {"jit_compile": jit_compile}
        model.compile("sgd", "mse", **options)
        rows = random(number, LENGTH, 10)
        history = model.fit(rows, rows, batch_size=2, epochs=2, verbose=0, shuffle=False)
        losses.append(history.history["loss"])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    assert losses[0][1] < losses[0][0]


@pytest.mark.parametrize("transposed", [False, True])
def test_one_head_multiplies_by_a_matrix(transposed):
    """For one of four axes, oneDNN writes beyond its memory: TensorFlow's issue 117700."""
    x, y = random(4, 1, 6, 8), random(1, 1, 5, 8, seed=1)
    y = y if transposed else y.swapaxes(-1, -2)
    product = tensorflow_ops.matmul_transposed if transposed else tensorflow_ops.matmul

    @tf.function
    def with_gradients(x, y):
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            outputs = product(x, y)
        return outputs, tape.gradient(outputs, [x, y])

    outputs, (of_x, of_y) = with_gradients(tf.constant(x), tf.constant(y))
    last = y.swapaxes(-1, -2) if transposed else y
    np.testing.assert_allclose(outputs, x @ last, atol=1e-5)
    assert of_x.shape == x.shape and of_y.shape == y.shape
    nodes = with_gradients.get_concrete_function(tf.constant(x), tf.constant(y)).graph
    products = [node for node in nodes.get_operations() if "MatMul" in node.type]
    assert len(products) == 3 and {node.type for node in products} == {"MatMul"}
