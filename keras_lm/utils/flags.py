"""Arguments that are True or False, checked by the signature that declares them.

A flag is an argument that is annotated as `bool` or `bool | None`, or has no annotation and one as
its default. Strings, such as the "false" of a configuration, would all count as True.
"""

import functools
import inspect
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def is_flag(value: Any) -> bool:
    """Whether a value is True or False, also as 1 or 0."""
    is_whole = isinstance(value, numbers.Integral) and value in (0, 1)
    return is_whole or isinstance(value, np.bool_)


def check_flag(name: str, value: Any, is_optional: bool = False) -> None:
    """Raise a ValueError that names an argument if its value is not True or False.

    With `is_optional`, it may be None.
    """
    if not (is_flag(value) or (is_optional and value is None)):
        allowed = "True, False or None" if is_optional else "True or False"
        raise ValueError(f"{name}={value!r}: pass {allowed}.")


def checks_flags(function: Callable) -> Callable:
    """Decorate a function: its flags are checked in each call."""
    signature, flags = inspect.signature(function), _flags(function)

    @functools.wraps(function)
    def checked(*args, **kwargs):
        try:
            given = signature.bind_partial(*args, **kwargs).arguments
        except TypeError:  # the call itself says it better
            given = {}
        _check(given, flags)
        return function(*args, **kwargs)

    return checked


def check_constructor(cls: type, args: tuple, kwargs: Mapping[str, Any]) -> None:
    """Raise a ValueError for a flag of a constructor, or of its base's, with another value."""
    flags = _flags_of_class(cls)
    try:
        given = inspect.signature(cls.__init__).bind_partial(None, *args).arguments if args else {}
    except TypeError:
        given = {}
    _check({**given, **kwargs}, flags)


@functools.cache
def _flags_of_class(cls):
    constructors = [vars(base)["__init__"] for base in cls.__mro__ if "__init__" in vars(base)]
    flags = {}
    for constructor in reversed([*filter(inspect.isfunction, constructors)]):
        flags |= _flags(constructor)
    return flags


def _flags(function):
    """Return a dict of the flags of a function → whether they may be None."""
    optional = (bool | None, "bool | None")
    return {
        name: parameter.annotation in optional
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.annotation in (bool, "bool", *optional)
        or (parameter.annotation is parameter.empty and isinstance(parameter.default, bool))
    }


def _check(given, flags):
    for name, value in given.items():
        if name in flags:
            check_flag(name, value, flags[name])
