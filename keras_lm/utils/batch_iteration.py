"""Batches outside of a graph: those of a dataset, how many rows they have, how many are done."""

import math
import numbers
import sys
import time

import keras
import numpy as np

SILENT_SECONDS = 5


def iterate_batches(dataset):
    """Yield the elements of a dataset.

    A plain loop would also end with a log line of TensorFlow, "Local rendezvous is aborting with
    status: OUT_OF_RANGE".
    """
    iterator = iter(dataset)
    while (element := iterator.get_next_as_optional()).has_value():
        yield element.get_value()


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


def check_verbose(verbose):
    """Raise a ValueError if `verbose` is not one of Keras's settings."""
    if not ((isinstance(verbose, (int, np.integer)) and verbose in (0, 1, 2)) or verbose == "auto"):
        raise ValueError(f"verbose={verbose!r}: pass 0, 1, 2 or 'auto'.")


def with_progress(batches, number, verbose):
    """Yield batches, and draw Keras's progress bar; `number` is their number, None if unknown.

    `verbose="auto"` draws it after `SILENT_SECONDS`, if the output is interactive.
    """
    check_verbose(verbose)
    is_drawn, begins = verbose != "auto", time.monotonic() + SILENT_SECONDS
    verbose = int(_is_watched()) if verbose == "auto" else verbose
    bar = keras.utils.Progbar(number, verbose=verbose, unit_name="batch")
    done = 0
    for done, batch in enumerate(batches, start=1):
        yield batch
        is_drawn = is_drawn or time.monotonic() >= begins
        if is_drawn:
            bar.update(done, finalize=done == number)
    if done and number is None and is_drawn:
        bar.update(done, finalize=True)


def _is_watched():
    return keras.config.is_interactive_logging_enabled() and (
        sys.stdout.isatty() or "ipykernel" in sys.modules
    )
