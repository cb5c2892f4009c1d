"""Mixtures of text-to-text tasks: shares by hand, the same by the seed, and what is refused."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.data import TEXT_TO_TEXT, mix_tasks, mixing_rates, text_to_text

TASKS = {
    "a": ([f"a{i}" for i in range(6)], [f"A{i}" for i in range(6)]),
    "b": (["b0", "b1"], ["B0", "B1"]),
}


def taken(number, **arguments):
    data = mix_tasks(TASKS, **arguments).take(number)
    return [(source.decode(), target.decode()) for source, target in data.as_numpy_iterator()]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [0.1, 0.9]),
        ({"limit": 300}, [0.25, 0.75]),
        ({"temperature": 2.0}, [0.25, 0.75]),  # the roots of 100 and 900
        ({"limit": 400, "temperature": 2.0}, [1 / 3, 2 / 3]),
        ({"limit": 50}, [0.5, 0.5]),
    ],
)
def test_rates(arguments, expected):
    np.testing.assert_allclose(mixing_rates([100, 900], **arguments), expected)


def test_a_mixture_has_its_shares_and_whole_epochs_of_each_task():
    pairs = taken(1200)
    assert all(target == source.upper() for source, target in pairs)
    names = collections.Counter(source[0] for source, _ in pairs)
    assert abs(names["a"] / 1200 - 0.75) < 0.05
    of_a = [source for source, _ in pairs if source[0] == "a"]
    epochs = [tuple(of_a[i : i + 6]) for i in range(0, 600, 6)]
    assert all(len(set(epoch)) == 6 for epoch in epochs) and len(set(epochs)) > 50
    assert taken(50) == pairs[:50] != taken(50, seed=1)
    shares = collections.Counter(source[0] for source, _ in taken(600, limit=2))
    assert abs(shares["a"] / 600 - 0.5) < 0.07


def test_datasets_keep_their_order():
    data = tf.data.Dataset.from_tensor_slices((["x", "y"], ["X", "Y"]))
    actual = mix_tasks({"only": data}).take(4).as_numpy_iterator()
    assert [source for source, _ in actual] == [b"x", b"y", b"x", b"y"]


def test_sources_as_t5_reads_them():
    assert text_to_text("mnli", premise=["It rains.", "b"], hypothesis=["It is wet.", "a"]) == [
        "mnli hypothesis: It is wet. premise: It rains.",
        "mnli hypothesis: a premise: b",
    ]
    assert text_to_text("correct: {text}", text=["{x}"]) == ["correct: {x}"]
    assert all("{" in form for form in TEXT_TO_TEXT.values())


def test_what_is_refused():
    for name, columns, message in [
        ("mnl", {"text": ["a"]}, "name='mnl': pass one of"),
        ("cola", {"text": ["a"]}, "cola sentence: .*sentence"),
        ("cola", {"sentence": ["a"], "other": ["b"]}, "does not use all of the columns"),
        ("rte", {"sentence1": ["a"], "sentence2": []}, "all of the same length"),
    ]:
        with pytest.raises(ValueError, match=message):
            text_to_text(name, **columns)
    with pytest.raises(ValueError, match=r"tasks\['a'\] has 2 sources and 1 targets"):
        mix_tasks({"a": (["a", "b"], ["c"])})
    with pytest.raises(ValueError, match=r"tasks\['a'\] has no examples"):
        mix_tasks({"a": ([], [])})
    unknown = tf.data.Dataset.from_tensor_slices((["a"], ["b"])).filter(lambda a, b: True)
    with pytest.raises(ValueError, match="an unknown number"):
        mix_tasks({"a": unknown})
    for arguments in ({"limit": 0}, {"temperature": 0.5}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            mixing_rates([1, 2], **arguments)
