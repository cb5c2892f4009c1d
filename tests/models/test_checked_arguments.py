"""What the arguments of backbones may be, by their names: limits, and what is just inside."""

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
BAD = {
    "num_layers": [
        (0, "1 or more"),
        (1.0, "a whole number"),
        (True, "a whole number"),
        (None, "1"),
    ],
    "num_highways": [(-1, "0 or more")],
    "pooled_length": [(0, "1 or more")],
    "dropout": [(-0.1, "from 0 to 1"), (1.1, "from 0 to 1"), (float("nan"), "from"), ("0", "from")],
    "weight_drop": [(2, "from 0 to 1")],
    "cell_clip": [(-1e-9, "0 or more"), (float("inf"), "0 or more"), (False, "0 or more")],
    "repetition_penalty": [("x", "a number of 0 or more")],
    "layer_norm_epsilon": [(0, "above 0"), (None, "above 0")],
    "characters_per_word": [(1001, "1000 or less"), (0, "1 or more")],
    "filters": [([(0, 4)], "pairs"), ([(1, 2, 3)], "pairs"), (4, "pairs")],
    "activation": [("gelou", "'gelu'"), (["gelu"], "'gelu'")],
}


@pytest.mark.parametrize("name", GOOD)
def test_what_may_be(name):
    for value in GOOD[name]:
        call(**{name: value})


@pytest.mark.parametrize("name", BAD)
def test_what_may_not_be(name):
    for value, remedy in BAD[name]:
        with pytest.raises(ValueError, match=f"{name}=.*: pass .*{remedy}"):
            call(**{name: value})
