"""Marks datasets that hold one worker's part of the examples, not the same on all workers."""

from keras_lm.tensorflow import tf

OFF = tf.data.experimental.AutoShardPolicy.OFF


def own(dataset):
    """Mark a dataset as this worker's own part, which `tf.distribute` must not shard; return it."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = OFF
    return dataset.with_options(options)


def is_own(dataset):
    """Whether a dataset, or one that it was made from, is marked as this worker's own part."""
    return dataset.options().experimental_distribute.auto_shard_policy == OFF
