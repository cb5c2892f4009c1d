"""Attention in blocks of queries, for long texts.

Shapes: B batch, N heads, S sequence, H per head, X any width.
"""

import functools

from keras_lm.tensorflow import tf

BLOCK = 64  # queries


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
    cut, join = (functools.partial(step, number=number, size=size) for step in (_cut, _join))

    is_cut = [i < number_of_rows and x.shape[-2] != 1 for i, x in enumerate(given)]
    floats = [i for i, x in enumerate(given) if x.dtype.is_floating]

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


def _cut(x, number, size):
    """(…, S, X) → (number, …, size, X), padded with zeros."""
    rank, (*outer, length, width) = x.shape.rank, _sizes(x)
    x = tf.pad(x, [(0, 0)] * (rank - 2) + [(0, number * size - length), (0, 0)])
    x = tf.reshape(x, (*outer, number, size, width))
    return tf.transpose(x, (rank - 2, *range(rank - 2), rank - 1, rank))


def _join(blocks, like, number, size):
    """A TensorArray of (…, size, X) → (…, S, X), which is the shape of `like`."""
    x, rank = blocks.stack(), like.shape.rank
    x = tf.transpose(x, (*range(1, rank - 1), 0, rank - 1, rank))
    # Not the sizes of `x`, which XLA would consider variable.
    *outer, length, width = _sizes(like)
    x = tf.reshape(x, (*outer, number * size, width))[..., :length, :]
    return tf.ensure_shape(x, like.shape)


def _sizes(x):
    return [known or tf.shape(x)[axis] for axis, known in enumerate(x.shape)]
