"""What attention computes: products, dropout, writing into a cache, and blocks of queries."""

import contextlib
import contextvars

import tensorflow as tf

from keras_lm.layers.tensorflow.lite_tracing import is_for_lite

_IS_IN_PLACE = contextvars.ContextVar("is_in_place", default=False)


def matmul(x, y):
    """Return the product (…, S, H) of `x` (…, S, T) and `y` (…, T, H)."""
    return _product(x, y, transpose=False)


def matmul_transposed(x, y):
    """Return the product (…, S, T) of `x` (…, S, H) and `y` (…, T, H), transposed.

    In one operation: from a product, a transposition, a scale and a bias in a loop, TensorFlow's
    optimiser for oneDNN makes a tensor without elements.
    """
    return _product(x, y, transpose=True)


def _product(x, y, transpose):
    # This operation is Eigen's on a CPU, and a third to four fifths quicker there.
    if _is_one_query(x) and x.dtype == y.dtype == tf.float32:
        return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=tf.float32, adj_y=transpose)
    return tf.matmul(x, y, transpose_b=transpose)


def softmax(x):
    """Return the softmax over the last axis."""
    if _is_one_query(x):
        return tf.exp(tf.nn.log_softmax(x))  # both Eigen's
    return tf.nn.softmax(x)


def _is_one_query(x):
    """Whether this is (B, N, 1, …), one query of each head, as in a step of decoding.

    For tensors so small, waking its threads takes oneDNN longer than what they compute.
    """
    return x.shape.rank == 4 and x.shape[2] == 1


def draw_seed(generator):
    """Return the next seed of a `keras.random.SeedGenerator`, as `keras.layers.Dropout` draws it.

    Outside of branches and loops: a strategy's replicas may not assign a variable in one.
    """
    return tf.cast(tf.math.floormod(generator.next(), tf.int32.max - 1), tf.int32)


def dropout(x, rate, seed):
    """Return `x` with a fraction `rate` dropped, the same for the same seed."""
    return tf.nn.experimental.stateless_dropout(x, rate=rate, seed=seed)


@contextlib.contextmanager
def writing_in_place():
    """A context in which `write_slots` copies nothing where TensorFlow sees that it need not.

    That is so in a loop, whose steps would otherwise take longer the more slots there are: on a
    CPU, TensorFlow's scatter update always copies. What it can do in place is to add, for which
    XLA and LiteRT have no kernel. In a slot that held zeros, as free slots do, the sum is exact;
    in another it is rounded once.
    """
    token = _IS_IN_PLACE.set(True)
    try:
        yield
    finally:
        _IS_IN_PLACE.reset(token)


def write_slots(old, new, indices):
    """Return keys or values (B, N, T, H) with new ones (B·N·S, H) in them.

    `indices` (B·N·S, 3) int32 are the row, head and slot where each goes.
    """
    if _IS_IN_PLACE.get() and not is_for_lite():
        return tf.raw_ops.ScatterNdNonAliasingAdd(
            input=old, indices=indices, updates=new - tf.gather_nd(old, indices)
        )
    return tf.tensor_scatter_nd_update(old, indices, new)


# Attention with so many scores, queries times columns of one text, goes block by block. Lengths
# have to be known when a graph is traced: for others it would hold both forms.
MANY_SCORES = 2**20
BLOCK = 64  # queries


def is_long(queries, columns):
    """Whether attention goes block by block; None is a length that is not known. LiteRT's never."""
    if is_for_lite() or None in (queries, columns):
        return False
    return queries * columns >= MANY_SCORES


def in_blocks(read, rows, columns, seed):
    """Return `read(rows, columns, seed)`, for at most `BLOCK` queries at a time.

    What `read` computes for a block is computed again for its gradient, so that neither pass keeps
    more than one block's. Blocks have one size, the last is filled up with zeros. Each block has a
    seed of its own.

    Args:
        read: function of the three → (B, N, S, H), without variables.
        rows: nested tensors (…, S or 1, X), of which each block has its part; those with one row,
            axis −2, are for all queries. The first are queries, (B, N, S, H).
        columns: nested tensors, for all queries.
        seed: (2,) int32, or None.

    Source: https://arxiv.org/abs/2112.05682, section 3, here with all keys at once; computing again
    for the gradient, https://arxiv.org/abs/1604.06174, section 3.
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
        *outer, _, width = sizes(like)  # not of `x`: XLA would take them for variable
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
        # One block after the other: several at a time would take the memory of several.
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
