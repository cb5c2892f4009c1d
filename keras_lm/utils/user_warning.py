"""Warnings that point to the line of the user's code that they are about."""

import inspect
import warnings


def warn(message: str) -> None:
    """Warn at the line of the user's code that led here."""
    frame, level = inspect.currentframe(), 1
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] == "keras_lm":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
