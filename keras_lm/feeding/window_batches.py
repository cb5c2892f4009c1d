"""Batches of windows for training. Shapes: R windows of some examples, B rows, S sequence."""

from keras_lm.feeding.lengths import BATCHES_SORTED
from keras_lm.tensorflow import tf


def window_batches(batches, batch_size, packer, shuffle=False, group=True, seed=None):
    """Return a dataset with `batch_size` windows in each batch, however many an example has.

    Args:
        batches: dataset of `(packed, labels[, weights])`, all windows of some examples each.
        batch_size: int.
        packer: the `Packer` of these windows.
        shuffle: bool. Whether windows of an example come apart.
        group: bool. Whether windows of similar length share a batch when they are shuffled.
        seed: int, of the order; None for any.
    """

    def as_wide(packed, *rest):
        packed = {name: packed[name] for name in packer.inputs}
        return packer.pad_to(packed, dict.fromkeys(packed, packer.sequence_length)), *rest

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

    def narrow(packed, *rest):
        longest = tf.maximum(tf.reduce_max(tf.reduce_sum(packed["padding_mask"], axis=1)), 1)
        is_left = packer.template.padding_side == "left"
        columns = slice(-longest, None) if is_left else slice(longest)
        return {name: value[:, columns] for name, value in packed.items()}, *rest

    return windows.map(narrow, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


def _by_length(*block):
    order = tf.argsort(tf.reduce_sum(block[0]["padding_mask"], axis=1))
    return tf.nest.map_structure(lambda x: tf.gather(x, order), block)
