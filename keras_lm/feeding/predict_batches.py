"""Batches for `predict`, `evaluate` and answers: the longest rows first, windows, answers joined.

Shapes: B batch, N rows of all, R examples, S sequence.
"""

import collections
import itertools
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np

from keras_lm.feeding import datasets
from keras_lm.feeding.datasets import (
    BATCHES_SORTED,
    PackedRows,
    arrays,
    batches,
    has_replicas,
    prepared,
    take,
)
from keras_lm.feeding.feed import is_stream, labelled
from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.utils.batch_iteration import iterate_batches, with_progress
from keras_lm.utils.processes import gather
from keras_lm.utils.user_arguments import check_batch_size, read_table

IS_TENSORFLOW = keras.backend.backend() == "tensorflow"
# The most tokens in a batch for answers on a CPU. Larger batches are not faster, and their values
# do not fit into all processors' caches; see benchmarks/README.md.
MOST_TOKENS = 1024
# Between its matrix products, a batch leaves cores idle, which another batch can use. On JAX, Keras
# keeps a model's state in one place while it predicts.
AT_ONCE = 2 if IS_TENSORFLOW else 1


def sorted_batches(
    feed, x, y=None, sample_weight=None, batch_size=None, steps=None, needs_labels=False
):
    """Return `batches` with the longest rows first, and the place of each row of `x` in them.

    For a dataset or a generator, and with `steps`, the order does not change, and the places are
    None.
    """
    x = read_table(x)
    if steps or is_stream(x) or isinstance(x, tf.distribute.DistributedDataset):
        batched = batches(feed, x, y, sample_weight, batch_size, needs_labels=needs_labels)
        return batched, None
    data = arrays(feed, x, y, sample_weight, needs_labels)
    batch_size = 32 if batch_size is None else check_batch_size(batch_size)
    if not IS_INSTALLED:
        return PackedRows(data, batch_size), None
    if has_replicas(feed.strategy):  # each has rows of every batch
        order = longest_first(feed.preprocessor, data[0], batch_size)
        dataset = tf.data.Dataset.from_tensor_slices(take(data, order)).batch(batch_size)
    else:
        rows = batches_by_length(feed.preprocessor, data[0], batch_size)
        order = np.concatenate(rows)
        rows = tf.RaggedTensor.from_row_lengths(order, [len(batch) for batch in rows])
        dataset = tf.data.Dataset.from_tensor_slices(rows).map(lambda rows: take(data, rows))
    return prepared(feed, dataset, labels_are_ready=True), np.argsort(order)


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
        lambda totals, here: (
            {key: tf.maximum(most, here[key]) for key, most in totals[0].items()},
            totals[1] + 1,
        ),
    )
    widths = {key: int(gather(strategy, width).max()) for key, width in widths.items()}
    padded = inputs.map(lambda packed: packer.pad_to(packed, widths))
    return padded.apply(tf.data.experimental.assert_cardinality(number))


def longest_first(preprocessor, columns, batch_size):
    """Return the order (N,) of rows by their number of tokens, the longest first; it is stable."""
    check_batch_size(batch_size)
    size = next(iter(columns.values())).shape[0]
    if size <= batch_size:
        return np.arange(size)
    return np.argsort(-preprocessor.count_tokens(columns), kind="stable")


