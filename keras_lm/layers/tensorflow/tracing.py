"""What a graph is traced for, checks in it, and sums over the replicas that run it."""

import contextlib
import contextvars
import re

import keras
import numpy as np

from keras_lm.tensorflow import tf

_IS_FOR_LITE = contextvars.ContextVar("is_for_lite", default=False)
_MOST_TOKENS = contextvars.ContextVar("most_tokens", default=None)
_ASSERTED = re.compile(r"assertion failed: \[(.*?)\]\s*(?:\n|$)", re.DOTALL)
PRODUCTS = contextvars.ContextVar("products", default=None)  # see `products.Products`
SMALLEST_KERNEL = 2**12  # weights; smaller kernels save too little time for the loss


@contextlib.contextmanager
def for_lite():
    """A context for tracing with LiteRT's operations only.

    LiteRT has no tensor arrays, so loops read and write slices of whole tensors, which are copied
    at every step. It has no fingerprints, so all words are computed. It has no in-place scatter.
    """
    token = _IS_FOR_LITE.set(True)
    try:
        yield
    finally:
        _IS_FOR_LITE.reset(token)


def is_for_lite():
    """Whether LiteRT's operations only are being traced."""
    return _IS_FOR_LITE.get()


@contextlib.contextmanager
def bounded(most):
    """A context for tracing what is served: graphs that refuse more than `most` tokens at once."""
    token = _MOST_TOKENS.set(most)
    try:
        yield
    finally:
        _MOST_TOKENS.reset(token)


def most_tokens():
    """Return how many tokens the graph being traced takes at once; None for any number."""
    return None if is_for_lite() else _MOST_TOKENS.get()


def products_for(dense):
    """Return the `Products` in whose context a `Dense` layer is, if it is large enough, or None."""
    products = PRODUCTS.get()
    if products is None or dense.input_spec.axes[-1] * dense.units < SMALLEST_KERNEL:
        return None
    return products


def narrowed(x):
    """Return what attention multiplies; in the context of `Products`, in their form."""
    products = PRODUCTS.get()
    return x if products is None else products.narrowed(x)


def known_array(value):
    """Return the values of a caller's array or tensor; None while a graph is traced."""
    is_traced = tf.is_tensor(value) and not hasattr(value, "numpy")
    return None if is_traced or isinstance(value, keras.KerasTensor) else np.asarray(value)


def require(condition, message, *values):
    """Raise an `InvalidArgumentError` when the graph runs, unless all of a condition is true.

    Unlike `tf.debugging.Assert`, it adds no branch, which would keep TensorFlow from optimising
    later loops, with a warning. The `values` of tensors are appended to the message. In a graph, it
    returns the operation, for control dependencies.
    """
    data = [tf.convert_to_tensor(value) for value in (message, *values)]
    return tf.raw_ops.Assert(condition=tf.reduce_all(condition), data=data)


def said_by_require(message):
    """Return what `require` says in the message of TensorFlow's error; None for another error."""
    found = _ASSERTED.search(message)
    return found and found[1].replace("] [", " ").replace("\\'", "'").replace('\\"', '"')


def required(value, condition, message, *values):
    """Return a tensor that is available once `require` has checked a condition.

    An assertion alone runs at the same time as the code after it, which may take all memory before
    it fails. Without `values`, the tensor itself is appended to the message.
    """
    with tf.control_dependencies([require(condition, message, *(values or [value]))]):
        return tf.identity(value)


def num_replicas():
    """Return the number of replicas of the current `tf.distribute` strategy, 1 without one."""
    return tf.distribute.get_strategy().num_replicas_in_sync


def sum_over_replicas(value):
    """Return the sum of a scalar over all replicas of a step, on each of them."""
    context = tf.distribute.get_replica_context()
    if num_replicas() == 1 or context is None:  # None while Keras only infers shapes
        return value
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.convert_to_tensor(value))
