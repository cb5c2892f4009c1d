"""Operations of attention: products, dropout, writing into a cache, and blocks of queries."""

import contextlib
import contextvars

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
    # On a CPU this operation is Eigen's, and takes a fifth to two thirds of the time of oneDNN's.
    if _is_one_query(x) and x.dtype == y.dtype == tf.float32:
        return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=tf.float32, adj_y=transpose)
    return tf.matmul(x, y, transpose_b=transpose)


def softmax(x):
    """Return the softmax over the last axis."""
    if _is_one_query(x):
        return tf.exp(tf.nn.log_softmax(x))  # both operations are Eigen's
    return tf.nn.softmax(x)


def _is_one_query(x):
    """Whether this is (B, N, 1, …), one query per head, as in a step of decoding.

    For such small tensors, oneDNN takes longer to wake its threads than to compute.
    """
    return x.shape.rank == 4 and x.shape[2] == 1


def draw_seed(generator):
    """Return the next seed of a `keras.random.SeedGenerator`, like `keras.layers.Dropout`.

    Call it outside of branches and loops, where a strategy's replicas cannot assign variables.
    """
    return tf.cast(tf.math.floormod(generator.next(), tf.int32.max - 1), tf.int32)


def dropout(x, rate, seed):
    """Return `x` with a fraction `rate` dropped; the seed decides which."""
    return tf.nn.experimental.stateless_dropout(x, rate=rate, seed=seed)


def normal(shape, seed):
    """Return normally distributed numbers, float32; the seed decides which."""
    return tf.random.stateless_normal(shape, seed)


def split_seed(seed, number):
    """Return as many seeds from one, (number, 2)."""
    return tf.random.split(seed, number)


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
BLOCK = 64  # queries


def is_long(queries, columns):
    """Whether to compute attention in blocks; unknown lengths are None. LiteRT never does."""
    if is_for_lite() or None in (queries, columns):
        return False
    return queries * columns >= MANY_SCORES


def in_blocks(read, rows, columns, seed):
    """Return `read(rows, columns, seed)`, for at most `BLOCK` queries at a time.

    A block is computed again for its gradient, so that each pass only keeps the values of one
    block. All blocks have the same size; the last is padded with zeros. Each block has its own
    seed.

    Args:
        read: function of the three → (B, N, S, H), without variables.
        rows: nested tensors (…, S or 1, X), divided into blocks along axis −2; those of size 1 are
            the same for all queries. The first are queries, (B, N, S, H).
        columns: nested tensors, the same for all queries.
        seed: (2,) int32, or None.

    Source: https://arxiv.org/abs/2112.05682, section 3, here with all keys at once; recomputation
    for the gradient: https://arxiv.org/abs/1604.06174, section 3.
    """
    nested = [rows, columns]
    given = tf.nest.flatten(nested)
    number_of_rows = len(tf.nest.flatten(rows))
    length = given[0].shape[-2]
    number = -(-length // BLOCK)
    size = -(-length // number)

    is_cut = [i < number_of_rows and x.shape[-2] != 1 for i, x in enumerate(given)]
    floats = [i for i, x in enumerate(given) if x.dtype.is_floating]

    def sizes(x):
        return [known or tf.shape(x)[axis] for axis, known in enumerate(x.shape)]

    def cut(x):
        """(…, S, X) → (blocks, …, size, X)."""
        rank, (*outer, _, width) = x.shape.rank, sizes(x)
        x = tf.pad(x, [(0, 0)] * (rank - 2) + [(0, number * size - length), (0, 0)])
        x = tf.reshape(x, (*outer, number, size, width))
        return tf.transpose(x, (rank - 2, *range(rank - 2), rank - 1, rank))

    def join(blocks, like):
        """An array of (…, size, X) → (…, S, X)."""
        x, rank = blocks.stack(), like.shape.rank
        x = tf.transpose(x, (*range(1, rank - 1), 0, rank - 1, rank))
        *outer, _, width = sizes(like)  # not the sizes of `x`, which XLA would consider variable
        x = tf.reshape(x, (*outer, number * size, width))[..., :length, :]
        return tf.ensure_shape(x, like.shape)

    def array(like):
        shape = (*like.shape[:-2], size, like.shape[-1])
        return tf.TensorArray(like.dtype, size=number, element_shape=shape)

    def block(tensors, i):
        return [tf.gather(x, i) if at else x for x, at in zip(tensors, is_cut, strict=True)]

    def read_block(tensors, i):
        own_seed = None if seed is None else tf.random.experimental.stateless_fold_in(seed, i)
        return read(*tf.nest.pack_sequence_as(nested, tensors), own_seed)

    def loop(body, *start):
        # One block at a time, since several would take the memory of several.
        _, *found = tf.while_loop(
            lambda i, *_: i < number,
            lambda i, *carry: (i + 1, *body(i, *carry)),
            (0, *start),
            parallel_iterations=1,
        )
        return found

    @tf.custom_gradient
    def attend(*tensors):
        tensors = [cut(x) if at else x for x, at in zip(tensors, is_cut, strict=True)]

        def forward(i, contexts):
            return (contexts.write(i, read_block(block(tensors, i), i)),)

        def gradient(upstream):
            upstream = cut(upstream)

            def backward(i, *sums):
                here = block(tensors, i)
                sources = [here[j] for j in floats]
                with tf.GradientTape() as tape:
                    tape.watch(sources)
                    context = read_block(here, i)
                found = tape.gradient(
                    context, sources, tf.gather(upstream, i), unconnected_gradients="zero"
                )
                return [
                    total.write(i, x) if is_cut[j] else total + tf.cast(x, "float32")
                    for j, total, x in zip(floats, sums, found, strict=True)
                ]

            sums = [
                array(given[j]) if is_cut[j] else tf.zeros(tf.shape(given[j]), "float32")
                for j in floats
            ]
            gradients = [None] * len(given)
            for j, total in zip(floats, loop(backward, *sums), strict=True):
                is_array = is_cut[j]
                gradients[j] = join(total, given[j]) if is_array else tf.cast(total, given[j].dtype)
            return gradients

        (contexts,) = loop(forward, array(given[0]))
        return join(contexts, given[0]), gradient

    return attend(*given)
