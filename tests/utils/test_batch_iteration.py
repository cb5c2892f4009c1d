"""Loops over datasets."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.utils.batch_iteration import check_batch_size, iterate_batches


def test_loops_end_without_an_error_of_tensorflow(monkeypatch):
    data = tf.data.Dataset.from_tensor_slices({"a": tf.ragged.constant([[1], [2, 3], [4]])})
    unknown = data.batch(2).filter(lambda _: True)
    monkeypatch.delattr(type(iter(data)), "__next__")  # TensorFlow logs the error it ends with
    assert [batch["a"].to_list() for batch in iterate_batches(unknown)] == [[[1], [2, 3]], [[4]]]
    assert [*iterate_batches(data.take(0))] == []


@pytest.mark.parametrize("size", [0, -1, 2.0, True, None, "2"])
def test_numbers_of_rows(size):
    with pytest.raises(ValueError, match=f"batch_size={size!r}: pass an int, 1 or more"):
        check_batch_size(size)
    assert check_batch_size(np.int64(2)) == 2
