"""Batches of windows for training. Shapes: R windows of some examples, B rows, S sequence."""

from keras_lm.feeding.datasets import BATCHES_SORTED
from keras_lm.tensorflow import tf


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
