"""Batches in parts for replicas: every row once, whatever the number of workers and replicas."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.data.shards import own
from keras_lm.feeding import datasets
from keras_lm.feeding.datasets import parts
from keras_lm.utils.processes import Workers


class FakeStrategy:
    def __init__(self, number):
        self.num_replicas_in_sync = number


def steps_of_all(monkeypatch, batches, workers, local):
    """Return the parts of each step in the order of Keras's `predict`."""
    results = []
    for index in range(workers):
        worker = Workers(workers, index, local)
        monkeypatch.setattr(datasets, "workers_of", lambda strategy, worker=worker: worker)
        dataset = parts(FakeStrategy(workers * local), batches)
        assert int(dataset.cardinality()) == local * int(batches.cardinality())
        results.append([part.numpy() for (part,) in dataset])
    return [
        [own[step * local + number] for number in range(local) for own in results]
        for step in range(len(batches))
    ]


@pytest.mark.parametrize(("workers", "local"), [(1, 2), (2, 1), (3, 1), (2, 2), (1, 5)])
def test_every_row_once_and_in_order(monkeypatch, workers, local):
    rows = np.arange(14)
    batches = tf.data.Dataset.from_tensor_slices(rows).batch(4)
    steps = steps_of_all(monkeypatch, batches, workers, local)
    assert len(steps) == 4
    for step, batch in zip(steps, batches):
        assert np.concatenate(step).tolist() == batch.numpy().tolist()
        sizes = [len(part) for part in step]
        assert max(sizes) - min(sizes) <= 1


def test_ragged_and_nested_columns(monkeypatch):
    words = tf.ragged.constant([["a"], [], ["b", "c"], ["d"]])
    data = ({"text": words, "number": tf.range(4)}, tf.range(4))
    batches = tf.data.Dataset.from_tensor_slices(data).batch(4)
    monkeypatch.setattr(datasets, "workers_of", lambda strategy: Workers(2, 1, 1))
    ((columns, labels),) = parts(FakeStrategy(2), batches)
    assert columns["text"].to_list() == [[b"b", b"c"], [b"d"]]
    assert columns["number"].numpy().tolist() == labels.numpy().tolist() == [2, 3]


@pytest.mark.parametrize(("size", "rows"), [(4, 2), (3, None)])
def test_shapes_stay_static_where_rows_can_be_divided(monkeypatch, size, rows):
    monkeypatch.setattr(datasets, "workers_of", lambda strategy: Workers(1, 0, 2))
    batches = tf.data.Dataset.from_tensor_slices(tf.zeros([12, 5])).batch(size, drop_remainder=True)
    (spec,) = parts(FakeStrategy(2), batches).element_spec
    assert spec.shape.as_list() == [rows, 5]


def test_own_batches_are_divided_by_the_replicas_of_their_worker(monkeypatch):
    monkeypatch.setattr(datasets, "workers_of", lambda strategy: Workers(2, 1, 2))
    batches = own(tf.data.Dataset.range(6)).batch(4)
    results = [
        part.numpy().tolist() for (part,) in parts(FakeStrategy(4), batches.map(lambda x: x))
    ]
    assert results == [[0, 1], [2, 3], [4], [5]]
    given = []
    monkeypatch.setattr(datasets, "check_agreement", lambda *arguments: given.append(arguments[1]))
    datasets.check_same_data(FakeStrategy(4), batches)
    assert given == [2]


def test_one_replica_reads_what_it_is_given():
    batches = tf.data.Dataset.range(4).batch(2)
    assert parts(tf.distribute.get_strategy(), batches) is batches


def test_workers_with_other_data_are_told(monkeypatch):
    given = []
    monkeypatch.setattr(datasets, "workers_of", lambda strategy: Workers(2, 0, 1))
    monkeypatch.setattr(
        datasets, "check_agreement", lambda _, number, message: given.append(number)
    )
    for texts in (["a", "b", "c"], ["a", "b", "d"], ["a", "x", "c"]):
        batches = tf.data.Dataset.from_tensor_slices((texts, [1, 2, 3])).batch(2)
        datasets.check_same_data(FakeStrategy(2), batches)
    assert given[0] == given[1] != given[2]
