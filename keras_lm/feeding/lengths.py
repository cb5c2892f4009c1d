"""Batches of texts of similar lengths, so that there is little padding.

Shapes: N rows, B rows of a batch.
"""

from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np

from keras_lm.elements import check_batch_size
from keras_lm.tensorflow import IS_INSTALLED, tf

# How many batches are sorted together, in training and for a dataset. More batches have less
# padding, but are less random, and need more memory.
BATCHES_SORTED = 50
WINDOWS = 4  # of a small data set, so that its batches are not the same in every epoch
COUNTED_TOGETHER = 1024  # texts
# The most tokens in a batch for answers on a CPU. Larger batches are not faster, and their values
# do not fit into all processors' caches; see benchmarks/README.md.
MOST_TOKENS = 1024
IS_TENSORFLOW = keras.backend.backend() == "tensorflow"


def count_tokens(task, columns, tokenize=None):
    """Return the number of tokens in each row, (N,) int64, given string tensors by name.

    It is 0 for all rows if they are padded to the same length anyway, because they are packed
    already, or to a fixed length. `tokenize` maps strings to ragged ids; the default is
    `task.tokenize`.
    """
    tokenize = tokenize or task.tokenize
    size = next(iter(columns.values())).shape[0]
    if task.is_packed(columns) or task.packer.padding == "fixed":
        return np.zeros(size, "int64")
    if not IS_INSTALLED:
        ids = [tokenize(column) for column in columns.values()]
        return np.array([sum(map(_number, row)) for row in zip(*ids, strict=True)], "int64")

    def count(start):
        total = np.int64(0)
        for name, column in columns.items():
            if name in task.packer.rows.samples:  # no text
                continue
            here = column[start : start + COUNTED_TOGETHER]
            sizes = tf.ragged.map_flat_values(lambda text: _sizes(tokenize, text), here)
            total += tf.reduce_sum(sizes, axis=list(range(1, sizes.shape.rank))).numpy()
        return total

    # Counting bytes would save the tokenizer's time, but on titles, sentences and articles mixed
    # it pads 20 % where tokens pad 2 %.
    with ThreadPoolExecutor() as threads:
        return np.concatenate(list(threads.map(count, range(0, size, COUNTED_TOGETHER))))


def _number(ids):
    """Return how many ids there are in nested lists."""
    return sum(_number(each) if isinstance(each, list) else 1 for each in ids)


def _sizes(tokenize, text):
    sizes = tokenize(tf.reshape(text, [-1])).row_lengths()
    return tf.reshape(tf.cast(sizes, tf.int64), tf.shape(text))


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
    batches, start = [], 0
    while start < size:
        end = start + max(1, min(batch_size, MOST_TOKENS // most[start]))
        batches.append(order[start:end])
        start = end
    return batches


def take(data, rows):
    """Return rows of nested tensors, dense or ragged, or arrays."""
    if not IS_INSTALLED:
        return keras.tree.map_structure(lambda column: column[rows], data)
    return tf.nest.map_structure(lambda column: tf.gather(column, rows), data)


def shuffled_batches(data, batch_size, lengths=None, seed=None):
    """Return a dataset of batches of nested columns, shuffled in each epoch.

    With `lengths` (N,), blocks of several batches are sorted by length, and the order of their
    batches is shuffled.
    """
    size = tf.nest.flatten(data)[0].shape[0]
    number = -(-size // batch_size)
    block = min(number // WINDOWS, BATCHES_SORTED)
    rows = tf.data.Dataset.range(size).shuffle(size, seed)
    if lengths is not None and block > 1:
        blocks = rows.batch(block * batch_size).map(
            lambda rows: tf.gather(rows, tf.argsort(tf.gather(lengths, rows)))
        )
        batches = blocks.unbatch().batch(batch_size).shuffle(block, seed)
        batches = batches.apply(tf.data.experimental.assert_cardinality(number))
    else:
        batches = rows.batch(batch_size)
    return batches.map(lambda rows: take(data, rows))
