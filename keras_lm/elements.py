"""Iterating over a `tf.data.Dataset` outside of a graph, and how many rows come at once."""

import numbers


def elements(dataset):
    """Yield the elements of a dataset.

    A plain loop ends in an error of TensorFlow, which logs it ("Local rendezvous is aborting with
    status: OUT_OF_RANGE") before Python sees it.
    """
    iterator = iter(dataset)
    while (element := iterator.get_next_as_optional()).has_value():
        yield element.get_value()


def check_batch_size(batch_size):
    """Raise a ValueError if a number of rows is none; return it."""
    is_whole = isinstance(batch_size, numbers.Integral) and not isinstance(batch_size, bool)
    if not is_whole or batch_size < 1:
        raise ValueError(f"batch_size={batch_size!r} must be an int, 1 or more.")
    return batch_size
