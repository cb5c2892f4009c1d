"""AdamW and LAMB: their defaults, what they decay, and their steps beside the papers' formulas."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import BertBackbone
from keras_lm.tasks import TextClassifier
from keras_lm.training import AdamW, Lamb, WarmupLinearDecay, enable_lora


def variable(name, value=1.0):
    return keras.Variable(np.full((2, 2), value, "float32"), name=name)


def test_defaults_are_those_of_fine_tuning():
    optimizer = AdamW()
    assert isinstance(optimizer._learning_rate, WarmupLinearDecay)
    assert float(optimizer.learning_rate) == pytest.approx(5e-5)
    assert optimizer.weight_decay == 0.01
    assert optimizer.epsilon == 1e-6
    assert optimizer.global_clipnorm == 1.0


def test_decays_kernels_and_embeddings_only():
    backbone = BertBackbone(10, num_layers=1, num_heads=2, hidden_dim=4, intermediate_dim=6)
    for weight in backbone.trainable_weights:
        weight.assign(np.ones(weight.shape))
    optimizer = AdamW(learning_rate=0.5, weight_decay=0.1)
    weights = backbone.trainable_weights
    optimizer.apply([np.zeros(w.shape, "float32") for w in weights], weights)
    decayed = {"kernel", "embeddings"}
    for weight in weights:
        expected = 1 - 0.5 * 0.1 if weight.name in decayed else 1.0
        np.testing.assert_allclose(weight, expected, atol=1e-6, err_msg=weight.path)
    assert {w.name for w in weights} == decayed | {"bias", "gamma", "beta"}


def test_one_step_equals_the_formula():
    weight = variable("kernel")
    optimizer = AdamW(learning_rate=0.1, weight_decay=0.01, epsilon=1e-6)
    gradient = np.array([[0.1, -0.2], [0.3, 0.0]], "float32")
    optimizer.apply([gradient], [weight])
    expected = 1.0 * (1 - 0.1 * 0.01) - 0.1 * gradient / (np.abs(gradient) + 1e-6)
    np.testing.assert_allclose(weight, expected, rtol=1e-3)


def published_steps(weights, gradients, rate, trust, corrected):
    """BERT's AdamW, or LAMB (algorithm 2 of its paper; kernels only), in float64.

    `weights` are updated in place; `gradients` has a list for each step.
    """
    beta_1, beta_2, epsilon, decay, norm = 0.9, 0.999, 1e-6, 0.1, 1.0
    m = dict.fromkeys(weights, 0.0)
    v = dict.fromkeys(weights, 0.0)
    for step, grads in enumerate(gradients, start=1):
        clip = max(1.0, np.sqrt(sum((g**2).sum() for g in grads)) / norm)
        for name, grad in zip(weights, grads, strict=True):
            m[name] = beta_1 * m[name] + (1 - beta_1) * grad / clip
            v[name] = beta_2 * v[name] + (1 - beta_2) * (grad / clip) ** 2
            update = m[name] / (1 - beta_1**step if corrected else 1)
            update = update / (np.sqrt(v[name] / (1 - beta_2**step if corrected else 1)) + epsilon)
            length = 1.0
            if name == "kernel":
                update = update + decay * weights[name]
                if trust and np.any(weights[name]):
                    length = np.linalg.norm(weights[name]) / np.linalg.norm(update)
            weights[name] = weights[name] - rate * length * update


@pytest.mark.parametrize("start", ["drawn", "zero"])
@pytest.mark.parametrize("cls, corrected", [(AdamW, False), (Lamb, True), (Lamb, False)])
def test_steps_are_the_published_ones(cls, corrected, start):
    random = np.random.default_rng(0)
    weights = {"kernel": random.normal(size=(9, 4)), "bias": random.normal(size=4)}
    if start == "zero":
        weights = {name: np.zeros_like(value) for name, value in weights.items()}
    variables = [keras.Variable(v, dtype="float32", name=name) for name, v in weights.items()]
    # A rate so high that it matters that BERT decays the weight and not the updated one.
    optimizer = cls(
        keras.optimizers.schedules.PolynomialDecay(0.3, 1, 0.3),
        weight_decay=0.1,
        bias_correction=corrected,
    )
    optimizer.build(variables)
    step = tf.function(lambda *grads: optimizer.apply(grads, variables), autograph=False)
    gradients = [[random.normal(size=v.shape) for v in weights.values()] for _ in range(4)]
    for grads in gradients:
        step(*(tf.constant(grad, tf.float32) for grad in grads))
    published_steps(weights, gradients, 0.3, trust=cls is Lamb, corrected=corrected)
    for variable, expected in zip(variables, weights.values(), strict=True):
        np.testing.assert_allclose(variable, expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
@pytest.mark.parametrize("cls", [AdamW, Lamb])
def test_steps_of_other_precisions_are_the_published_ones_to_rounding(cls, dtype):
    """One norm clips weights of both precisions, and the moments change by every step."""
    other = "float64" if dtype == "float64" else "float32"
    random = np.random.default_rng(0)
    weights = {"kernel": random.normal(size=(9, 4)), "bias": random.normal(size=4)}
    variables = [
        keras.Variable(weights["kernel"], dtype=dtype, name="kernel"),
        keras.Variable(weights["bias"], dtype=other, name="bias"),
    ]
    schedule = keras.optimizers.schedules.PolynomialDecay(0.1, 1, 0.1)
    optimizer = cls(schedule, weight_decay=0.1, bias_correction=cls is Lamb)
    gradients = [[random.normal(size=v.shape) for v in weights.values()] for _ in range(6)]
    for grads in gradients:
        grads = [tf.cast(grad, variable.dtype) for grad, variable in zip(grads, variables)]
        optimizer.apply(grads, variables)
    published_steps(weights, gradients, 0.1, trust=cls is Lamb, corrected=cls is Lamb)
    # Rates and betas are float32 whatever the weights are.
    rounding = 6 * {"bfloat16": 2**-8, "float16": 2**-11, "float64": 1e-5}[dtype]
    for variable, expected in zip(variables, weights.values(), strict=True):
        actual = keras.ops.cast(variable, other)
        np.testing.assert_allclose(actual, expected, atol=rounding, rtol=rounding)
    moments = [v for v in optimizer.variables if "kernel" in v.path]
    assert [v.dtype for v in moments] == [other] * 2
    assert {v.name for v in moments} == {"kernel_momentum", "kernel_velocity"}


def losses_of(dtype, tokenizer, lora):
    keras.utils.set_random_seed(0)
    size = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
    backbone = BertBackbone(tokenizer.vocabulary_size, **size, dropout=0.0, dtype=dtype)
    for weight in backbone.trainable_variables:
        weight.assign(10 * weight)  # so that few steps teach something
    task = TextClassifier(backbone, tokenizer=tokenizer, num_classes=2)
    if lora:
        enable_lora(task, rank=2)
    task.compile(optimizer=AdamW(0.05), run_eagerly=True)
    return task.fit(["good film", "bad cast"] * 2, [0, 1] * 2, epochs=8, verbose=0).history["loss"]


@pytest.mark.thorough
@pytest.mark.eager
@pytest.mark.parametrize(("dtype", "lora"), [("bfloat16", True), ("float16", False)])
def test_a_task_of_half_precision_learns(dtype, lora, tokenizer_of):
    losses = losses_of(dtype, tokenizer_of("wordpiece"), lora)
    assert losses[-1] < 0.95 * losses[0]


def test_options_that_exclude_each_other():
    with pytest.raises(ValueError, match="amsgrad=True"):
        AdamW(amsgrad=True, bias_correction=False)
    with pytest.raises(ValueError, match="amsgrad=True: LAMB"):
        Lamb(amsgrad=True)


def test_a_weight_decays_after_its_gradient_is_there():
    weight, optimizer = variable("kernel"), AdamW(learning_rate=0.1)
    optimizer.build([weight])

    @tf.function
    def step(gradient):
        optimizer.apply([gradient], [weight])

    graph = step.get_concrete_function(tf.TensorSpec([2, 2], tf.float32, "gradient")).graph
    assigned = [op for op in graph.get_operations() if op.type == "AssignVariableOp"]
    handle = graph.capture(weight.value.handle)
    (decay,) = [op for op in assigned if op.inputs[0] is handle]
    before, waiting = set(), [decay]
    while waiting:
        op = waiting.pop()
        before.add(op.name)
        waiting += [*op.control_inputs, *(tensor.op for tensor in op.inputs)]
    assert "gradient" in before


def test_gradients_are_clipped_together():
    weights = [variable("kernel", 0.0), variable("bias", 0.0)]
    optimizer = AdamW(learning_rate=1.0, weight_decay=0.0, epsilon=1e3)  # so large: nearly linear
    optimizer.apply([np.full((2, 2), 30.0, "float32"), np.full((2, 2), 40.0, "float32")], weights)
    # In all they have the norm 100, so they become 0.3 and 0.4; the rest is Adam's first step.
    step = 1e-3 * np.sqrt(1 - 0.999)
    np.testing.assert_allclose(weights[0], -0.3 * step, rtol=1e-2)
    np.testing.assert_allclose(weights[1], -0.4 * step, rtol=1e-2)


@pytest.mark.parametrize("accumulated", [None, 2])
def test_fused_steps_equal_those_of_keras(accumulated):
    options = {"weight_decay": 0.1, "global_clipnorm": 1.0, "epsilon": 1e-6}
    options["gradient_accumulation_steps"] = accumulated
    schedule = keras.optimizers.schedules.PolynomialDecay(0.1, 8)
    random = np.random.default_rng(0)
    start = {"kernel": random.normal(size=(9, 4)), "bias": random.normal(size=4)}
    results = []
    for optimizer in (AdamW(schedule, **options), keras.optimizers.AdamW(schedule, **options)):
        weights = [
            keras.Variable(value, dtype="float32", name=name) for name, value in start.items()
        ]
        if type(optimizer) is keras.optimizers.AdamW:
            optimizer.exclude_from_weight_decay(var_names=["bias"])
        optimizer.build(weights)
        step = tf.function(lambda *grads: optimizer.apply(grads, weights))  # noqa: B023
        random = np.random.default_rng(1)
        for _ in range(6):
            step(*(tf.constant(random.normal(size=w.shape), tf.float32) for w in weights))
        results.append([keras.ops.convert_to_numpy(w) for w in weights])
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_rows_looked_up_twice_are_clipped_by_their_sum():
    table = keras.Variable(np.zeros((3, 1), "float32"), name="embeddings")
    optimizer = AdamW(learning_rate=1.0, weight_decay=0.0, epsilon=1e3)
    grad = tf.IndexedSlices(tf.constant([[3.0], [3.0]]), tf.constant([1, 1]), tf.constant([3, 1]))
    optimizer.apply([grad], [table])
    step = 1e-3 * np.sqrt(1 - 0.999)  # of a gradient clipped from 6 to 1
    np.testing.assert_allclose(table, [[0.0], [-step], [0.0]], rtol=1e-2)


def test_trains_under_a_strategy():
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, name="kernel")])
        model.compile(AdamW(0.1), "mse", jit_compile=False)
    x = np.ones((8, 2), "float32")
    losses = model.fit(x, x[:, :1], epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


def test_takes_schedules_of_keras():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)
    assert AdamW(schedule)._learning_rate is schedule


@pytest.mark.parametrize("cls", [AdamW, Lamb])
def test_config_round_trip(cls):
    schedule = WarmupLinearDecay(0.1, total_steps=9)
    optimizer = cls(schedule, weight_decay=0.3, beta_2=0.98, bias_correction=False)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert type(again) is cls
    assert again.bias_correction is False
    assert again.get_config() == optimizer.get_config()
    assert again._learning_rate.total_steps == 9
    bias = variable("bias")
    again.apply([np.zeros((2, 2), "float32")], [bias])
    np.testing.assert_array_equal(bias, 1.0)
