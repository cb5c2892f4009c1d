"""Checks that run in a graph."""

import tensorflow as tf


def require(condition, message, *values):
    """Raise an `InvalidArgumentError` when the graph runs if not all of a condition holds.

    Unlike `tf.debugging.Assert` it adds no branch, which would keep TensorFlow from optimising the
    loops that follow, with a warning. The `values` of tensors are appended to the message. In a
    graph the operation is returned, for what has to wait for it.
    """
    data = [tf.convert_to_tensor(value) for value in (message, *values)]
    return tf.raw_ops.Assert(condition=tf.reduce_all(condition), data=data)


def required(value, condition, message, *values):
    """Return a tensor once `require` has found that all of a condition holds.

    An assertion alone runs beside what comes after it, which by then may have taken all memory.
    Without `values`, the tensor itself is appended to the message.
    """
    with tf.control_dependencies([require(condition, message, *(values or [value]))]):
        return tf.identity(value)
