"""Rows of a batch for the devices of each process, and that a step gets those that there were."""

import keras
import numpy as np
import pytest

from keras_lm.feeding import devices
from keras_lm.feeding.devices import REPEATED, Parts, divided, one_divided, whole


def batch_of(rows):
    ids = np.arange(3 * rows).reshape(rows, 3)
    return {"token_ids": ids}, ids[:, 0]


def joined(divided_batches):
    """What a step sees of the parts of all processes, which are joined along the rows."""
    return keras.tree.map_structure(lambda *parts: np.concatenate(parts), *divided_batches)


@pytest.mark.parametrize("rows", [1, 3, 4, 7, 8])
@pytest.mark.parametrize("owners", [[[0, 1, 2, 3]], [[0, 1], [2, 3]], [[0], [1], [2], [3]]])
def test_a_step_gets_the_rows_that_there_were(rows, owners):
    batch = batch_of(rows)
    parts = [one_divided(batch, Parts(4, np.array(own))) for own in owners]
    numbers = {len(part[0]["batch"][1]) for part in parts}
    assert numbers == {-(-rows // 4) * 4 // len(owners)}  # every device has as many
    inputs, labels = whole(joined(parts))
    np.testing.assert_array_equal(inputs["token_ids"], batch[0]["token_ids"])
    np.testing.assert_array_equal(labels, batch[1])


def test_datasets_are_divided_alike(monkeypatch):
    import tensorflow as tf

    batches = tf.data.Dataset.from_tensor_slices(batch_of(7)).batch(5)
    assert divided(batches) is batches  # on TensorFlow
    for own in ([0, 1], [2, 3]):
        parts = Parts(4, np.array(own))
        monkeypatch.setattr(devices, "parts_of_batches", lambda parts=parts: parts)
        results = divided(batches)
        assert divided(results) is results
        assert int(results.cardinality()) == 2
        for result, batch in zip(results, batches, strict=True):
            expected = one_divided(keras.tree.map_structure(np.asarray, batch), parts)
            keras.tree.map_structure(np.testing.assert_array_equal, result, expected)
        assert result[0][REPEATED].shape == (2, 3)  # of the last batch's two rows


def test_other_data_stay_as_they_are():
    batch = batch_of(3)
    assert whole(batch) is batch
    assert one_divided(batch, None) is batch
    once = one_divided(batch, Parts(2, np.array([0, 1])))
    assert one_divided(once, Parts(2, np.array([0, 1]))) is once
    assert whole((*batch, None))[2] is None
