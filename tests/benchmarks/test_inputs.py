"""What every peer gets, and how generating is timed."""

import inputs
import numpy as np
import pytest


def test_prompts_are_the_same_for_all_and_without_padding():
    prompts = inputs.prompts(3, 5)
    assert prompts.shape == (3, 5)
    assert prompts.dtype == "int32"
    assert prompts.max() < inputs.GPT2_VOCABULARY_SIZE
    np.testing.assert_array_equal(prompts, inputs.prompts(3, 5))


def test_round_of_generating_has_all_numbers():
    asked = []

    def generate(number):
        asked.append(number)
        return number

    run_round = inputs.generating(generate, new_tokens=7, calls=2)
    numbers = run_round()
    assert asked == [7, 1, 7, 1, 7]
    assert set(numbers) == {"prefill", "seconds", "first_call", "memory"}
    assert len(numbers["seconds"]) == len(numbers["prefill"]) == 2
    assert numbers["first_call"] == run_round()["first_call"]
    assert numbers["memory"][0] > 1e6


def test_who_generates_too_few_tokens_is_no_contender():
    with pytest.raises(ValueError, match="3 new tokens instead of 7"):
        inputs.generating(lambda number: 3, new_tokens=7, calls=1)
