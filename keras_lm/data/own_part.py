"""Which datasets hold examples of one worker, and which are the same on all of them."""

import tensorflow as tf

OFF = tf.data.experimental.AutoShardPolicy.OFF


def own(dataset):
    """Return a dataset marked as this worker's own part, as `tf.distribute` has it: not divided."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = OFF
    return dataset.with_options(options)


def is_own(dataset):
    """Whether a dataset, or what it was made from, is marked as this worker's own part."""
    return dataset.options().experimental_distribute.auto_shard_policy == OFF
