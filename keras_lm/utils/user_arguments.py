"""Arguments as users pass them, flags, numbers, and columns of other libraries; and warnings.

A flag is an argument that is annotated as `bool` or `bool | None`, or has no annotation and one as
its default. Strings, such as the "false" of a configuration, would all count as True.

Every public call takes the same kinds of columns: lists, tuples, arrays (of strings of any dtype),
tensors, and columns of pandas, polars, pyarrow and `datasets`. None of these is imported here.
"""

import functools
import importlib.util
import inspect
import math
import numbers
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

# === Flags ===


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


# === Numbers ===


def check_batch_size(batch_size):
    """Return a batch size; raise a ValueError if it is not an int of 1 or more."""
    return check_whole("batch_size", batch_size, 1)


def check_whole(name, value, least, most=None, otherwise=""):
    """Return the value of an argument; raise a ValueError if it is not an int in a range.

    `otherwise` ends the message.
    """
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.bool_))
    if not is_whole or value < least or (most is not None and value > most):
        allowed = f"{least} or more" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name}={value!r}: pass an int, {allowed}{otherwise}.")
    return value


def check_finite(name, value, otherwise=""):
    """Return the value of an argument; raise a ValueError if it is not a finite number.

    `otherwise` ends the message.
    """
    is_number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.bool_))
    if not is_number or not math.isfinite(value):
        raise ValueError(f"{name}={value!r}: pass a finite number{otherwise}.")
    return value


def is_finite(array: np.ndarray) -> bool:
    """Return whether all numbers of an array are finite."""
    if array.dtype.kind not in "fV":
        return True
    if array.dtype == np.float32:  # twice as fast; squares of large numbers overflow
        flat = array.ravel(order="K")
        with np.errstate(all="ignore"):
            if np.isfinite(np.vdot(flat, flat)):
                return True
    return bool(np.isfinite(array).all())


def check_verbose(verbose):
    """Raise a ValueError if `verbose` is not one of Keras's settings."""
    if not ((isinstance(verbose, (int, np.integer)) and verbose in (0, 1, 2)) or verbose == "auto"):
        raise ValueError(f"verbose={verbose!r}: pass 0, 1, 2 or 'auto'.")


# === Columns ===

ACCEPTED = (
    "a list, an array of numpy, a tensor, a Series of pandas or polars, an Array of pyarrow, or a "
    "column of a Hugging Face Dataset"
)
# What has no rows in memory yet, or no order, and how to get them.
REMEDIES = {
    ("polars", "LazyFrame"): "a query that has not run: pass {name}.collect()",
    ("duckdb", "DuckDBPyRelation"): "a query that has not run: pass {name}.df()",
    ("_duckdb", "DuckDBPyRelation"): "a query that has not run: pass {name}.df()",
    ("pyspark", "DataFrame"): "in other processes: pass {name}.toPandas()",
    ("dask", "DataFrame"): "a query that has not run: pass {name}.compute()",
    ("dask", "Series"): "a query that has not run: pass {name}.compute()",
    ("ibis", "Table"): "a query that has not run: pass {name}.to_pandas()",
    ("datasets", "IterableColumn"): "of unknown length: pass list({name})",
    ("builtins", "set"): "without an order: pass a list",
    ("builtins", "frozenset"): "without an order: pass a list",
    ("builtins", "generator"): "of unknown length: pass list({name})",
    ("builtins", "dict_values"): "not a sequence: pass list({name})",
    ("builtins", "dict_keys"): "not a sequence: pass list({name})",
    ("builtins", "map"): "of unknown length: pass list({name})",
}


def refuse_queries(value, name):
    """Raise ValueError if a table or column has no rows in memory, or none in an order."""
    kinds = {(_library(kind), kind.__name__) for kind in type(value).__mro__}
    for kind in REMEDIES.keys() & kinds:
        raise ValueError(f"{name} is a {type(value).__name__}, {REMEDIES[kind].format(name=name)}.")


def list_of_texts(column, name):
    """Return a column of texts as a list.

    Args:
        column, name: see `plain_column`.

    Raises:
        ValueError: if it is one string; and as `plain_column` does.
    """
    if isinstance(column, (str, bytes)):
        raise ValueError(f"{name}={column[:60]!r} is one text: pass a list of texts.")
    return [*plain_column(column, name)]


