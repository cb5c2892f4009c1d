"""Losses of a part of a batch: on one of several replicas, in a micro-batch, or both."""

import contextlib
import contextvars

from keras import ops

from keras_lm.layers.backend import num_replicas, sum_over_replicas

_PART = contextvars.ContextVar("part", default=(None, 1.0))
_ADDED = contextvars.ContextVar("added", default=None)


@contextlib.contextmanager
def part_of_batch(share, counts=None):
    """A context in which losses are computed that are then multiplied by `share`.

    The share makes Keras's losses, means over the rows of a part, add up to the mean over the whole
    batch: it is the part's rows, times the number of replicas, by which Keras divides, divided by
    the rows of the whole batch. A `MeanLoss` divides by the count in the whole batch and by the
    share. In micro-batches, `counts` has these counts by the `id` of their loss.

    On one of several replicas, yields a list for the sums and counts of `add_mean`: replicas take
    turns with the layers, of which each would find the losses of another.
    """
    added = [] if counts is None and num_replicas() > 1 else None
    tokens = _PART.set((counts, share)), _ADDED.set(added)
    try:
        yield added
    finally:
        _PART.reset(tokens[0])
        _ADDED.reset(tokens[1])


def count_in_batch(loss, count):
    """Return what the sum of losses here is divided by, for a count of labels here.

    Raises:
        ValueError: if this is a micro-batch, and the loss has not been counted before.
    """
    counts, share = _PART.get()
    if counts is None:
        return sum_over_replicas(count) * share
    if id(loss) not in counts:
        raise ValueError(
            f"{type(loss).__name__} is not counted before the forward pass, so it cannot be "
            "computed in parts: compile without micro_batch_size."
        )
    return counts[id(loss)] * share


def add_mean(layer, weight, total, count):
    """Add `weight` times a mean over the batch to a layer's losses, from its sum and count here.

    In micro-batches it is a mean over parts.
    """
    added = _ADDED.get()
    if added is None:
        layer.add_loss(weight * ops.divide_no_nan(total, count))
    else:
        added.append((weight * total, count))
