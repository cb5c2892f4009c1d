"""What the arguments of backbones may be, up to the limits; test_every_model.py has what not."""

import inspect

import pytest

from keras_lm.models.checked_arguments import check_arguments


def call(**arguments):
    def constructor(self):
        pass

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = ("self", *arguments)
    constructor.__signature__ = inspect.Signature(
        [inspect.Parameter(name, kind, default="default") for name in names]
    )
    check_arguments(constructor, (), arguments)


GOOD = {
    "num_layers": [1, 3],
    "num_highways": [0, 1],
    "pooled_length": [None, 1],
    "dropout": [None, 0, 0.0, 1, 0.5],
    "weight_drop": [0.5],
    "cell_clip": [None, 0, 3.0],
    "repetition_penalty": [1.2],
    "layer_norm_epsilon": [1e-12],
    "characters_per_word": [1, 1000],
    "filters": [[], [(1, 4), [2, 8]]],
    "activation": ["gelu"],
    "anything_else": [object()],
}


@pytest.mark.parametrize("name", GOOD)
def test_what_may_be(name):
    for value in GOOD[name]:
        call(**{name: value})
