"""LSTM and GRU with explicit state: equal to Keras's own, under padding, in parts, in training."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.layers.recurrent import GRU, LSTM, BidirectionalGRU, BidirectionalLSTM, scan

UNITS, WIDTH = 5, 3


def random(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def randomised(cls=LSTM, **options):
    layer = cls(UNITS, **options)
    layer.build((None, None, WIDTH))
    for seed, weight in enumerate(layer.trainable_weights):
        weight.assign(random(*weight.shape, seed=seed) * 0.4)
    return layer


def reference(layer):
    """Keras's own LSTM with the same weights, which come in the same order."""
    own = keras.layers.LSTM(
        UNITS,
        return_sequences=True,
        return_state=True,
        go_backwards=layer.reverse,
        use_bias=layer.use_bias,
    )
    own.build((None, None, WIDTH))
    own.set_weights([weight.numpy() for weight in layer.trainable_weights])
    return own


def assert_close(actual, expected):
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"reverse": True}, {"use_bias": False}])
def test_equals_keras(options):
    layer = randomised(**options)
    x = random(2, 7, WIDTH)
    start = {"hidden": random(2, UNITS, seed=8), "cell": random(2, UNITS, seed=9)}
    for state in (None, start):
        outputs, last = layer(x, state=state)
        initial = None if state is None else [state["hidden"], state["cell"]]
        expected, hidden, cell = reference(layer)(x, initial_state=initial)
        assert_close(outputs, expected[:, ::-1] if layer.reverse else expected)
        assert_close(last["hidden"], hidden)
        assert_close(last["cell"], cell)


def test_a_gru_equals_keras():
    layer = randomised(GRU)
    own = keras.layers.GRU(
        UNITS, return_sequences=True, return_state=True, reset_after=False, activation="tanh"
    )
    own.build((None, None, WIDTH))
    own.set_weights([weight.numpy() for weight in layer.trainable_weights])
    x, start = random(2, 7, WIDTH), random(2, UNITS, seed=8)
    outputs, last = layer(x, state={"hidden": start})
    expected, hidden = own(x, initial_state=start)
    assert_close(outputs, expected)
    assert_close(last["hidden"], hidden)


def test_a_gru_in_both_directions():
    layer = BidirectionalGRU(UNITS)
    x, mask = random(2, 4, WIDTH), np.array([[1, 1, 1, 0], [1, 1, 1, 1]], "int32")
    outputs, state = layer(x, padding_mask=mask)
    forward, backward = layer.directions
    assert isinstance(backward, GRU) and backward.reverse
    assert_close(outputs[..., UNITS:], backward(x, padding_mask=mask)[0])
    assert_close(state["hidden"][:, :UNITS], forward(x, padding_mask=mask)[1]["hidden"])
    again = BidirectionalGRU.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()


@pytest.mark.parametrize("cls", [LSTM, GRU])
@pytest.mark.parametrize("reverse", [False, True])
def test_padding_on_either_side_changes_nothing(reverse, cls):
    layer = randomised(cls, reverse=reverse)
    x = random(1, 4, WIDTH)
    alone, alone_state = layer(x)
    noise = random(1, 2, WIDTH, seed=5)
    for parts, mask in (
        ([x, noise], [1, 1, 1, 1, 0, 0]),
        ([noise, x], [0, 0, 1, 1, 1, 1]),
        ([x[:, :1], noise, x[:, 1:]], [1, 0, 0, 1, 1, 1]),
    ):
        mask = np.array([mask], "int32")
        outputs, state = layer(np.concatenate(parts, axis=1), padding_mask=mask)
        outputs = np.asarray(outputs)
        assert_close(outputs[mask > 0], alone[0])
        assert np.all(outputs[mask == 0] == 0)
        for name in layer.parts:
            assert_close(state[name], alone_state[name])


def test_rows_do_not_see_each_others_padding():
    layer = randomised()
    x = random(2, 3, WIDTH)
    start = {"hidden": random(2, UNITS, seed=8), "cell": random(2, UNITS, seed=9)}
    outputs, state = layer(x, padding_mask=np.array([[0, 0, 0], [1, 1, 1]], "int32"), state=start)
    assert np.all(np.asarray(outputs)[0] == 0)
    assert_close(state["cell"][0], start["cell"][0])  # all padding: as it was
    one = {name: value[1:] for name, value in start.items()}
    assert_close(outputs[1:], layer(x[1:], state=one)[0])


def test_two_calls_are_one():
    layer = randomised()
    x = random(2, 6, WIDTH)
    whole, last = layer(x)
    first, state = layer(x[:, :4])
    rest, state = layer(x[:, 4:], state=state)
    assert_close(np.concatenate([first, rest], axis=1), whole)
    assert_close(state["cell"], last["cell"])


@pytest.mark.parametrize("rows, length", [(2, 0), (0, 3), (0, 0)])
def test_nothing_to_read(rows, length):
    layer = randomised()
    start = {"hidden": random(rows, UNITS), "cell": random(rows, UNITS)}
    mask = np.ones((rows, length), "int32")

    @tf.function(input_signature=[tf.TensorSpec([None, None, WIDTH])], autograph=False)
    def in_graph(x):
        return layer(x, padding_mask=mask, state=start)

    for call in (in_graph, lambda x: layer(x, padding_mask=mask, state=start)):
        outputs, state = call(tf.zeros([rows, length, WIDTH]))
        assert outputs.shape == (rows, length, UNITS)
        assert not np.isnan(np.asarray(state["hidden"])).any()
        if not length:
            assert_close(state["cell"], start["cell"])


