"""Generators and `PyDataset`s of batches → datasets; `pack` makes tensors of a batch."""

import itertools

import numpy as np

from keras_lm.tensorflow import tf


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