def batches_by_length(preprocessor, columns, batch_size):
    """Return the places of the rows in each batch for answers, the longest rows first.

    A batch has `batch_size` rows or, on a CPU, at most `MOST_TOKENS` tokens, but at least one row.
    """
    check_batch_size(batch_size)
    size = next(iter(columns.values())).shape[0]
    # XLA, which compiles for each shape, gets as many rows each time.
    if size <= 1 or not IS_TENSORFLOW or tf.config.list_logical_devices("GPU"):
        order = longest_first(preprocessor, columns, batch_size)
        return [order[start : start + batch_size] for start in range(0, size, batch_size)]
    counts = preprocessor.count_tokens(columns)
    order = np.argsort(-counts, kind="stable")
    most = np.clip(counts[order], 1, preprocessor.packer.sequence_length)
    parts, start = [], 0
    while start < size:
        end = start + max(1, min(batch_size, MOST_TOKENS // most[start]))
        parts.append(order[start:end])
        start = end
    return parts


def validation_batches(feed, data, batch_size, steps=None):
    """Return the batches of `validation_data`: x, or a tuple or list of x, y and weights."""
    if isinstance(data, (tuple, list)) and not _is_text(data[:1]):
        data = (*data, None, None)[:3]
    else:
        data = (data, None, None)
    x, y, sample_weight = data
    x, y = labelled(feed, x, y)
    return sorted_batches(feed, x, y, sample_weight, batch_size, steps, feed.labels.are_needed)[0]


def split_validation(x, y, sample_weight, share):
    """Hold out the last `share` of the rows, as Keras does."""
    if is_stream(x):
        raise ValueError("validation_split needs arrays or lists: pass validation_data.")
    if not 0 < share < 1:
        raise ValueError(f"validation_split={share} is not between 0 and 1.")
    first = next(iter(x.values())) if isinstance(x, dict) else x[0] if isinstance(x, tuple) else x
    length = len(first)
    y = list(y) if isinstance(y, tuple) else y
    at = int(length * (1 - share))
    if at in (0, length):
        raise ValueError(f"validation_split={share} of {length} examples leaves a side empty.")

    def take(data, rows):
        if data is None:
            return None
        if isinstance(data, dict):
            return {key: take(value, rows) for key, value in data.items()}
        if isinstance(data, tuple):
            return tuple(take(value, rows) for value in data)
        return data[rows] if not hasattr(data, "iloc") else data.iloc[rows]

    data = (x, y, sample_weight)
    return (
        tuple(take(part, slice(None, at)) for part in data),
        tuple(take(part, slice(at, None)) for part in data),
    )


def _is_text(values):
    return isinstance(values, list) and all(isinstance(value, (str, bytes)) for value in values)


def answer_all(preprocessor, x, batch_size, answer, verbose="auto"):
    """See `Task.answer_all`."""
    if not callable(answer):
        raise ValueError(f"answer={answer!r}: pass a function of a dict of tensors, or None.")
    order, number = [], None
    if isinstance(x, tf.data.Dataset):
        datasets.batches_spec(preprocessor, x)
        windows = _joined_batches(x.map(lambda *batch: datasets.named(preprocessor.rows, batch[0])))
        windows = ((c, batches_by_length(preprocessor, c, size)) for c, size in windows)
    else:
        columns = preprocessor.columns(x)
        preprocessor.pairs.warn(columns)
        rows = batches_by_length(preprocessor, columns, batch_size)
        windows, number = [(columns, rows)], len(rows)

    def batches():
        for columns, rows_of_batches in windows:
            first = len(order)
            for rows in rows_of_batches:
                order.extend(first + rows)
                yield datasets.take(columns, rows)

    def compute(batch):
        return {key: np.asarray(value) for key, value in answer(batch).items()}

    answers = list(with_progress(_side_by_side(compute, batches()), number, verbose))
    if not answers:
        raise ValueError("x is empty: pass at least one text.")
    places = np.argsort(order)
    return {key: join_answers([part[key] for part in answers])[places] for key in answers[0]}


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


def window_batches(batches, batch_size, packer, shuffle=False, group=True, seed=None):
    """Return a dataset with `batch_size` windows in each batch, however many an example has.

    Args:
        batches: dataset of `(packed, labels[, weights])`, all windows of some examples each. Labels
            are a dict of places (R,) in the rows.
        batch_size: int.
        packer: the `Packer` of these windows.
        shuffle: bool. Whether windows of an example come apart.
        group: bool. Whether windows of similar length share a batch when they are shuffled.
        seed: int, of the order; None for any.
    """

    width = packer.sequence_length
    is_left = packer.template.padding_side == "left"

    def moved(labels, columns):
        """Places move with the tokens, in front of which there is more padding, or less."""
        return {name: x + columns for name, x in labels.items()} if is_left else labels

    def as_wide(packed, labels, *rest):
        packed = {name: packed[name] for name in packer.inputs}
        labels = moved(labels, width - tf.shape(packed["padding_mask"])[1])
        return packer.pad_to(packed, dict.fromkeys(packed, width)), labels, *rest

    windows = batches.map(as_wide, num_parallel_calls=tf.data.AUTOTUNE).unbatch()
    if shuffle:
        windows = windows.shuffle(BATCHES_SORTED * batch_size, seed)
        if group:
            blocks = windows.batch(BATCHES_SORTED * batch_size).map(_by_length)
            windows = blocks.unbatch()
    windows = windows.batch(batch_size)
    if shuffle and group:
        windows = windows.shuffle(BATCHES_SORTED, seed)
    if packer.padding == "fixed":
        return windows.prefetch(tf.data.AUTOTUNE)

    def narrow(packed, labels, *rest):
        longest = tf.maximum(tf.reduce_max(tf.reduce_sum(packed["padding_mask"], axis=1)), 1)
        columns = slice(-longest, None) if is_left else slice(longest)
        packed = {name: value[:, columns] for name, value in packed.items()}
        return packed, moved(labels, longest - width), *rest

    return windows.map(narrow, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _by_length(*block):
    order = tf.argsort(tf.reduce_sum(block[0]["padding_mask"], axis=1))
    return tf.nest.map_structure(lambda x: tf.gather(x, order), block)
