"""Mined negatives are near, and no text is one that answers its anchor."""

import numpy as np
import pytest

from keras_lm.data import mine_negatives
from keras_lm.search import Index

# On a circle, by degrees.
PLACES = {"ask": 0, "answer": 20, "near": 5, "nearer": 2, "far": 90, "other": 45, "reply": 50}


class Encoder:
    prompts = {}

    def embed(self, texts, batch_size, verbose, prompt_name=None):
        angles = np.radians([PLACES[text] for text in texts])
        return {"embedding": np.stack([np.cos(angles), np.sin(angles)], axis=1)}


CORPUS = ["far", "near", "answer", "ask", "other", "nearer"]


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, ["nearer"]),
        ({"number": 3}, ["nearer", "near", "other"]),
        ({"skip": 1}, ["near"]),
        ({"number": 9}, ["nearer", "near", "other", "far"]),
        # Nearer than the positive: perhaps right answers.
        ({"margin": 0.0, "number": 2}, ["other", "far"]),
        ({"margin": 0.5, "number": 2}, ["far"]),
        ({"margin": 2.0}, []),
    ],
)
def test_the_nearest_that_are_no_answers(options, expected):
    assert mine_negatives(Encoder(), ["ask"], ["answer"], CORPUS, **options) == [expected]
    index = Index(Encoder(), CORPUS)
    assert mine_negatives(Encoder(), ["ask"], ["answer"], index, **options) == [expected]


def test_no_positive_of_an_anchor_is_its_negative():
    """Of the positives themselves, if no corpus is given."""
    anchors, positives = ["ask", "ask", "other"], ["answer", "near", "reply"]
    mined = mine_negatives(Encoder(), anchors, positives, number=5)
    assert mined == [["reply"], ["reply"], ["answer", "near"]]


@pytest.mark.parametrize(
    "anchors, options, message",
    [
        (["ask", "ask"], {}, "anchors has 2 texts and positives 1"),
        (["ask"], {"number": 0}, "number=0"),
        (["ask"], {"skip": -1}, "skip=-1"),
    ],
)
def test_arguments_that_do_not_fit(anchors, options, message):
    with pytest.raises(ValueError, match=message):
        mine_negatives(Encoder(), anchors, ["answer"], **options)
