"""Batches of a generator or a `keras.utils.PyDataset` → batches for the network."""

import itertools

import keras
import numpy as np

from keras_lm.feeding.packed_rows import PackedBatches
from keras_lm.tensorflow import IS_INSTALLED, tf


def batches(task, x, y, sample_weight, shuffle, pack):
    """Return what a generator or PyDataset yields, each batch packed by `pack`, as Keras takes it.

    Raises:
        ValueError: if it cannot be divided among replicas, or labels do not come with its batches.
    """
    is_py_dataset = isinstance(x, keras.utils.PyDataset)
    if task.distribute_strategy.num_replicas_in_sync > 1:
        raise ValueError(
            f"x is a {'PyDataset' if is_py_dataset else 'generator'}, which "
            f"{type(task.distribute_strategy).__name__} cannot divide among replicas: pass a "
            "tf.data.Dataset or lists."
        )

    if not IS_INSTALLED:
        return PackedBatches(x, pack, shuffle) if is_py_dataset else (pack(batch) for batch in x)
    if not is_py_dataset:
        return from_generator(x, pack)
    if y is not None or sample_weight is not None:
        raise ValueError("x is a PyDataset: let it return (x, y, sample_weight).")
    return from_py_dataset(x, pack, shuffle)


def from_generator(x, pack):
    """Return a dataset of the batches of a generator, packed, for one epoch."""
    packed = (pack(batch) for batch in x)
    first = next(packed, None)
    if first is None:
        raise ValueError("x is a generator without batches: pass at least one.")
    rest = itertools.chain([first], packed)
    return tf.data.Dataset.from_generator(lambda: rest, output_signature=_spec_of(first))


def from_py_dataset(x, pack, shuffle):
    """Return a dataset of the batches of a `keras.utils.PyDataset`, packed, for any epochs."""
    number = x.num_batches
    if not number:
        raise ValueError(
            f"x is a PyDataset of {number} batches: let len(x) be 1 or more, or pass a generator "
            "and steps_per_epoch."
        )

    def packed():  # once an epoch
        for place in np.random.permutation(number) if shuffle else range(number):
            yield pack(x[int(place)])
        x.on_epoch_end()

    dataset = tf.data.Dataset.from_generator(packed, output_signature=_spec_of(pack(x[0])))
    return dataset.apply(tf.data.experimental.assert_cardinality(number))


def _spec_of(batch):
    return tf.nest.map_structure(
        lambda value: tf.TensorSpec([None] * len(value.shape), value.dtype), batch
    )
