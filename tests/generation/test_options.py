"""What a caller may choose: checked in Python, and again in the graph."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.generation.decoding import Limits
from keras_lm.generation.options import (
    OPTIONS,
    Sampling,
    all_options,
    batch_options,
    check_lookup,
    check_options,
    per_row,
    split_stop,
)

WRONG = {
    "max_new_tokens": [-1],
    "temperature": [-0.1, np.nan, np.inf],
    "top_k": [-1],
    "top_p": [0.0, -1.0, 1.01, np.nan],
    "repetition_penalty": [0.0, -1.0, np.inf],
    "no_repeat_ngram_size": [-2],
    "seed": [-2],
}
CASES = [(name, value) for name, values in WRONG.items() for value in values]


@pytest.mark.parametrize(("name", "value"), CASES)
def test_values_out_of_range_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name}=.*must be"):
        check_options(**{name: value})
    with pytest.raises(ValueError, match=f"{name}=.*must be"):
        check_options(**{name: [OPTIONS[name].default, value]})
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"{name}=.*must be"):
        batch_options(2, **{name: [OPTIONS[name].default, value]})


@pytest.mark.parametrize(
    ("name", "value"), [("top_k", 2.5), ("top_p", "all"), ("seed", 1.0), ("temperature", [[1.0]])]
)
def test_what_is_no_such_number_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name}=.* is not a"):
        check_options(**{name: value})


def test_options_are_there_for_each_row():
    options = batch_options(3, top_k=5, seed=[1, 2, 3], top_p=[0.5])
    assert [options._asdict()[name].shape for name in OPTIONS] == [(3,)] * len(OPTIONS)
    assert options.forbidden is None
    assert batch_options(3, forbidden=np.array([[1, 2]])).forbidden.shape == (3, 1, 2)
    np.testing.assert_array_equal(options.seed, [1, 2, 3])
    np.testing.assert_allclose(options.top_p, [0.5] * 3)
    np.testing.assert_array_equal(options.top_k, [5] * 3)
    np.testing.assert_array_equal(options.temperature, [0.0] * 3)
    with pytest.raises(ValueError, match="beams"):
        batch_options(3, beams=2)


@pytest.mark.parametrize(("name", "value"), [("max_new_tokens", 2**31), ("seed", 2**63)])
def test_values_that_their_type_cannot_hold_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name}={value} is out of range"):
        check_options(**{name: value})


LIMITS = Limits(end_ids=[], window=8, max_new_tokens=4)


def test_defaults_stand_in_for_none():
    assert all_options(LIMITS, top_k=3, seed=None)["top_k"] == 3
    assert all_options(LIMITS, top_k=3, seed=None)["seed"] == OPTIONS["seed"].default
    assert all_options(LIMITS)["max_new_tokens"] == 4


def test_new_tokens_leave_room_for_a_prompt():
    assert all_options(LIMITS, max_new_tokens=[1, 7])["max_new_tokens"] == [1, 7]
    assert all_options(LIMITS._replace(window=None), max_new_tokens=99)["max_new_tokens"] == 99
    with pytest.raises(ValueError, match="leaves no room for a prompt in the window of 8"):
        all_options(LIMITS, max_new_tokens=[1, 8])


def test_lists_need_a_value_for_each_prompt():
    assert per_row({"seed": 3}, 2)["seed"].tolist() == [3, 3]
    with pytest.raises(ValueError, match="seed has 3 values for 2 prompts"):
        per_row({"seed": [1, 2, 3]}, 2)


def check(prompt_lookup=0, **arguments):
    check_lookup(prompt_lookup, Sampling(**arguments).num_beams)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_beams": 0}, "num_beams=0"),
        ({"num_beams": 2.0}, "num_beams=2.0"),
        ({"num_return_sequences": 0}, "num_return_sequences=0"),
        ({"num_return_sequences": 2}, "at most num_beams=1"),
        ({"num_return_sequences": 3, "num_beams": 2}, "at most num_beams=2"),
        ({"top_k": 4}, "top_k=4 has no effect"),
        ({"top_p": 0.5, "temperature": 0.0}, "top_p=0.5 has no effect"),
        ({"num_beams": 2, "temperature": 1.0}, "does not sample"),
        ({"length_penalty": float("nan"), "num_beams": 2}, "length_penalty=nan"),
        ({"length_penalty": "long"}, "length_penalty='long'"),
        ({"prompt_lookup": -1}, "prompt_lookup=-1"),
        ({"prompt_lookup": 0.5}, "prompt_lookup=0.5"),
        ({"prompt_lookup": 3, "num_beams": 2}, "num_beams=2 with prompt_lookup=3"),
    ],
)
def test_ways_of_decoding_that_exclude_each_other(arguments, message):
    with pytest.raises(ValueError, match=message):
        check(**arguments)


def test_names_of_other_libraries_are_refused():
    for name, remedy in (
        ("max_length", r"Pass max_new_tokens"),
        ("do_sample", r"Pass temperature=1\.0"),
        ("num_beam", r"Did you mean num_beams"),
        ("x", r"There are max_new_tokens, temperature"),
    ):
        message = rf"^{name} is not an option of generation\. .*{remedy}"
        with pytest.raises(TypeError, match=message):
            Sampling.of(5, {name: 1})
    assert Sampling.of(5, {"num_beams": 2}) == Sampling(max_new_tokens=5, num_beams=2)


def test_ways_of_decoding_that_go_together():
    check()
    check(temperature=0.7, top_k=3, top_p=1, num_return_sequences=9)
    check(prompt_lookup=3, temperature=1.0, num_return_sequences=2)
    check(num_beams=3, num_return_sequences=3, length_penalty=-1)


def test_stop_takes_strings_and_ids_alone_or_in_a_list():
    assert split_stop(None, 9) == ([], [])
    assert split_stop("é", 9) == (["é".encode()], [])
    assert split_stop(0, 9) == ([], [0])
    assert split_stop(["a", b"\xff", np.int64(8)], 9) == ([b"a", b"\xff"], [8])


@pytest.mark.parametrize("stop", ["", ["a", ""], 9, [-1], [None], [1.5], True])
def test_stop_takes_nothing_else(stop):
    with pytest.raises(ValueError, match="stop has"):
        split_stop(stop, 9)
