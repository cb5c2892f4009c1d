"""Batches → the parts of them that replicas compute. Shapes: B batch, R rows of a part."""

import hashlib

from keras_lm.data.shards import is_own
from keras_lm.tensorflow import tf
from keras_lm.training.distribution import check_agreement, workers_of


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
