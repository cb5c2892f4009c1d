"""Answers to users' texts, batch by batch."""

import collections
import itertools
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np

from keras_lm.feeding import datasets, lengths
from keras_lm.tensorflow import tf
from keras_lm.utils.batch_iteration import check_batch_size, iterate_batches, with_progress

# Between its matrix products, a batch leaves cores idle, which another batch can use. On JAX, Keras
# keeps a model's state in one place while it predicts.
AT_ONCE = 2 if keras.backend.backend() == "tensorflow" else 1


def answer_all(task, x, batch_size, answer, verbose="auto"):
    """See `Task.answer_all`."""
    order, number = [], None
    if isinstance(x, tf.data.Dataset):
        datasets.batches_spec(task, x)
        windows = _joined_batches(x.map(lambda *batch: datasets.named(task, batch[0])))
        windows = ((c, lengths.batches_by_length(task, c, size)) for c, size in windows)
    else:
        columns = task.columns(x)
        task.warn_of_pairs(columns)
        rows = lengths.batches_by_length(task, columns, batch_size)
        windows, number = [(columns, rows)], len(rows)

    def batches():
        for columns, rows_of_batches in windows:
            first = len(order)
            for rows in rows_of_batches:
                order.extend(first + rows)
                yield datasets.take(columns, rows)

    def compute(batch):
        return {key: np.asarray(value) for key, value in answer(batch).items()}

    found = list(with_progress(_side_by_side(compute, batches()), number, verbose))
    if not found:
        raise ValueError("x is empty: pass at least one text.")
    places = np.argsort(order)
    return {key: join_answers([each[key] for each in found])[places] for key in found[0]}


def _side_by_side(compute, batches):
    """Yield the results of batches in their order, computing `AT_ONCE` of them at a time."""
    batches = iter(batches)
    for batch in itertools.islice(batches, 1):  # the first one alone, as it may trace a graph
        yield compute(batch)
    with ThreadPoolExecutor(AT_ONCE) as threads:
        pending = collections.deque()
        for batch in batches:
            pending.append(threads.submit(compute, batch))
            if len(pending) == AT_ONCE:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def _joined_batches(dataset):
    """Yield the columns of some batches of a dataset, joined, and the rows of the largest."""
    batches = iterate_batches(dataset)
    while window := list(itertools.islice(batches, datasets.BATCHES_SORTED)):
        columns = {name: tf.concat([batch[name] for batch in window], 0) for name in window[0]}
        yield columns, max(1, *(next(iter(batch.values())).shape[0] for batch in window))


def batches_of(columns, batch_size):
    """Yield columns batch by batch; at the end of a dataset, TensorFlow might lose a Ctrl-C."""
    rows = next(iter(columns.values())).shape[0]
    for start in range(0, rows, check_batch_size(batch_size)):
        yield {name: column[start : start + batch_size] for name, column in columns.items()}


def join_answers(arrays):
    """Join batches along the rows, bytes as `str`; other axes are padded to the widest."""
    shape = np.max([array.shape[1:] for array in arrays], axis=0) if arrays[0].ndim > 1 else ()
    widened = [
        np.pad(
            array,
            [(0, 0), *((0, int(n) - m) for n, m in zip(shape, array.shape[1:], strict=True))],
            constant_values=b"" if array.dtype == object else 0,
        )
        for array in arrays
    ]
    joined = np.concatenate(widened)
    if joined.dtype != object:
        return joined
    return np.vectorize(lambda value: value.decode("utf-8", "replace"), otypes=[object])(joined)
