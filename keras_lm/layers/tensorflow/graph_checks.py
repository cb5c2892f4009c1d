"""Checks that run in a graph."""

from keras_lm.tensorflow import tf


def require(condition, message, *values):
    """Raise an `InvalidArgumentError` when the graph runs, unless all of a condition is true.

    Unlike `tf.debugging.Assert`, it adds no branch, which would keep TensorFlow from optimising
    later loops, with a warning. The `values` of tensors are appended to the message. In a graph, it
    returns the operation, for control dependencies.
    """
    data = [tf.convert_to_tensor(value) for value in (message, *values)]
    return tf.raw_ops.Assert(condition=tf.reduce_all(condition), data=data)


def required(value, condition, message, *values):
    """Return a tensor that is available once `require` has checked a condition.

    An assertion alone runs at the same time as the code after it, which may take all memory before
    it fails. Without `values`, the tensor itself is appended to the message.
    """
    with tf.control_dependencies([require(condition, message, *(values or [value]))]):
        return tf.identity(value)
