"""Loops over datasets."""

import tensorflow as tf

from keras_lm.utils.batch_iteration import iterate_batches


def test_loops_end_without_an_error_of_tensorflow(monkeypatch):
    data = tf.data.Dataset.from_tensor_slices({"a": tf.ragged.constant([[1], [2, 3], [4]])})
    unknown = data.batch(2).filter(lambda _: True)
    monkeypatch.delattr(type(iter(data)), "__next__")  # TensorFlow logs the error it ends with
    assert [batch["a"].to_list() for batch in iterate_batches(unknown)] == [[[1], [2, 3]], [[4]]]
    assert [*iterate_batches(data.take(0))] == []
