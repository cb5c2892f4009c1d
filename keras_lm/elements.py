"""Iteration over a `tf.data.Dataset` outside of a graph, and the check of a batch size."""

import numbers


def elements(dataset):
    """Yield the elements of a dataset.

    A plain loop would also end with a log line of TensorFlow, "Local rendezvous is aborting with
    status: OUT_OF_RANGE".
    """
    iterator = iter(dataset)
    while (element := iterator.get_next_as_optional()).has_value():
        yield element.get_value()


def check_batch_size(batch_size):
    """Return a batch size; raise a ValueError if it is not an int of 1 or more."""
    is_whole = isinstance(batch_size, numbers.Integral) and not isinstance(batch_size, bool)
    if not is_whole or batch_size < 1:
        raise ValueError(f"batch_size={batch_size!r}: pass an int, 1 or more.")
    return batch_size
