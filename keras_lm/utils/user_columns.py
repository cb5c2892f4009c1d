"""Columns as users and other libraries hand them over → lists and arrays of numpy.

Every public call takes the same kinds: lists, tuples, arrays (of strings of any dtype), tensors,
and columns of pandas, polars, pyarrow and `datasets`. None of these is imported here.
"""

from collections.abc import Mapping

import numpy as np

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