def test_gradients_equal_those_of_keras():
    layer = randomised()
    own = reference(layer)
    x = tf.constant(random(2, 7, WIDTH))
    mask = np.array([[1] * 7, [1] * 4 + [0] * 3], "int32")
    weight = random(2, 7, UNITS, seed=3) * mask[:, :, None]  # Keras repeats outputs in padding

    def gradients(layer, **mask):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(layer(x, **mask)[0] * weight)
        return tape.gradient(loss, [x, *(v.value for v in layer.trainable_variables)])

    in_graph = tf.function(lambda: gradients(layer, padding_mask=mask), autograph=False)
    for ours, theirs in zip(in_graph(), gradients(own, mask=mask > 0), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.eager
def test_fits_in_a_functional_model_and_comes_back_from_its_config(tmp_path):
    inputs = keras.Input((None, WIDTH)), keras.Input((None,), dtype="int32")
    forward, _ = LSTM(UNITS, name="forward")(inputs[0], padding_mask=inputs[1])
    backward, state = LSTM(UNITS, reverse=True)(inputs[0], padding_mask=inputs[1])
    assert forward.shape == (None, None, UNITS)
    outputs = keras.layers.Dense(1)(means_and(forward, backward, state["hidden"]))
    model = keras.Model(inputs, outputs)
    model.compile(keras.optimizers.Adam(0.1), "mse")
    x, mask = random(8, 6, WIDTH), np.ones((8, 6), "int32")
    mask[::2, 4:] = 0
    y = x[:, 0, :1]
    losses = model.fit([x, mask], y, epochs=6, batch_size=8, verbose=0).history["loss"]
    assert losses[-1] < 0.8 * losses[0]
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert_close(again([x, mask]), model([x, mask]))


def means_and(forward, backward, hidden):
    mean = keras.layers.GlobalAveragePooling1D()
    return keras.layers.Concatenate()([mean(forward), mean(backward), hidden])


def test_both_directions_side_by_side():
    layer = BidirectionalLSTM(UNITS)
    x, mask = random(2, 4, WIDTH), np.array([[1, 1, 1, 0], [1, 1, 1, 1]], "int32")
    start = {"hidden": random(2, 2 * UNITS, seed=8), "cell": random(2, 2 * UNITS, seed=9)}
    outputs, state = layer(x, padding_mask=mask, state=start)
    halves = []
    for i, direction in enumerate(layer.directions):
        half = {name: value[:, i * UNITS : (i + 1) * UNITS] for name, value in start.items()}
        halves.append(direction(x, padding_mask=mask, state=half))
    assert layer.directions[1].reverse
    assert_close(outputs, np.concatenate([half[0] for half in halves], axis=-1))
    assert_close(state["cell"], np.concatenate([half[1]["cell"] for half in halves], axis=-1))
    shapes = layer.compute_output_shape((2, 4, WIDTH))
    assert shapes == (outputs.shape, {name: value.shape for name, value in state.items()})


def test_weight_drop_zeroes_the_recurrent_kernel_in_training_only():
    layer = randomised(weight_drop=0.5)
    x = random(1, 2, WIDTH)
    plain, _ = layer(x)
    assert_close(layer(x, training=False)[0], plain)
    dropped = [np.asarray(layer(x, training=True)[0]) for _ in range(5)]
    for outputs in dropped:
        assert_close(outputs[:, 0], plain[:, 0])  # the first step has no recurrent part
    assert len({outputs[0, 1, 0] for outputs in dropped}) > 1
    # One mask for all rows: equal rows stay equal.
    twice, _ = layer(np.repeat(x, 2, axis=0), training=True)
    assert_close(twice[0], twice[1])


def test_half_precision_keeps_its_type():
    layer = LSTM(UNITS, dtype="mixed_bfloat16")
    outputs, state = layer(random(2, 4, WIDTH))
    assert {outputs.dtype, state["hidden"].dtype, state["cell"].dtype} == {tf.bfloat16}
    assert layer.kernel.dtype == "float32"


@pytest.mark.parametrize("cls", [LSTM, GRU])
def test_double_precision_goes_through_all_steps(cls):
    layer = randomised(cls, dtype="float64")
    x = random(2, 7, WIDTH).astype("float64")
    moved = x.copy()
    moved[:, 0] += 1e-12  # of no effect in float32
    (outputs, state), (others, _) = layer(x), layer(moved)
    assert {tensor.dtype for tensor in (outputs, *state.values())} == {tf.float64}
    distance = np.abs(outputs - others)[:, -1]
    assert ((distance > 1e-18) & (distance < 1e-11)).all()


def test_a_share_out_of_range():
    with pytest.raises(ValueError, match=r"weight_drop=1.0: pass a number"):
        LSTM(UNITS, weight_drop=1.0)


def test_the_loop_equals_that_of_keras_ops():
    layer_step = lambda carry, xs: ((carry[0] * 0.5 + xs[0], carry[1] + 1), carry[0] - xs[0])  # noqa: E731
    init = tf.zeros([2, 3]), tf.zeros([2, 3])
    xs = (tf.constant(random(4, 2, 3)),)
    for reverse in (False, True):
        carry, ys = scan(layer_step, init, xs, reverse=reverse)
        expected, _ = keras.ops.scan(
            lambda c, x: (layer_step(c, x)[0], None), init, xs, reverse=reverse
        )
        assert_close(carry[0], expected[0])
        assert_close(carry[1], expected[1])
        assert ys.shape == (4, 2, 3)
        assert_close(ys[-1 if reverse else 0], -xs[0][-1 if reverse else 0])
