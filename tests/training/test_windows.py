"""Runs on windows of tokens: interrupted or not, they come to the same weights."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm import training
from keras_lm.data import window_batches
from keras_lm.models import GPT2Backbone
from keras_lm.tasks import CausalLM

S, V = 8, 50


@pytest.fixture(scope="module")
def windows():
    """27 windows: six batches of 4 an epoch, and some that do not fill one."""
    tokens = np.random.default_rng(0).integers(0, V, (27, S + 1)).astype("int32")
    return tf.data.Dataset.from_tensor_slices(tokens)


def make(seed, learning_rate=1e-2, optimizer=None, dtype=None, **options):
    keras.utils.set_random_seed(seed)
    backbone = GPT2Backbone(V, 1, 2, 8, 16, dropout=0.2, max_sequence_length=S, dtype=dtype)
    task = CausalLM(backbone)
    optimizer = optimizer(task) if optimizer else training.AdamW(learning_rate)
    task.compile(optimizer=optimizer, **options)
    return task


def fit(task, windows, **options):
    options = {"batch_size": 4, "epochs": 2, "verbose": 0} | options
    return training.fit_windows(task, windows, **options)


def state(task):
    variables = [*task.variables, *task.optimizer.variables]
    return [keras.ops.convert_to_numpy(variable) for variable in variables]


@pytest.fixture(scope="module")
def in_one_go(windows):
    task = make(seed=1)
    uncounted = windows.filter(lambda _: True)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "Your input ran out of data")  # Keras's
        history = fit(task, uncounted, validation_windows=uncounted)
    return state(task), history


@pytest.mark.slow
def test_learns_and_reports_each_epoch(in_one_go):
    _, history = in_one_go
    assert len(history["loss"]) == len(history["val_perplexity"]) == 2
    assert history["val_loss"][1] < history["val_loss"][0] < np.log(V) + 0.5
    np.testing.assert_allclose(history["val_perplexity"], np.exp(history["val_loss"]), rtol=1e-4)


@pytest.mark.slow
def test_interrupted_run_goes_on_bit_for_bit(windows, in_one_go, tmp_path, interrupt_before):
    file = tmp_path / "run" / "state.safetensors"
    for seed, step in [(1, 3), (100, 5)]:  # within the first epoch, and within the second
        with pytest.raises(KeyboardInterrupt):
            fit(make(seed), windows, checkpoint=file, minutes=0, callbacks=[interrupt_before(step)])
    task = make(seed=101)  # by another seed: what is restored is not made again by luck
    history = fit(task, windows, checkpoint=file, minutes=0, validation_windows=windows)
    for ours, theirs in zip(state(task), in_one_go[0], strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert history["val_loss"][-1] == in_one_go[1]["val_loss"][-1]
    # At its end there is nothing left to train.
    again = make(seed=102)
    assert fit(again, windows, checkpoint=file) == {}
    np.testing.assert_array_equal(state(again)[0], in_one_go[0][0])


def by_layer(task):
    schedule = training.WarmupPolynomialDecay(1e-2, power=2.0, end=1e-4)
    return training.DiscriminativeAdamW.for_task(
        task, factor=1.2, learning_rate=schedule, bias_correction=False
    )


def accumulating(task):
    return training.Lamb(1e-2, gradient_accumulation_steps=2)


def overflowing(task):
    """Its first steps are skipped, until the scale is low enough."""
    inner = training.AdamW(1e-2)
    return keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**19, name="scaled")


@pytest.mark.thorough
@pytest.mark.eager
@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": lambda task: training.Lamb(1e-2), "micro_batch_size": 3},
        pytest.param({"optimizer": by_layer}, marks=pytest.mark.thorough),
        pytest.param({"optimizer": accumulating}, marks=pytest.mark.thorough),
        {"optimizer": overflowing, "dtype": "mixed_float16"},
    ],
    ids=["lamb-in-parts", "by-layer", "accumulating", "float16"],
)
def test_every_optimizer_goes_on_bit_for_bit(windows, tmp_path, options, interrupt_before):
    file = tmp_path / "state.safetensors"
    windows = windows.take(8)
    whole = make(1, **options)
    fit(whole, windows)
    with pytest.raises(KeyboardInterrupt):
        fit(
            make(1, **options), windows, checkpoint=file, minutes=0, callbacks=[interrupt_before(3)]
        )
    task = make(100, **options)
    fit(task, windows, checkpoint=file)
    for ours, theirs in zip(state(task), state(whole), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    skipped = 4 - int(keras.ops.convert_to_numpy(task.optimizer.iterations))
    assert (skipped > 0) == (options["optimizer"] in (accumulating, overflowing))
    assert skipped < 4


@pytest.mark.slow
@pytest.mark.eager
def test_steps_since_the_last_save_are_taken_again(windows, tmp_path, interrupt_before):
    file, windows = tmp_path / "state.safetensors", windows.take(8)
    whole = make(seed=1)
    fit(whole, windows)
    with pytest.raises(KeyboardInterrupt):
        # Saves after the first epoch, and not again until the interruption.
        fit(make(seed=1), windows, checkpoint=file, minutes=60, callbacks=[interrupt_before(3)])
    task = make(seed=100)
    fit(task, windows, checkpoint=file)
    np.testing.assert_array_equal(state(task)[0], state(whole)[0])


@pytest.mark.eager
def test_kill_while_saving_leaves_the_last_state(windows, tmp_path, monkeypatch, interrupt_before):
    file = tmp_path / "state.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(make(seed=1), windows, checkpoint=file, minutes=0, callbacks=[interrupt_before(2)])
    before = file.read_bytes()

    def killed(arrays, path, metadata):
        path.write_bytes(b"half of it")
        raise SystemExit

    monkeypatch.setattr("keras_lm.training.checkpointing.save_checked", killed)
    with pytest.raises(SystemExit):
        fit(make(seed=1), windows, checkpoint=file, minutes=0)
    assert file.read_bytes() == before


@pytest.mark.eager
def test_other_runs_are_refused(windows, tmp_path, interrupt_before):
    file = tmp_path / "state.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(make(seed=1), windows, checkpoint=file, minutes=0, callbacks=[interrupt_before(1)])
    with pytest.raises(ValueError, match=r"seed=0, and not 7.*remove it"):
        fit(make(seed=1), windows, checkpoint=file, seed=7)
    with pytest.raises(ValueError, match=r"run with optimizer="):
        fit(make(seed=1, learning_rate=1.0), windows, checkpoint=file)
    with pytest.raises(ValueError, match="windows=27, and not 20"):
        fit(make(seed=1), windows.take(20), checkpoint=file)
    other = CausalLM(GPT2Backbone(V, 2, 2, 8, 16, max_sequence_length=S))
    other.compile(optimizer=training.AdamW(1e-2))
    with pytest.raises(ValueError, match="another model"):
        fit(other, windows, checkpoint=file)
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(ValueError, match="not a complete checkpoint"):
        fit(make(seed=1), windows, checkpoint=file)


@pytest.mark.eager
def test_too_few_windows(windows):
    with pytest.raises(ValueError, match="There are 3 windows, and batch_size=4"):
        fit(make(seed=1), windows.take(3))


@pytest.mark.slow
@pytest.mark.eager
def test_schedule_spans_the_run_and_is_free_again(windows):
    task = make(seed=1)
    rates = []
    note = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: rates.append(float(task.optimizer.learning_rate))
    )
    fit(task, windows, epochs=1, steps=11, callbacks=[note])  # an epoch has six
    # Rising over a tenth of 11 steps; the rate is read after the step.
    np.testing.assert_allclose(rates, [1e-2 * (11 - s) / 10 for s in range(1, 12)], atol=1e-8)
    with pytest.raises(ValueError, match="epochs=2 and steps=3: pass one"):
        fit(task, windows, steps=3)
    schedule = task.optimizer._learning_rate
    assert schedule.is_planned_by_fit
    schedule.plan(11, 5)
    assert schedule.total_steps == 5


@pytest.mark.eager
def test_reports_on_the_way_change_nothing(windows, tmp_path):
    task, windows = make(1), windows.take(12)  # an epoch has three steps
    batches = window_batches(windows.take(4), 4)
    evaluation = training.EvaluateEvery(2, batches)
    shown = []
    note = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: shown.append(logs.get("val_loss"))
    )
    speed = training.TokensPerSecond(4 * S)
    board = keras.callbacks.TensorBoard(tmp_path / "logs", update_freq=1)
    options = {"validation_windows": windows.take(4), "callbacks": [speed, evaluation, note, board]}
    history = fit(task, windows, **options)
    plain = make(1)
    expected = fit(plain, windows, validation_windows=windows.take(4))
    for ours, theirs in zip(state(task), state(plain), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(history["loss"], expected["loss"])
    assert [entry["step"] for entry in evaluation.history] == [2, 4, 6]
    assert evaluation.history[-1]["val_loss"] == history["val_loss"][-1]
    assert [number for number, loss in enumerate(shown, 1) if loss is not None] == [2, 4, 6]
    assert all(rate > 0 for rate in history["tokens_per_second"])
    assert list((tmp_path / "logs").rglob("events*"))
    with pytest.raises(ValueError, match="steps=0"):
        training.EvaluateEvery(0, batches)


@pytest.mark.eager
def test_state_that_is_no_number_is_not_saved(windows, tmp_path):
    file = tmp_path / "state.safetensors"
    history = fit(
        make(seed=1, learning_rate=1e30),
        windows,
        checkpoint=file,
        callbacks=[keras.callbacks.TerminateOnNaN()],
    )
    assert not np.isfinite(history["loss"][-1])
    assert not file.exists()
