"""Batches for answers, to `evaluate` and `predict`: the longest texts first. Shape: N rows."""

import keras
import numpy as np

from keras_lm.feeding.datasets import arrays, batches, count_tokens, has_replicas, prepared, take
from keras_lm.feeding.packed_rows import PackedRows
from keras_lm.feeding.user_data import is_stream
from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.training.distribution import gather
from keras_lm.utils.batch_iteration import check_batch_size

# The most tokens in a batch for answers on a CPU. Larger batches are not faster, and their values
# do not fit into all processors' caches; see benchmarks/README.md.
MOST_TOKENS = 1024
IS_TENSORFLOW = keras.backend.backend() == "tensorflow"


def sorted_batches(
    task, x, y=None, sample_weight=None, batch_size=None, steps=None, needs_labels=False
):
    """Return `batches` with the longest rows first, and the place of each row of `x` in them.

    For a dataset or a generator, and with `steps`, the order does not change, and the places are
    None.
    """
    if steps or is_stream(x) or isinstance(x, tf.distribute.DistributedDataset):
        batched = batches(task, x, y, sample_weight, batch_size, needs_labels=needs_labels)
        return batched, None
    data = arrays(task, x, y, sample_weight, needs_labels)
    batch_size = 32 if batch_size is None else check_batch_size(batch_size)
    if not IS_INSTALLED:
        return PackedRows(data, batch_size), None
    if has_replicas(task):  # each has rows of every batch
        order = longest_first(task, data[0], batch_size)
        dataset = tf.data.Dataset.from_tensor_slices(take(data, order)).batch(batch_size)
    else:
        rows = batches_by_length(task, data[0], batch_size)
        order = np.concatenate(rows)
        rows = tf.RaggedTensor.from_row_lengths(order, [len(each) for each in rows])
        dataset = tf.data.Dataset.from_tensor_slices(rows).map(lambda rows: take(data, rows))
    return prepared(task, dataset, labels_are_ready=True), np.argsort(order)


def padded_alike(dataset, packer, strategy, number=None):
    """Return the inputs of a number of packed batches, padded to the widest of all workers."""
    if not IS_INSTALLED:
        return dataset  # rows are alike
    if number:
        dataset = dataset.take(number)
    inputs = dataset.cache().map(lambda *batch: packer.with_mask(batch[0]))
    widths = inputs.map(lambda packed: {key: tf.shape(v)[1] for key, v in packed.items()})
    widths, number = widths.reduce(
        (dict.fromkeys(widths.element_spec, 0), np.int64(0)),
        lambda so_far, here: (
            {key: tf.maximum(most, here[key]) for key, most in so_far[0].items()},
            so_far[1] + 1,
        ),
    )
    widths = {key: int(gather(strategy, width).max()) for key, width in widths.items()}
    padded = inputs.map(lambda packed: packer.pad_to(packed, widths))
    return padded.apply(tf.data.experimental.assert_cardinality(number))


def longest_first(task, columns, batch_size):
    """Return the order (N,) of rows by their number of tokens, the longest first; it is stable."""
    check_batch_size(batch_size)
    size = next(iter(columns.values())).shape[0]
    if size <= batch_size:
        return np.arange(size)
    return np.argsort(-count_tokens(task, columns), kind="stable")


def batches_by_length(task, columns, batch_size):
    """Return the places of the rows in each batch for answers, the longest rows first.

    A batch has `batch_size` rows or, on a CPU, at most `MOST_TOKENS` tokens, but at least one row.
    """
    check_batch_size(batch_size)
    size = next(iter(columns.values())).shape[0]
    # XLA, which compiles for each shape, gets as many rows each time.
    if size <= 1 or not IS_TENSORFLOW or tf.config.list_logical_devices("GPU"):
        order = longest_first(task, columns, batch_size)
        return [order[start : start + batch_size] for start in range(0, size, batch_size)]
    counts = count_tokens(task, columns)
    order = np.argsort(-counts, kind="stable")
    most = np.clip(counts[order], 1, task.packing["sequence_length"])
    parts, start = [], 0
    while start < size:
        end = start + max(1, min(batch_size, MOST_TOKENS // most[start]))
        parts.append(order[start:end])
        start = end
    return parts
