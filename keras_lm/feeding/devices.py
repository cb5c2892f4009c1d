"""Batches → the rows of them that a process passes to its devices, by `keras.distribution` on JAX.

All devices of the axis of batches get as many rows. Where they do not divide a batch, its last row
is repeated, and a mark tells the step how often: it drops these rows before it computes anything.
So losses, metrics and random numbers are those of the batch as it was.

Shapes: B rows of a batch, M parts of it.
"""

import contextlib
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_lm.data.shards import is_own
from keras_lm.layers.tensorflow import required
from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.utils.processes import IS_JAX, workers_of

BATCH, REPEATED = "batch", "repeated"


class Parts(NamedTuple):
    """The number M of parts of a batch, and an array of those that this process has devices for."""

    number: int
    own: np.ndarray

    @property
    def are_all_here(self):
        return len(self.own) == self.number


def parts_of_batches():
    """Return the `Parts` of each batch; None if devices do not divide it.

    Raises:
        ValueError: if there are several processes, and no distribution.
    """
    if not IS_JAX:
        return None
    distribution = keras.distribution.distribution()
    workers = workers_of(None)
    if distribution is None:
        if workers.number == 1:
            return None
        raise ValueError(
            f"There are {workers.number} processes and no distribution, so that each would train a "
            "model of its own: before the task is made, call keras.distribution.set_distribution("
            "keras.distribution.DataParallel())."
        )
    mesh = distribution.device_mesh
    axis = mesh.axis_names.index(distribution.batch_dim_name)
    number = mesh.shape[axis]
    if number == 1:
        return None
    devices = np.moveaxis(mesh.backend_mesh.devices, axis, 0).reshape(number, -1)
    is_here = [any(d.process_index == workers.index for d in part) for part in devices]
    return Parts(number, np.flatnonzero(is_here))


def is_divided(batches):
    """Return whether batches are what `divided` returned."""
    spec = getattr(batches, "element_spec", None)
    return isinstance(batches, _DividedBatches) or _is_marked(spec)


def _is_marked(batch):
    return isinstance(batch, tuple) and isinstance(batch[0], dict) and REPEATED in batch[0]


def divided(batches):
    """Return packed batches in the form for Keras's `fit`, `evaluate` and `predict`.

    All processes have the same batches, unless each has a part of its own (`is_own`).
    """
    parts = None if batches is None or is_divided(batches) else parts_of_batches()
    if parts is None:
        return batches
    if not IS_INSTALLED or not isinstance(batches, tf.data.Dataset):
        if isinstance(batches, keras.utils.PyDataset):
            return _DividedBatches(batches, parts)
        return (one_divided(batch, parts) for batch in batches)  # a generator's
    are_own = is_own(batches)
    if are_own:
        parts = Parts(len(parts.own), np.arange(len(parts.own)))

    @tf.autograph.experimental.do_not_convert
    def divide(*batch):
        rows = tf.shape(tf.nest.flatten(batch)[0])[0]
        repeated = -rows % parts.number
        places = tf.minimum(tf.range(rows + repeated), rows - 1)
        if not parts.are_all_here:
            places = tf.gather(tf.reshape(places, [parts.number, -1]), parts.own)
        if are_own:  # rows repeated in the middle could not be dropped
            message = f"x is this process's own part, whose batches {parts.number} devices divide:"
            message += " take a multiple of rows, and not"
            places = required(places, repeated == 0, message, rows)
        places = tf.reshape(places, [-1])
        own = tf.nest.map_structure(lambda column: tf.gather(column, places), batch)
        return ({BATCH: own, REPEATED: tf.zeros([len(parts.own), repeated + 1], tf.int8)},)

    return batches.map(divide, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def one_divided(batch, parts):
    """Return a packed batch, a tuple of nested numpy arrays, divided as those of `divided`."""
    if parts is None or _is_marked(batch):
        return batch
    rows = len(keras.tree.flatten(batch)[0])
    repeated = -rows % parts.number
    places = np.minimum(np.arange(rows + repeated), rows - 1).reshape(parts.number, -1)[parts.own]
    own = keras.tree.map_structure(lambda column: column[places.reshape(-1)], batch)
    return ({BATCH: own, REPEATED: np.zeros((len(parts.own), repeated + 1), "int8")},)


def whole(data: Any) -> Any:
    """Return what a step gets without the rows that `divided` repeated; other data as they are."""
    if not _is_marked(data):
        return data
    x = data[0]
    repeated = x[REPEATED].shape[1] - 1
    if not repeated:
        return x[BATCH]
    return keras.tree.map_structure(lambda rows: rows[: rows.shape[0] - repeated], x[BATCH])


class _DividedBatches(keras.utils.PyDataset):
    """The batches of another `PyDataset`, divided."""

    def __init__(self, batches, parts):
        super().__init__()
        self.batches, self.parts = batches, parts

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, place):
        return one_divided(self.batches[place], self.parts)

    def on_epoch_end(self):
        self.batches.on_epoch_end()


@contextlib.contextmanager
def divided_already():
    """A context in which Keras does not divide batches among processes once more."""
    distribution = keras.distribution.distribution() if IS_JAX else None
    if distribution is None:
        yield
        return
    divides, distribution.auto_shard_dataset = distribution.auto_shard_dataset, False
    try:
        yield
    finally:
        distribution.auto_shard_dataset = divides
