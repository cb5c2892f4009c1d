"""The arguments of a backbone: bound once, and checked by what a model declares and by their names.

A model declares in `RANGES` what differs from what the names say:

    RANGES = {"memory_length": Whole(0), "clamp_length": Whole(-1)}
"""

import dataclasses
import inspect
import math
import numbers
import re

import keras
import numpy as np

from keras_lm.layers.basic import get_activation

SIZE = re.compile(r"num_\w+|\w+_(dim|size|length|chunk)")
RATE = re.compile(r"(\w+_)?dropout|weight_drop")
BOUND = re.compile(r"\w+_(clip|penalty)")


@dataclasses.dataclass(frozen=True)
class Whole:
    """Whole numbers from `least` to `most`, and None if `is_optional`.

    With `is_axis=False` no tensor of a checkpoint is as long, as of positions that are sums of rows
    and columns: see `keras_lm.presets.config_limits`.
    """

    least: int = 1
    most: float = math.inf
    is_optional: bool = False
    is_axis: bool = True

    def problem(self, value):
        """Return what to pass in place of a value, or None."""
        if value is None and self.is_optional:
            return None
        is_whole = isinstance(value, numbers.Integral) and type(value) is not bool
        if not is_whole or value < self.least:
            return f"a whole number of {self.least} or more"
        return None if value <= self.most else f"{self.most} or less"


class Wholes(Whole):
    """A `Whole`, or a list of them."""

    def problem(self, value):
        is_list = isinstance(value, (list, tuple)) and len(value) > 0
        problems = map(super().problem, value if is_list else [value])
        found = next(filter(None, problems), None)
        return found and f"{found}, or a list of such"


def bind_arguments(cls, args, kwargs):
    """Return the arguments of a call of a class with the defaults, as presets keep them.

    That is a dict without `dtype` and `name`, and with lists in place of tuples. Other models are
    left out: a class that keeps one adds it in `get_config`. Arguments that a constructor passes on
    as `*args` and `**kwargs` are bound to its base's.

    Raises:
        ValueError: if an argument cannot be what its name or `RANGES` says. Those that are at their
            default are not looked at, nor those of which neither says anything. Flags are those
            whose default is one.

    Example:

        bind_arguments(BertBackbone, (), {"num_heads": 12})  # 0 is a ValueError
    """
    arguments = {}
    for constructor in (vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base)):
        signature = inspect.signature(constructor)
        try:
            bound = signature.bind_partial(None, *args, **kwargs)
        except TypeError:  # the call itself says it better
            break
        _check(bound.arguments, signature, getattr(cls, "RANGES", {}))
        bound.apply_defaults()
        args, kwargs = (), None
        for name, value in list(bound.arguments.items())[1:]:
            kind = signature.parameters[name].kind
            if kind == inspect.Parameter.VAR_POSITIONAL:
                args = value
            elif kind == inspect.Parameter.VAR_KEYWORD:
                kwargs = value
            elif name not in ("dtype", "name") and not isinstance(value, keras.Model):
                arguments.setdefault(name, _with_lists(value))
        if kwargs is None:
            break
    return arguments


def check_arguments(cls, arguments):
    """Raise a ValueError if a dict has a value that an argument of a class cannot have.

    Args:
        cls: class of backbone.
        arguments: dict of some of its arguments.
    """
    _check(arguments, inspect.signature(cls.__init__), cls.RANGES)


def _with_lists(value):
    return [_with_lists(each) for each in value] if isinstance(value, (list, tuple)) else value


def _check(given, signature, ranges):
    for name, value in given.items():
        default = signature.parameters[name].default
        is_default = type(value) is type(default) and value == default
        if is_default:
            continue
        if isinstance(default, bool):
            problem = None if _is_flag(value) else "True or False"
        elif name in ranges:
            problem = ranges[name].problem(value)
        else:
            problem = _problem(name, value)
        if problem:
            raise ValueError(f"{name}={value!r}: pass {problem}.")


def _problem(name, value):
    """Return what to pass for an argument instead, or None."""
    if name == "activation":
        return _activation_problem(value)
    if name == "layer_norm_epsilon":
        return None if _is_real(value) and value > 0 else "a number above 0, such as 1e-12"
    if RATE.fullmatch(name):
        is_rate = value is None or (_is_real(value) and 0 <= value <= 1)
        return None if is_rate else "a number from 0 to 1"
    if BOUND.fullmatch(name):
        is_bound = value is None or (_is_real(value) and value >= 0)
        return None if is_bound else "a number of 0 or more"
    return Whole().problem(value) if SIZE.fullmatch(name) else None


def _activation_problem(value):
    problem = "the name of an activation, such as 'gelu' or 'relu'"
    if not isinstance(value, str):
        return problem
    try:
        get_activation(value)
    except ValueError:
        return problem
    return None


def _is_flag(value):
    return isinstance(value, (bool, np.bool_)) or (
        isinstance(value, numbers.Integral) and value in (0, 1)
    )


def _is_real(value):
    is_number = isinstance(value, numbers.Real) and type(value) is not bool
    return is_number and math.isfinite(value)
