"""Columns of strings → batches for the network, divided among replicas.

Shapes: B batch, S sequence, N rows of all, R rows of a part.
"""

import contextlib
import hashlib
import itertools
from typing import Any

import keras
import numpy as np

from keras_lm.data.shards import is_own
from keras_lm.feeding.devices import divided, is_divided
from keras_lm.feeding.feed import (
    check_label_names,
    check_names,
    is_stream,
    labelled,
    labels_from_user,
    weights_from_user,
)
from keras_lm.layers.tensorflow import required
from keras_lm.models.backbone import allowed_ids, check_ids, id_limit
from keras_lm.tensorflow import IS_INSTALLED, tf
from keras_lm.utils.processes import IS_JAX, check_agreement, common_seed, workers_of
from keras_lm.utils.user_arguments import check_batch_size


def with_known_ids(model: keras.Model, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return a backbone's inputs, tensors, available once their ids are checked.

    The graph raises an `InvalidArgumentError` if an input has ids without an embedding.
    """
    checked = dict(inputs)
    for name, ids in inputs.items():
        limit = id_limit(model, name)
        if limit is None:
            continue
        least, largest = tf.reduce_min(ids), tf.reduce_max(ids)
        is_known = (least >= 0) & (tf.cast(largest, tf.int64) < int(min(limit, 2**31)))
        message = f"{name}: {allowed_ids(model, limit)}, but the least and the largest here are"
        checked[name] = required(ids, is_known, message, least, largest)
    return checked


class Ordered(keras.utils.PyDataset):
    """`number` things by their places in `order`, another one in each epoch with `shuffle`."""

    def __init__(self, number, shuffle):
        super().__init__()
        self.shuffle, self.order = shuffle, np.arange(number)
        self.draw()

    def draw(self):
        if self.shuffle:
            self.order = np.random.permutation(len(self.order))

    on_epoch_end = draw


class PackedRows(Ordered):
    """Batches of arrays, for Keras's `fit`, `evaluate` and `predict`.

    Args:
        data: tuple `(inputs[, labels[, weights]])`, nested arrays with N rows each.
        batch_size: int, B.
        shuffle: bool. Whether rows have another order in each epoch.
    """

    def __init__(self, data, batch_size, shuffle=False):
        super().__init__(len(keras.tree.flatten(data)[0]), shuffle)
        self.data, self.batch_size = data, batch_size

    def __len__(self):
        return -(-len(self.order) // self.batch_size)

    def __getitem__(self, place):
        rows = self.order[place * self.batch_size :][: self.batch_size]
        return keras.tree.map_structure(lambda column: np.asarray(column)[rows], self.data)


class PackedBatches(Ordered):
    """The batches of another `PyDataset`, packed by a function; `shuffle` draws their order."""

    def __init__(self, batches, pack, shuffle=False):
        super().__init__(batches.num_batches, shuffle)
        self.batches, self.pack = batches, pack

    def __len__(self):
        return len(self.order)

    def __getitem__(self, place):
        return self.pack(self.batches[int(self.order[place])])

    def on_epoch_end(self):
        self.batches.on_epoch_end()
        self.draw()


def stream_batches(strategy, x, y, sample_weight, shuffle, pack):
    """Return what a generator or PyDataset yields, each batch packed by `pack`, as Keras takes it.

    Raises:
        ValueError: if it cannot be divided among replicas, or labels do not come with its batches.
    """
    is_py_dataset = isinstance(x, keras.utils.PyDataset)
    if has_replicas(strategy):
        raise ValueError(
            f"x is a {'PyDataset' if is_py_dataset else 'generator'}, which "
            f"{type(strategy).__name__} cannot divide among replicas: pass a "
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
    return tf.data.Dataset.from_generator(
        lambda: [first] if _Peek.is_on else rest, output_signature=_spec_of(first)
    )


class _Peek:
    is_on = False


@contextlib.contextmanager
def peeking():
    """A context in which the first batch of a generator is read, and stays to be read again."""
    _Peek.is_on = True
    try:
        yield
    finally:
        _Peek.is_on = False


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


# Half of Keras's default: with few examples, more steps learn more; see docs/training.md.
TRAINING_BATCH_SIZE = 16
# How many batches are sorted together, in training and for a dataset. More batches have less
# padding, but are less random, and need more memory.
BATCHES_SORTED = 50
WINDOWS = 4  # of a small data set, so that its batches are not the same in every epoch


def batches(
    feed,
    x,
    y=None,
    sample_weight=None,
    batch_size=None,
    shuffle=False,
    group=True,
    whole=False,
    needs_labels=False,
    seed=None,
):
    """Return a dataset of packed batches `(inputs[, labels[, weights]])` from arguments of `fit`.

    `feed` is a task's `keras_lm.feeding.feed.Feed`. With `shuffle` and `group`, rows of similar
    lengths are batched together, so that there is little padding. Under a strategy, batches are
    divided into `parts`, unless `whole`. With `needs_labels`, data without labels raise a
    ValueError. `seed` is of the order.
    """
    is_ready = isinstance(x, (tf.distribute.DistributedDataset, PackedRows))
    if is_ready or (IS_JAX and is_divided(x)):
        return x  # Keras's `fit` passes the same dataset again to evaluate
    if isinstance(x, tf.data.Dataset):
        if y is not None or sample_weight is not None:
            raise ValueError("x is a tf.data.Dataset: let it yield (x, y, sample_weight).")
        check_same_data(feed.strategy, x)
        return prepared(feed, x, whole, needs_labels)
    if is_stream(x):

        def pack(batch):
            return one_batch(feed, *_as_tuple(batch), needs_labels=needs_labels)

        return stream_batches(feed.strategy, x, y, sample_weight, shuffle, pack)
    data = arrays(feed, x, y, sample_weight, needs_labels)
    batch_size = TRAINING_BATCH_SIZE if batch_size is None else check_batch_size(batch_size)
    if not IS_INSTALLED:
        return PackedRows(data, batch_size, shuffle)
    if shuffle:
        counts = feed.preprocessor.row_lengths(*data[:2]) if group else None
        if seed is None:
            seed = common_seed(feed.strategy)
        dataset = shuffled_batches(data, batch_size, counts, seed)
    else:
        dataset = tf.data.Dataset.from_tensor_slices(data).batch(batch_size)
    return prepared(feed, dataset, whole, labels_are_ready=True)


def has_replicas(strategy):
    """Return whether a strategy has several replicas, on one or more workers."""
    return strategy.num_replicas_in_sync > 1


def number_of_batches(batches):
    """Return the number of batches for Keras; None if it is unknown or infinite."""
    if not IS_INSTALLED:
        return batches.num_batches if isinstance(batches, keras.utils.PyDataset) else None
    number = batches.cardinality
    number = int(number() if callable(number) else number)
    return None if number < 0 else number


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


def take(data, rows):
    """Return rows of nested tensors, dense or ragged, or arrays."""
    if not IS_INSTALLED:
        return keras.tree.map_structure(lambda column: column[rows], data)
    return tf.nest.map_structure(lambda column: tf.gather(column, rows), data)


def one_batch(feed, x, y=None, sample_weight=None, needs_labels=False):
    """Return lists or arrays as a single packed batch; see `batches`."""
    if needs_labels or y is not None:
        x, y = labelled(feed, x, y)
    data = arrays(feed, x, y, sample_weight, needs_labels)
    return _packed(feed.preprocessor, *data)


def named(rows, x):
    """Return the texts of a dataset's element (a tensor, a pair or a dict) as a dict.

    `rows` is the `keras_lm.packers.Texts` that says which there are.
    """
    names = rows.names
    if not isinstance(x, dict):
        parts = _as_tuple(x)
        if len(parts) > len(names):
            raise ValueError(f"x is a tuple of {len(parts)} texts: allowed are {list(names)}.")
        x = dict(zip(names, parts, strict=False))
    check_names(x, names, rows.required)
    return x


def arrays(feed, x, y, sample_weight, needs_labels=False):
    """Return lists or arrays as `(columns[, labels[, weights]])`, checked, with N rows each."""
    preprocessor, labels = feed.preprocessor, feed.labels
    if preprocessor.is_packed(x):
        columns = {key: np.asarray(value) for key, value in x.items()}
        check_ids(preprocessor.backbone, columns)
    else:
        preprocessor.require_tokenizer()
        columns = preprocessor.columns(x)
        preprocessor.pairs.note(columns)
        if not IS_INSTALLED:
            columns = preprocessor(columns)
    length = next(iter(columns.values())).shape[0]
    if not length:
        raise ValueError("x is empty: pass at least one example.")
    data = [columns]
    if isinstance(y, dict):
        ragged = tf.RaggedTensor  # prepared already
        data.append(
            {k: v if isinstance(v, ragged) else labels_from_user(v, length) for k, v in y.items()}
        )
    elif y is not None:
        ready = labels.prepare(labels_from_user(y, length))
        data.append(labels.match(ready, columns, preprocessor.is_packed(columns)))
    if sample_weight is not None:
        if y is None:
            raise ValueError("sample_weight is given without y: it weighs the loss of labels.")
        weights = weights_from_user(sample_weight, length)
        data.append(weights[:, 0] if weights.shape[1:] == (1,) else weights)
    if needs_labels and y is None:
        raise _missing_labels(labels, labels.remedy)
    return tuple(data)


def _missing_labels(labels, remedy):
    return ValueError(f"labels are missing, which {labels.task} compares with: {remedy}.")


def _packed(preprocessor, x, *rest):
    """Pack the columns of `(x[, labels[, weights]])`, unless they are packed already."""
    if preprocessor.is_packed(x):
        return (x, *rest)
    if not rest:
        return (preprocessor(x),)
    packed, labels = preprocessor.with_labels(x, rest[0])
    weights = rest[1:]
    if "example" in packed:  # several rows per example, each with the example's weight
        weights = [tf.gather(weight, packed["example"]) for weight in weights]
    return packed, labels, *weights


def prepared(feed, dataset, whole=False, needs_labels=False, labels_are_ready=False):
    """Return a dataset of raw batches, packed in `tf.data`; labels may be prepared already."""
    preprocessor, labels, strategy = feed
    if has_replicas(strategy) and not whole:  # each worker tokenizes what it reads
        dataset = parts(strategy, dataset)
    if int(dataset.cardinality()) == 0:
        raise ValueError(
            "x is a tf.data.Dataset without batches: let it yield one at least; batch(n, "
            "drop_remainder=True) leaves none of fewer than n rows."
        )
    spec, packed = batches_spec(preprocessor, dataset)
    if not packed:
        preprocessor.require_tokenizer()
        preprocessor.pairs.note(named(preprocessor.rows, spec))
    if needs_labels and len(_as_tuple(dataset.element_spec)) == 1:
        raise _missing_labels(labels, "let the tf.data.Dataset yield (x, y)")

    if not labels_are_ready:
        y = (_as_tuple(dataset.element_spec)[1:2] or [None])[0]
        check_label_names(labels, y, packed, "x is a tf.data.Dataset, whose y")

    # This is plain graph code: without AutoGraph it traces faster, and errors are clearer.
    @tf.autograph.experimental.do_not_convert
    def prepare(*batch):
        x, *rest = batch
        x = x if packed else named(preprocessor.rows, x)
        if not rest and not packed:  # as in predict, whose later calls need not trace this again
            return (preprocessor.in_graph(x),)
        if packed and not labels_are_ready:
            x = with_known_ids(preprocessor.backbone, x)
        if rest and not labels_are_ready:
            rest[0] = labels.prepare_tensor(rest[0])
        return _packed(preprocessor, x, *rest)

    return dataset.map(prepare, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def batches_spec(preprocessor, dataset):
    """Return what a dataset yields, and if it is packed; ValueError for single examples."""
    spec = _as_tuple(dataset.element_spec)[0]
    packed = preprocessor.is_packed(spec)
    for leaf in tf.nest.flatten(spec):
        if leaf.shape.rank == 0:
            raise ValueError("x is a tf.data.Dataset of single examples: call .batch(n) on it.")
        if not packed:
            _check_strings(preprocessor.packer, leaf)
    return spec, packed


def _check_strings(packer, leaf):
    if leaf.dtype != tf.string:
        raise ValueError(
            f"x is a tf.data.Dataset of {leaf.dtype.name}: it must yield strings, or dicts with "
            "token_ids."
        )
    is_list = leaf.shape.rank == 2 and packer.lists
    if leaf.shape.rank not in (None, 1) and not is_list:
        raise ValueError(
            f"x is a tf.data.Dataset of strings of shape {leaf.shape}: it must yield (B,), and "
            "pairs as a tuple or a dict."
        )


def _as_tuple(element):
    return element if isinstance(element, tuple) else (element,)


# === Batches → the parts of them that replicas compute ===


def parts(strategy, batches):
    """Return a dataset of the parts of batches for this worker's replicas, in turn.

    All workers read the same batches. A batch is divided into consecutive parts, whose sizes differ
    by one row at most, so that all replicas together compute every row once. Batches that are the
    worker's own are divided among its replicas only.
    """
    workers = workers_of(strategy)
    total, index, step = strategy.num_replicas_in_sync, workers.index, workers.number
    if is_own(batches):
        total, index, step = workers.replicas, 0, 1
    if total == 1:
        return batches
    # `predict` of Keras joins first those of each worker's first replica, then of each second one.
    own = range(index, total, step)

    @tf.autograph.experimental.do_not_convert
    def part(number, *batch):
        rows = tf.shape(tf.nest.flatten(batch)[0], tf.int64)[0]
        least, more = rows // total, rows % total
        start = number * least + tf.minimum(number, more)
        end = start + least + tf.cast(number < more, tf.int64)
        return tf.nest.map_structure(lambda x: _with_rows(x[start:end], x.shape[0], total), batch)

    @tf.autograph.experimental.do_not_convert
    def parts_of(*batch):
        numbers = tf.data.Dataset.range(own.start, own.stop, own.step)
        return numbers.map(lambda number: part(number, *batch))

    number = int(batches.cardinality())
    divided = batches.flat_map(parts_of)
    if number >= 0:
        divided = divided.apply(tf.data.experimental.assert_cardinality(number * len(own)))
    return divided


def _with_rows(part, rows, total):
    """Set the static number of rows if it is known, for TPUs."""
    if rows is not None and rows % total == 0 and not isinstance(part, tf.RaggedTensor):
        part.set_shape([rows // total, *part.shape[1:]])
    return part


def check_same_data(strategy, batches):
    """Raise a ValueError if the first batch of a dataset is not the same on all workers.

    If each worker has a dataset of its own, only their lengths have to be equal.
    """
    if workers_of(strategy).number == 1:
        return
    if is_own(batches):
        check_agreement(
            strategy,
            int(batches.cardinality()),
            "x, each worker's own data, has another number of batches on each, so that some would "
            "wait for others: cut it by .take(n), or .repeat() it and pass steps_per_epoch.",
        )
        return
    digest = hashlib.sha256()
    for batch in batches.take(1):
        for leaf in tf.nest.flatten(batch, expand_composites=True):
            digest.update(tf.io.serialize_tensor(leaf).numpy())
    check_agreement(
        strategy,
        int.from_bytes(digest.digest()[:7], "big"),
        "x has another first batch on each worker, so that some rows would be read twice and "
        "others never: give all workers the same batches, and shuffle with a seed.",
    )


def number_here(strategy):
    """Return the number of replicas of this worker, which is its number of parts of a batch."""
    return workers_of(strategy).replicas


def distributed(strategy, parts):
    """Return the parts of batches in the form for Keras's `fit`, `evaluate` and `predict`."""
    if IS_JAX:
        return divided(parts)
    if strategy.num_replicas_in_sync == 1 or not isinstance(parts, tf.data.Dataset):
        return parts  # None, or distributed already
    workers = workers_of(strategy)

    def read(context):
        if context.num_input_pipelines != workers.number:
            raise ValueError(
                f"{type(strategy).__name__} has {context.num_input_pipelines} hosts in a process: "
                "train on the replicas of one host."
            )
        return parts

    batches = strategy.distribute_datasets_from_function(read)
    number = int(parts.cardinality())
    batches._cardinality = number if number < 0 else number // workers.replicas  # not of parts
    return batches