def plain_column(column, name):
    """Return a column as a list, or as an array without a mask, of numbers or of objects.

    What is not a column of a known library is returned as it is.

    Args:
        column: see `ACCEPTED`.
        name: str, the argument, for messages.

    Raises:
        ValueError: if a value is masked, or there are no rows yet, as of a query.
    """
    refuse_queries(column, name)
    library = _library(type(column))
    if isinstance(column, np.ma.MaskedArray):
        for row in np.argwhere(np.ma.getmaskarray(column))[:1]:
            place = ", ".join(map(str, row))
            raise ValueError(f"{name}[{place}] is masked, a missing value: replace or drop it.")
        return plain_column(column.data, name)
    if library == "datasets" and hasattr(column, "column_name"):
        return plain_column(column[:], name)  # read at once
    if library == "pyarrow" and hasattr(column, "to_pylist"):
        return column.to_pylist()
    if library == "polars" and hasattr(column, "to_list"):
        return column.to_list()
    if library == "torch" and hasattr(column, "detach"):
        column = column.detach().cpu()
        column = column.float() if "bfloat16" in str(column.dtype) else column
    if hasattr(column, "to_numpy"):
        return plain_column(column.to_numpy(), name)
    if hasattr(column, "numpy") and not hasattr(column, "row_splits"):
        return plain_column(column.numpy(), name)
    if isinstance(column, np.ndarray) and column.dtype.kind == "T":  # of StringDType
        return column.astype(object)
    if isinstance(column, np.ndarray) and column.dtype.name == "bfloat16":  # no type of numpy
        return column.astype("float32")
    return column


def read_table(value):
    """Return the table of pyarrow that a query of DuckDB, or a dataset of pyarrow, has as its rows.

    Its columns are read together, since a query may have another order each time. Without pyarrow,
    DuckDB makes a DataFrame. What is no such thing is returned as it is.
    """
    library = _library(type(value))
    if library == "pyarrow":
        for method in ("to_table", "read_all"):  # of a Dataset or a Scanner; of a reader
            if hasattr(value, method):
                return getattr(value, method)()
    if library in ("duckdb", "_duckdb"):
        is_there = importlib.util.find_spec("pyarrow") is not None
        for method in ("to_arrow_table", "fetch_arrow_table") if is_there else ("df",):
            if hasattr(value, method):
                with warnings.catch_warnings():  # that results are copied
                    warnings.simplefilter("ignore", UserWarning)
                    return getattr(value, method)()
    return value


def columns_of(value):
    """Return the names of a table's columns, None for anything else; of several tables a dict."""
    return getattr(value, "column_names", getattr(value, "columns", None))


def refuse_tables(value, name):
    """Raise ValueError if a value is a table or a query, where a column is needed."""
    refuse_queries(value, name)
    names = columns_of(value)
    if names is not None:
        names = list(map(str, names))
        raise ValueError(
            f"{name} is a {type(value).__name__} with the columns {names}: pass one of them, "
            f"{name}[{(names or ['…'])[0]!r}]."
        )


def iterable(values, name):
    """Return what can be iterated, of a column of a library; other iterables as they are."""
    if isinstance(values, (str, bytes)):
        raise ValueError(f"{name} is one string: pass a list of strings.")
    if type(values).__module__ != "builtins":
        refuse_tables(values, name)
        values = plain_column(values, name)
    if isinstance(values, Mapping):
        raise ValueError(f"{name} is a {type(values).__name__}: pass one of its columns, a list.")
    if not hasattr(values, "__iter__") or getattr(values, "ndim", 1) == 0:
        raise ValueError(f"{name} is a {type(values).__name__}: pass {ACCEPTED}.")
    return values


def _library(kind):
    return kind.__module__.partition(".")[0]


def names_of_feature(feature):
    """Return the names of the classes of a feature, or of what its sequences hold, or None.

    A feature is what a file states, or an object of `datasets`.
    """

    def stated(name):
        return feature.get(name) if isinstance(feature, dict) else getattr(feature, name, None)

    while stated("names") is None and feature is not None:
        feature = feature[0] if isinstance(feature, list) and feature else stated("feature")
    names = stated("names")
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return names if is_list else None


def warn(message: str) -> None:
    """Warn at the line of the user's code that led here."""
    frame, level = inspect.currentframe(), 1
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] == "keras_lm":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
