"""Sums over the replicas of a strategy."""

from keras_lm.tensorflow import tf


def num_replicas():
    """Return the number of replicas of the current `tf.distribute` strategy, 1 without one."""
    return tf.distribute.get_strategy().num_replicas_in_sync


def sum_over_replicas(value):
    """Return the sum of a scalar over all replicas of a step, on each of them."""
    context = tf.distribute.get_replica_context()
    if num_replicas() == 1 or context is None:  # None while Keras only infers shapes
        return value
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.convert_to_tensor(value))
