"""How the arguments of backbones are bound, and what they may be, up to the limits.

test_every_model.py has what they may not be.
"""

import inspect

import pytest

from keras_lm.models.checked_arguments import bind_arguments


def call(**arguments):
    def constructor(self):
        pass

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = ("self", *arguments)
    constructor.__signature__ = inspect.Signature(
        [inspect.Parameter(name, kind, default="default") for name in names]
    )
    model = type("Model", (), {"__init__": constructor})
    assert list(bind_arguments(model, (), arguments)) == list(arguments)


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


class Base:
    def __init__(self, num_layers, sizes=(1, (2, 3)), dtype=None, name="base"):
        pass


class Narrow(Base):
    def __init__(self, *args, extra=7, **kwargs):
        super().__init__(*args, **kwargs)


class Fixed(Base):
    def __init__(self, extra=7, name="fixed"):
        super().__init__(num_layers=3, name=name)


def test_arguments_are_bound_with_defaults():
    bound = {"num_layers": 2, "sizes": [1, [2, 3]]}
    assert bind_arguments(Base, (2,), {"dtype": "float16", "name": "mine"}) == bound
    assert bind_arguments(Base, (), {"num_layers": 2, "sizes": (5,)})["sizes"] == [5]


def test_what_a_constructor_passes_on_is_bound_to_its_base():
    assert bind_arguments(Narrow, (2,), {}) == {
        "extra": 7,
        "num_layers": 2,
        "sizes": [1, [2, 3]],
    }
    with pytest.raises(ValueError, match="num_layers=0"):
        bind_arguments(Narrow, (0,), {})
    assert bind_arguments(Fixed, (), {}) == {"extra": 7}
