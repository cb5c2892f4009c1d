"""How the arguments of backbones are bound, and what they may be, up to the limits.

tests/models/test_every_model.py has what they may not be.
"""

import inspect

import pytest

from keras_lm.converters import Checkpoint, CheckpointError
from keras_lm.converters.checked_files import LazyTensors
from keras_lm.models import Backbone
from keras_lm.presets.argument_ranges import Count, Whole, bind_arguments, check_claims, ranges_of
from keras_lm.utils.registry import BACKBONES


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
    "dropout": [None, 0, 0.0, 1, 0.5],
    "weight_drop": [0.5],
    "cell_clip": [None, 0, 3.0],
    "repetition_penalty": [1.2],
    "layer_norm_epsilon": [1e-12],
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


class Declared(Backbone):
    """A network with a memory that may be none, and positions that are sums of rows and columns."""

    RANGES = {
        "memory_length": Whole(0),
        "clamp_length": Whole(-1),
        "pooled_length": Whole(is_optional=True),
        "characters_per_word": Whole(most=1000),
        "max_sequence_length": Whole(),
    }

    def __init__(
        self,
        memory_length=8,
        clamp_length=8,
        pooled_length=8,
        characters_per_word=8,
        max_sequence_length=8,
        hidden_dim=8,
    ):
        super().__init__({})


def test_a_model_declares_what_its_arguments_may_be():
    for name, value in [
        ("memory_length", 0),
        ("clamp_length", -1),
        ("pooled_length", None),
        ("characters_per_word", 1000),
    ]:
        assert bind_arguments(Declared, (), {name: value})[name] == value
    for name, value, remedy in [
        ("memory_length", -1, "a whole number of 0 or more"),
        ("memory_length", 1.5, "a whole number of 0 or more"),
        ("clamp_length", True, "a whole number of -1 or more"),
        ("characters_per_word", 1001, "1000 or less"),
        ("characters_per_word", None, "a whole number of 1 or more"),
    ]:
        with pytest.raises(ValueError, match=f"{name}={value}: pass {remedy}"):
            Declared(**{name: value})


# Arguments without a range, since none of them is a size or a rate.
ANYTHING = {
    *(
        "attention",
        "attention_layers",
        "attention_windows",
        "backbone",
        "cell",
        "cutoffs",
        "div_val",
    ),
    *("classifier_activation", "classifier_pooling", "conv_activation", "dtype", "embeddings_of"),
    *("inputs", "language_model", "layers", "local_rope_max_wavelength", "max_distance", "name"),
    *("pooler_activation", "pooling", "position_attention", "projections", "regularization"),
    *("rope_max_wavelength", "scale_outputs", "sharing", "skipped_tokens", "state_name"),
    *("target_space", "tie_projections", "words"),
}


def test_every_size_and_rate_of_a_model_is_declared():
    undeclared = set()
    for cls in BACKBONES.values():
        known = ranges_of(cls)
        for base in cls.__mro__:
            if base.__module__.startswith("keras_lm.") and "__init__" in vars(base):
                arguments = inspect.signature(base.__init__).parameters.values()
                undeclared |= {
                    each.name
                    for each in arguments
                    if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
                    if each.name not in known and not isinstance(each.default, bool)
                }
    assert undeclared - {"self"} == ANYTHING


class Undeclared(Declared):
    """A network with arguments whose names say nothing by themselves."""

    RANGES = {"num_widgets": Count()}

    def __init__(self, num_widgets=8, num_gadgets=8, gadget_size=8, wing_dropout=0.1, **kwargs):
        super().__init__(**kwargs)


def test_a_name_alone_binds_nothing():
    given = {"num_gadgets": 0, "gadget_size": None, "wing_dropout": 7, "memory_length": 0}
    assert given.items() <= bind_arguments(Undeclared, (), given).items()
    for wrong in ({"num_widgets": 0}, {"memory_length": -1}, {"hidden_dim": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))}=.*: pass a whole number"):
            bind_arguments(Undeclared, (), wrong)
    checkpoint = Checkpoint("here", None, "huggingface", {}, LazyTensors({"one": ((8,), None)}))
    check_claims(checkpoint, {"class": "Undeclared", "arguments": {"num_gadgets": 5000}})
    with pytest.raises(CheckpointError, match="asks for num_widgets=2, but it has 1 tensors"):
        check_claims(checkpoint, {"class": "Undeclared", "arguments": {"num_widgets": 2}})


def test_no_tensor_is_as_long_as_positions_that_a_model_declares_so():
    tensors = LazyTensors({"rows": ((512, 64), None), "columns": ((1024, 192), None)})
    checkpoint = Checkpoint("here", None, "huggingface", {}, tensors)
    arguments = {"max_sequence_length": 512 * 1024, "hidden_dim": 256}
    check_claims(checkpoint, {"class": "Declared", "arguments": arguments})
    for wrong in ({"max_sequence_length": 2**40}, {"hidden_dim": 4096}):
        with pytest.raises(CheckpointError, match="asks for"):
            check_claims(checkpoint, {"class": "Declared", "arguments": arguments | wrong})
    with pytest.raises(CheckpointError, match="asks for max_sequence_length=524288"):
        check_claims(checkpoint, {"class": "BertBackbone", "arguments": arguments})
