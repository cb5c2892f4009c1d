"""Rows that lack a text or a label: what counts as empty, and the error for it."""

import math

MISSING = ("nan", "NaN", "<NA>")  # how a missing label is written as a string


class EmptyRow(ValueError):
    """A row lacks a text or a label."""


def lacks_text(row, columns):
    """Return whether a row, a dict or an error, has nothing in one of the columns."""
    return isinstance(row, dict) and any(is_empty(row.get(name)) for name in columns)


def is_empty(value):
    """Return whether a value of a row is none: null, NaN, a blank text, or a list of these."""
    if isinstance(value, list):
        return all(map(is_empty, value))
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or (isinstance(value, str) and not value.strip())
