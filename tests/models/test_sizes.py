"""Estimates of the recurrent models, against models that are built and what was published."""

import json

import keras
import pytest

from keras_lm.models import AWDLSTMBackbone, BertBackbone, CoveBackbone, ElmoBackbone, GPT3Backbone
from keras_lm.models.sizes import COUNTED, estimate, parameters_of
from keras_lm.utils import registry

ELMO = {"num_layers": 2, "hidden_dim": 12, "cell_dim": 20, "filters": [[1, 4], [3, 8]]}
AWD_LSTM = {"vocabulary_size": 11, "num_layers": 3, "hidden_dim": 12, "embedding_dim": 8}


@pytest.mark.parametrize(
    "cls, arguments",
    [
        (ElmoBackbone, ELMO),
        (ElmoBackbone, ELMO | {"num_layers": 1, "num_highways": 0, "project_words": False}),
        (ElmoBackbone, ELMO | {"cell_dim": 12, "project_cells": False, "vocabulary_size": 300}),
        (AWDLSTMBackbone, AWD_LSTM),
        (AWDLSTMBackbone, AWD_LSTM | {"num_layers": 1, "bidirectional": True}),
        (AWDLSTMBackbone, AWD_LSTM | {"num_layers": 2, "bidirectional": True}),
    ],
)
def test_estimate_equals_a_model_that_is_built(cls, arguments):
    sizes = estimate(cls, **arguments)
    assert sizes["parameters"] == cls(**arguments).count_params()
    assert sizes["memory"]["weights_float32"] == 4 * sizes["parameters"]


def test_published_sizes():
    millions = {
        name: round(estimate(ElmoBackbone, **size)["parameters"] / 1e6, 1)
        for name, size in ElmoBackbone.SIZES.items()
    }
    # As the page of ELMo's authors states them.
    assert millions == {
        "elmo_small_en": 13.6,
        "elmo_medium_en": 28.0,
        "elmo_original_en": 93.6,
        "elmo_original_5.5b_en": 93.6,
    }


def test_operations_of_a_token():
    """By hand: every kernel once a token, each filter at all of its places in a word."""
    small = {"vocabulary_size": 11, "num_layers": 2, "hidden_dim": 3, "embedding_dim": 2}
    multiplied = 4 * 3 * (2 + 3) + 4 * 2 * (3 + 2) + 11 * 2  # widths 2 → 3 → 2, and the logits
    actual = estimate(AWDLSTMBackbone, **small)["flops_per_token"]
    assert actual == {"forward": 2 * multiplied, "training": 6 * multiplied}
    small = {"num_layers": 1, "hidden_dim": 2, "cell_dim": 3, "filters": [[2, 5]]}
    more = {"embedding_dim": 4, "num_highways": 1, "characters_per_word": 7}
    words = 2 * 4 * 5 * 6 + 2 * 5 * 5 + 5 * 2  # filters, highway, projection
    both_directions = 2 * ((2 + 2) * 4 * 3 + 3 * 2)
    actual = estimate(ElmoBackbone, **small, **more)["flops_per_token"]
    assert actual["forward"] == 2 * (words + both_directions)


def test_other_models_are_refused():
    with pytest.raises(ValueError, match="CoveBackbone: there are estimates of"):
        estimate(CoveBackbone)


def test_sizes_are_listed():
    from keras_lm.models import Backbone

    assert BertBackbone.sizes() == dict(sorted(BertBackbone.SIZES.items()))
    everything = Backbone.sizes()
    assert everything["gpt3_175b"]["num_layers"] == 96
    assert set(BertBackbone.sizes()) < set(everything)


def test_nothing_of_an_estimate_remains():
    assert estimate(GPT3Backbone, **GPT3Backbone.SIZES["gpt3_175b"])["parameters"] > 1e11
    with keras.StatelessScope():
        pass  # here Keras gives values to variables that have none
    assert len(BertBackbone(9, 1, 1, 4, 8).weights) > 0


def _ours():
    return {n: cls for n, cls in registry.sizes().items() if cls.__module__.startswith("keras_lm.")}


def test_counted_parameters_are_of_all_sizes():
    counted = json.loads(COUNTED.read_text(encoding="utf-8"))
    assert counted.keys() == _ours().keys(), "run: python docs/tables.py"
    small = {cls: name for name, cls in _ours().items() if counted[name] < 2e7}
    for cls, name in small.items():
        actual = estimate(cls, **cls.SIZES[name])["parameters"]
        assert parameters_of(name) == actual, f"delete {name} in {COUNTED}, run docs/tables.py"


@pytest.mark.thorough
@pytest.mark.parametrize("name", _ours())
def test_counted_parameters_are_those_of_the_model(name):
    cls = _ours()[name]
    assert parameters_of(name) == estimate(cls, **cls.SIZES[name])["parameters"]
