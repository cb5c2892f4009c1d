"""Operations of attention and of decoding: products, dropout, places in rows, cache slots."""

import contextlib
import contextvars

from keras import ops

from keras_lm.layers.tensorflow.tracing import is_for_lite
from keras_lm.tensorflow import tf

_IS_IN_PLACE = contextvars.ContextVar("is_in_place", default=False)


def matmul(x, y):
    """Return the product (…, S, H) of `x` (…, S, T) and `y` (…, T, H)."""
    return _product(x, y, transpose=False)


def matmul_transposed(x, y):
    """Return the product (…, S, T) of `x` (…, S, H) and `y` (…, T, H), transposed.

    It is a single operation, because TensorFlow's optimiser for oneDNN turns a product, a
    transposition, a scale and a bias in a loop into an empty tensor.
    """
    return _product(x, y, transpose=True)


def _product(x, y, transpose):
    if _is_one_matrix(x, y):
        rows, matrix = ops.reshape(x, (-1, x.shape[-1])), ops.reshape(y, ops.shape(y)[2:])
        rows = tf.matmul(rows, matrix, transpose_b=transpose)
        return ops.reshape(rows, (*ops.shape(x)[:-1], ops.shape(rows)[-1]))
    # On a CPU this operation is Eigen's, and takes a fifth to two thirds of the time of oneDNN's.
    if _is_one_query(x) and x.dtype == y.dtype == tf.float32:
        return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=tf.float32, adj_y=transpose)
    return tf.matmul(x, y, transpose_b=transpose)


def softmax(x):
    """Return the softmax over the last axis."""
    if _is_one_query(x):
        return tf.exp(tf.nn.log_softmax(x))  # both operations are Eigen's
    return tf.nn.softmax(x)


def _is_one_matrix(x, y):
    """Whether `x` is (B, 1, …), of one head, and `y` (1, 1, …), such as relative positions.

    For their product, oneDNN writes beyond its memory in TensorFlow 2.20 and 2.21
    (https://github.com/tensorflow/tensorflow/issues/117700).
    """
    has_four = x.shape.rank == y.shape.rank == 4
    return has_four and x.shape[1] == 1 and y.shape[0] == y.shape[1] == 1


def _is_one_query(x):
    """Whether this is (B, N, 1, …), one query per head, as in a step of decoding.

    For such small tensors, oneDNN takes longer to wake its threads than to compute.
    """
    return x.shape.rank == 4 and x.shape[2] == 1


def fused_attention(query, key, value, bias, scale):
    """Return None, since TensorFlow has no fused kernel."""
    return None


def draw_seed(generator):
    """Return the next seed of a `keras.random.SeedGenerator`, like `keras.layers.Dropout`.

    Call it outside of branches and loops, where a strategy's replicas cannot assign variables.
    """
    return tf.cast(tf.math.floormod(generator.next(), tf.int32.max - 1), tf.int32)


def dropout(x, rate, seed):
    """Return `x` with a fraction `rate` dropped; the seed decides which."""
    return tf.nn.experimental.stateless_dropout(x, rate=rate, seed=seed)


def word_scores(x, table):
    """Return the products of vectors (…, D) with those of words (V, D): logits (…, V) float32.

    They are computed in the dtype of `x`.
    """
    # Both get a batch axis of 1: for 8 rows, oneDNN is twice as slow on plain matrices.
    rows = ops.reshape(x, (1, -1, x.shape[-1]))
    table = tf.expand_dims(tf.cast(table, x.dtype), 0)
    scores = tf.cast(matmul_transposed(rows, table), "float32")
    return ops.reshape(scores, (*ops.shape(x)[:-1], table.shape[1]))


def normal(shape, seed):
    """Return normally distributed numbers, float32; the seed decides which."""
    return tf.random.stateless_normal(shape, seed)


def split_seed(seed, number):
    """Return as many seeds from one, (number, 2)."""
    return tf.random.split(seed, number)


def argmax(logits):
    """Return the place of the largest number in each row (B, V), (B,) int32."""
    return tf.argmax(logits, axis=-1, output_type=tf.int32)


def at_columns(x, columns):
    """Return what each row of `x` (B, T, …) has in its own columns, (B,) or (B, K)."""
    return tf.gather(x, columns, batch_dims=1)


def at_rows(x, rows):
    """Return rows of `x` (B, …), by their indices of any shape."""
    return tf.gather(x, rows)


def size_within(size, limit, most):
    """Return the size to compute where `size` is asked for: it, and at most `limit`.

    Where shapes are static, it is `limit`, and at most `most`, which no size exceeds.
    """
    return tf.minimum(size, limit)


@contextlib.contextmanager
def writing_in_place():
    """A context in which `write_slots` writes in place if TensorFlow can.

    It is for loops, whose steps would otherwise take longer with more slots: on a CPU, TensorFlow's
    scatter update always copies. Adding works in place, but XLA and LiteRT have no kernel for it.
    In a slot of zeros, as free slots are, the sum is exact; in others it is rounded once.
    """
    token = _IS_IN_PLACE.set(True)
    try:
        yield
    finally:
        _IS_IN_PLACE.reset(token)


def write_slots(old, new, indices):
    """Return keys or values (B, N, T, H) with new ones (B·N·S, H) written into them.

    `indices` (B·N·S, 3) int32 are the row, head and slot of each.
    """
    if _IS_IN_PLACE.get() and not is_for_lite():
        return tf.raw_ops.ScatterNdNonAliasingAdd(
            input=old, indices=indices, updates=new - tf.gather_nd(old, indices)
        )
    return tf.tensor_scatter_nd_update(old, indices, new)


# From this many scores on, queries times columns of one text, attention is computed in blocks. The
# lengths have to be known when a graph is traced; otherwise it would have to contain both forms.
MANY_SCORES = 2**20


def is_long(queries, columns):
    """Whether to compute attention in blocks; unknown lengths are None. LiteRT never does."""
    if is_for_lite() or None in (queries, columns):
        return False
    return queries * columns >= MANY_SCORES
