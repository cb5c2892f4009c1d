"""The warm-up and decay of the learning rate."""

import json

import keras
import numpy as np
import pytest

from keras_lm.training import (
    AdamW,
    InverseSquareRoot,
    SlantedTriangular,
    WarmupLinearDecay,
    WarmupPolynomialDecay,
)


@pytest.mark.parametrize(
    "step, expected",
    [(0, 0.0), (5, 0.5), (10, 1.0), (55, 0.5), (99, 1 / 90), (100, 0.0), (1000, 0.0)],
)
def test_values(step, expected):
    schedule = WarmupLinearDecay(peak=1.0, total_steps=100)
    assert float(schedule(step)) == pytest.approx(expected, abs=1e-6)


def test_start_shifts_the_schedule():
    plain = WarmupLinearDecay(peak=2.0, total_steps=20, warmup=0.25)
    late = WarmupLinearDecay(peak=2.0, total_steps=20, warmup=0.25, start=7)
    assert [float(late(s + 7)) for s in range(21)] == [float(plain(s)) for s in range(21)]
    assert float(late(0)) == 0.0


def test_without_warmup_it_only_falls():
    schedule = WarmupLinearDecay(peak=1.0, total_steps=4, warmup=0.0)
    assert [float(schedule(step)) for step in range(5)] == [1.0, 0.75, 0.5, 0.25, 0.0]


@pytest.mark.parametrize("total_steps", [1, 2, 5, 9])
def test_a_few_steps_are_not_wasted_on_warming_up(total_steps):
    rates = [float(WarmupLinearDecay(1.0, total_steps)(step)) for step in range(total_steps)]
    np.testing.assert_allclose(rates, 1 - np.arange(total_steps) / total_steps, atol=1e-6)


def test_without_a_length_it_stays_at_the_peak():
    schedule = WarmupLinearDecay(peak=0.5)
    assert [float(schedule(step)) for step in (0, 1, 10**6)] == [0.5] * 3


def test_plan_fills_the_length_in_unless_it_was_stated():
    schedule = WarmupLinearDecay(peak=1.0)
    schedule.plan(10, 100)
    assert float(schedule(10 + 55)) == pytest.approx(0.5)
    assert (schedule.start, schedule.total_steps) == (10, 100)
    stated = WarmupLinearDecay(peak=1.0, total_steps=7)
    stated.plan(10, 100)
    assert (stated.start, stated.total_steps) == (0, 7)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"peak": 0.0}, "peak=0.0"),
        ({"peak": -1.0}, "peak=-1.0"),
        ({"peak": float("nan")}, "peak=nan"),
        ({"peak": 1.0, "total_steps": 0}, "total_steps=0"),
        ({"peak": 1.0, "warmup": 1.0}, "warmup=1.0"),
        ({"peak": 1.0, "warmup": -0.1}, "warmup=-0.1"),
    ],
)
def test_bad_arguments_are_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        WarmupLinearDecay(**arguments)


def test_config_round_trip():
    stated = WarmupLinearDecay(peak=0.1, total_steps=9, warmup=0.2, start=3)
    config = json.loads(json.dumps(stated.get_config()))
    assert WarmupLinearDecay.from_config(config).get_config() == config
    planned = WarmupLinearDecay(peak=0.1)
    planned.plan(5, 50)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(planned))
    assert again.total_steps is None  # the next fit plans anew
    assert again.start == 0
    again.plan(1, 2)
    assert (again.start, again.total_steps) == (1, 2)


def test_polynomial_decay():
    def fairseq(step, peak, total, warmup, power, end):
        """Its `PolynomialDecayLRSchedule`."""
        if step < warmup:
            return peak * step / warmup
        if step >= total:
            return end
        return (peak - end) * (1 - (step - warmup) / (total - warmup)) ** power + end

    steps = np.arange(120)
    schedule = WarmupPolynomialDecay(0.2, total_steps=100, warmup=0.25, power=2.5, end=0.01)
    expected = [fairseq(step, 0.2, 100, 25, 2.5, 0.01) for step in steps]
    np.testing.assert_allclose(schedule(steps), expected, rtol=1e-5)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    np.testing.assert_array_equal(again(steps), schedule(steps))
    linear = WarmupLinearDecay(0.2, 100)
    np.testing.assert_array_equal(WarmupPolynomialDecay(0.2, 100)(steps), linear(steps))
    assert float(WarmupPolynomialDecay(0.2, end=0.1)(7)) == pytest.approx(0.2)  # until planned
    with pytest.raises(ValueError, match="power=0 is not positive"):
        WarmupPolynomialDecay(1.0, power=0)
    with pytest.raises(ValueError, match=r"end=2\.0 is not in \[0, peak=1\.0\]"):
        WarmupPolynomialDecay(1.0, end=2.0)


def test_a_rate_that_is_set_is_held():
    for schedule in (WarmupLinearDecay(1.0, 10), SlantedTriangular(1.0, 10)):
        optimizer = AdamW(schedule)
        optimizer.learning_rate = 0.25
        assert float(optimizer.learning_rate) == 0.25
        assert [float(schedule(step)) for step in (0, 5, 20)] == [0.25] * 3
        schedule.plan(3, 7)
        assert float(schedule(4)) == 0.25
        optimizer.learning_rate = WarmupLinearDecay(0.5)
        assert float(optimizer.learning_rate) == 0.5


def test_inverse_square_root_is_the_formula_of_the_paper():
    dim, warmup = 64, 40
    schedule = InverseSquareRoot((dim * warmup) ** -0.5, warmup)
    steps = np.array([1, 7, 39, 40, 41, 1000])
    expected = dim**-0.5 * np.minimum(steps**-0.5, steps * warmup**-1.5)
    np.testing.assert_allclose([float(schedule(step)) for step in steps], expected, rtol=1e-6)
    assert float(schedule(0)) == 0.0
    again = InverseSquareRoot.from_config(json.loads(json.dumps(schedule.get_config())))
    assert float(again(np.int64(90))) == float(schedule(90))
    for wrong in ({"peak": 0}, {"peak": 1.0, "warmup_steps": 0}):
        with pytest.raises(ValueError, match=[*wrong][-1]):
            InverseSquareRoot(**wrong)
