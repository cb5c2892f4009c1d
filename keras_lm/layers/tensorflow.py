"""What layers need of TensorFlow beyond `keras.ops`, and what a graph is traced for.

`keras_lm.layers.backend` offers these, or what another backend has in their place.

Shapes: B batch, N heads, S sequence, H per head, X any width.
"""

import collections
import contextlib
import contextvars
import functools
import gc
import math
import re
import types
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.tensorflow import tf

_IS_FOR_LITE = contextvars.ContextVar("is_for_lite", default=False)
_CLASSES_ARE_NAMED = contextvars.ContextVar("classes_are_named", default=True)
_TRACES = contextvars.ContextVar("traces", default=None)
_MOST_TOKENS = contextvars.ContextVar("most_tokens", default=None)
_ASSERTED = re.compile(r"assertion failed: \[(.*?)\]\s*(?:\n|$)", re.DOTALL)
_IS_GROWING = contextvars.ContextVar("is_growing", default=False)
PRODUCTS = contextvars.ContextVar("products", default=None)  # see `tensorflow_products`
SMALLEST_KERNEL = 2**12  # weights; smaller kernels save too little time for the loss


# === What a graph is traced for ===


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


def keeps_axes(x):
    """Whether a layer multiplies (B, S, D) as it is: LiteRT has a product of it and a matrix.

    Reshapes to several unknown sizes, and what computes these, would be half of LiteRT's operations
    in a network, which it prepares in each call.
    """
    return is_for_lite() and [*x.shape[:-1]].count(None) > 1


@contextlib.contextmanager
def numbers_of_classes():
    """A context for tracing answers with numbers for names; the one after the last is none."""
    token = _CLASSES_ARE_NAMED.set(False)
    try:
        yield
    finally:
        _CLASSES_ARE_NAMED.reset(token)


def classes_are_named():
    """Whether answers have the names of classes."""
    return _CLASSES_ARE_NAMED.get()


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


# === Checks in a graph ===


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
    match = _ASSERTED.search(message)
    return match and match[1].replace("] [", " ").replace("\\'", "'").replace('\\"', '"')


def required(value, condition, message, *values):
    """Return a tensor that is available once `require` has checked a condition.

    An assertion alone runs at the same time as the code after it, which may take all memory before
    it fails. Without `values`, the tensor itself is appended to the message.
    """
    with tf.control_dependencies([require(condition, message, *(values or [value]))]):
        return tf.identity(value)


# === Replicas ===


def num_replicas():
    """Return the number of replicas of the current `tf.distribute` strategy, 1 without one."""
    return tf.distribute.get_strategy().num_replicas_in_sync


def sum_over_replicas(value):
    """Return the sum of a scalar over all replicas of a step, on each of them."""
    context = tf.distribute.get_replica_context()
    if num_replicas() == 1 or context is None:  # None while Keras only infers shapes
        return value
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.convert_to_tensor(value))


def gathered_from_replicas(values):
    """Return the rows (B, …) of all replicas of a step, one after another, on each of them."""
    context = tf.distribute.get_replica_context()
    if num_replicas() == 1 or context is None:
        return values
    values = tf.convert_to_tensor(values)
    if not values.device:  # on a worker with one device, without which TensorFlow cannot gather
        with tf.device(context.strategy.extended.worker_devices[0]):
            values = tf.identity(values)
    return context.all_gather(values, axis=0)


def first_row_of_replica(values):
    """Return which of the rows of all replicas is the first of this one's."""
    context = tf.distribute.get_replica_context()
    if num_replicas() == 1 or context is None:
        return 0
    rows = gathered_from_replicas(tf.shape(values)[:1])
    return tf.reduce_sum(rows[: context.replica_id_in_sync_group])


# === Attention and decoding: products, dropout, places in rows, slots of a cache ===


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
    if is_for_lite() and transpose and _is_one_query(x):
        # LiteRT packs the second factor of a product each time, and the keys are the larger one.
        scores = tf.matmul(y, tf.reshape(x, [-1, *x.shape[1:2], x.shape[3], 1]))  # (B, N, T, 1)
        return tf.reshape(scores, [-1, x.shape[1], 1, tf.shape(y)[2]])
    # On a CPU this operation is Eigen's, and takes a fifth to two thirds of the time of oneDNN's.
    if _is_one_query(x) and x.dtype == y.dtype == tf.float32:
        return tf.raw_ops.BatchMatMulV3(x=x, y=y, Tout=tf.float32, adj_y=transpose)
    return tf.matmul(x, y, transpose_b=transpose)


def softmax(x):
    """Return the softmax over the last axis."""
    if _is_one_query(x) and not is_for_lite():
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


def word_scores(x, table):
    """Return the products of vectors (…, D) with those of words (V, D): logits (…, V) float32.

    They are computed in the dtype of `x`.
    """
    table, shape = tf.cast(table, x.dtype), (*ops.shape(x)[:-1], table.shape[0])
    if is_for_lite():  # whose int8 has a scale for each word in a product of plain matrices alone
        rows = ops.reshape(x, (-1, x.shape[-1]))
        return ops.reshape(tf.matmul(rows, table, transpose_b=True), shape)
    # Both get a batch axis of 1: for 8 rows, oneDNN is twice as slow on plain matrices.
    rows = ops.reshape(x, (1, -1, x.shape[-1]))
    scores = tf.cast(matmul_transposed(rows, tf.expand_dims(table, 0)), "float32")
    return ops.reshape(scores, shape)


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


def sizes(x):
    """Return the shape of a tensor, ints where it is known: `ops.shape` in two operations.

    Keras slices each unknown size out of the shape, by four operations; a network has hundreds.
    """
    if is_for_lite() or isinstance(x, keras.KerasTensor) or None not in x.shape:
        return tuple(ops.shape(x))
    return tuple(
        unknown if size is None else size
        for size, unknown in zip(x.shape, tf.unstack(tf.shape(x)), strict=True)
    )


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


@contextlib.contextmanager
def growing():
    """A context in which a cache, whose slots are all in use, grows by those of new tokens.

    It is for loops in LiteRT, which copies a whole tensor to write into it. All rows of the cache
    have the same length.
    """
    token = _IS_GROWING.set(True)
    try:
        yield
    finally:
        _IS_GROWING.reset(token)


def is_growing():
    """Whether a cache grows by the slots of new tokens, and has no free ones."""
    return _IS_GROWING.get()


def is_in_place():
    """Whether `write_slots` writes in place."""
    return _IS_IN_PLACE.get()


def write_slots(old, new, indices):
    """Return keys or values (B, N, T, H) with new ones (B·N·S, H) written into them.

    `indices` (B·N·S, 3) int32 are the row, head and slot of each.
    """
    if is_in_place() and not is_for_lite():
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


# === Attention in blocks of queries, for long texts ===


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
        _, *results = tf.while_loop(
            lambda i, *_: i < number,
            lambda i, *carry: (i + 1, *body(i, *carry)),
            (0, *start),
            parallel_iterations=1,
        )
        return results

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
                block_gradients = tape.gradient(
                    context, sources, tf.gather(upstream, i), unconnected_gradients="zero"
                )
                return [
                    total.write(i, x) if is_cut[j] else total + tf.cast(x, "float32")
                    for j, total, x in zip(floats, sums, block_gradients, strict=True)
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


# === Loops ===


def scan(step, init, xs, reverse=False):
    """Like `keras.ops.scan`, with less overhead per step, and also for zero steps.

    The carry stays in the loop's variables, while `keras.ops.scan` writes it into an array. Every
    step returns one output `y` with the shape and type of `carry[0]`, so that the result has a
    shape even without steps. `step(carry, x)` returns `(carry, y)`, where `carry` and `x` are
    tuples. With `reverse`, the slices of `xs` (S, …) are read from last to first; the outputs are
    in the order of the slices.
    """
    if is_for_lite():
        return _scan_for_lite(step, init, xs, reverse)
    length = tf.shape(xs[0])[0]
    # The static number of rows may only be known from the carry, or only from the slices.
    any_rows = [tf.TensorShape([None, *first.shape[1:]]) for first in init]
    arrays = [
        tf.TensorArray(x.dtype, size=length, element_shape=x.shape[1:]).unstack(x) for x in xs
    ]
    # At least one slot with a value, because an empty array has no number of rows.
    ys = tf.TensorArray(init[0].dtype, size=tf.maximum(length, 1), element_shape=any_rows[0]).write(
        0, tf.zeros_like(init[0])
    )

    def body(count, ys, *carry):
        i = length - 1 - count if reverse else count
        carry, y = step(carry, tuple(array.read(i) for array in arrays))
        return (count + 1, ys.write(i, y), *carry)

    _, ys, *carry = tf.while_loop(
        lambda count, *_: count < length,
        body,
        (0, ys, *init),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape(None), *any_rows),
        maximum_iterations=xs[0].shape[0],
    )
    ys = ys.stack()[:length]
    ys.set_shape([xs[0].shape[0], *init[0].shape])
    for last, first in zip(carry, init, strict=True):
        last.set_shape(first.shape)
    return tuple(carry), ys


def _scan_for_lite(step, init, xs, reverse):
    length = tf.shape(xs[0])[0]
    numbers = tf.range(length)
    ys = tf.zeros(tf.concat([[length], tf.shape(init[0])], axis=0), init[0].dtype)

    def body(count, ys, *carry):
        i = length - 1 - count if reverse else count
        carry, y = step(carry, tuple(tf.gather(x, i) for x in xs))
        is_here = tf.reshape(numbers == i, [-1] + [1] * len(y.shape))
        return (count + 1, tf.where(is_here, y, ys), *carry)

    _, ys, *carry = tf.while_loop(lambda count, *_: count < length, body, (0, ys, *init))
    ys.set_shape([xs[0].shape[0], *init[0].shape])
    return tuple(carry), ys


def in_some_rows(function, is_chosen, *tensors):
    """Return a function of the chosen rows, (N,) with 0 in the others.

    Args:
        function: callable of tensors (n, …) that returns (n,) float32. n may be 0.
        is_chosen: (N,) bool.
        *tensors: (N, …) each.
    """
    places = tf.where(is_chosen)  # (n, 1)
    rows = function(*(tf.gather_nd(tensor, places) for tensor in tensors))
    number = tf.shape(is_chosen, tf.int64)
    return tf.ensure_shape(tf.scatter_nd(places, rows, number), is_chosen.shape)


# === Values that are computed again for a gradient, instead of being kept ===


def computed_again(function):
    """Return a function that only keeps its arguments, and is computed again for its gradient.

    `function(inputs, weights)` takes two lists of float tensors and returns nested ones; it may use
    other tensors, which then have no gradient, but no variables. Unlike `tf.recompute_grad`, this
    does not copy weights, and works on each replica of a strategy.

    Source: https://arxiv.org/abs/1604.06174, section 4.
    """

    def compute(inputs, weights):
        number, structure = len(inputs), None

        @tf.custom_gradient
        def flat(*tensors):
            nonlocal structure
            structure = function(tensors[:number], tensors[number:])

            def gradient(*upstream):
                sources = [_after(upstream[0], x) for x in tensors[:number]]
                sources += tensors[number:]
                with tf.GradientTape() as tape:
                    tape.watch(sources)
                    computed = tf.nest.flatten(function(sources[:number], sources[number:]))
                return tape.gradient(computed, sources, upstream, unconnected_gradients="zero")

            return tf.nest.flatten(structure), gradient

        outputs = flat(*inputs, *map(tf.convert_to_tensor, weights))
        return tf.nest.pack_sequence_as(structure, outputs)

    return compute


def map_chunks(function, tensors, weights):
    """Apply a function to each chunk of tensors, one chunk after the other.

    Nothing else is kept: for the gradient, each chunk is computed again.

    Args:
        function: callable of a list of tensors (C, …) and of `weights`, without variables, that
            returns (C, …).
        tensors: list of (K, C, …) for K chunks; those of integers have no gradients.
        weights: list of tensors of floats.
    """
    number, count = tf.shape(tensors[0])[0], len(tensors)
    floats = [n for n, x in enumerate(tensors) if x.dtype.is_floating]

    @tf.custom_gradient
    def run(*flat):
        tensors, weights = list(flat[:count]), list(flat[count:])

        def gradient(upstream):
            def compute(i):
                part = [x[i] for x in tensors]
                sources = [part[n] for n in floats]
                with tf.GradientTape() as tape:
                    tape.watch([sources, weights])
                    output = function(part, weights)
                return tape.gradient(
                    output, (sources, weights), upstream[i], unconnected_gradients="zero"
                )

            def body(i, arrays, sums):
                of_part, of_weights = compute(i)
                arrays = [a.write(i, x) for a, x in zip(arrays, of_part, strict=True)]
                return i + 1, arrays, [a + b for a, b in zip(sums, of_weights, strict=True)]

            arrays = [_array(number, tensors[n].dtype, tensors[n].shape[1:]) for n in floats]
            sums = [tf.zeros_like(weight) for weight in weights]
            _, arrays, sums = tf.while_loop(
                lambda i, *_: i < number, body, (0, arrays, sums), parallel_iterations=1
            )
            gradients = [None] * len(tensors)
            for n, array in zip(floats, arrays, strict=True):
                gradients[n] = array.stack()
            return *gradients, *sums

        def body(i, array):
            return i + 1, array.write(i, function([x[i] for x in tensors], weights))

        array = _array(number, tensors[0].dtype, None)
        _, array = tf.while_loop(lambda i, _: i < number, body, (0, array), parallel_iterations=1)
        return array.stack(), gradient

    return run(*tensors, *map(tf.convert_to_tensor, weights))


def _array(size, dtype, shape):
    return tf.TensorArray(dtype, size=size, element_shape=shape)


def reversible(functions, x, y, weights, given):
    """Return what is left of two streams after functions that add to each of them in turn.

    Each function reads the second stream and adds to the first, and the streams change places. So
    its inputs follow from its outputs: the gradient computes them again, from the last function to
    the first, and nothing is kept of what lies between.

    Args:
        functions: list of `f(stream, weights, given)`, without variables.
        x, y: tensors of floats of one shape, the two streams.
        weights: list of lists of tensors, those of each function, which have gradients.
        given: list, further arguments of each function, without gradients.

    Source: Reformer, https://arxiv.org/abs/2001.04451, section 3; Gomez et al. 2017,
    https://arxiv.org/abs/1707.04585, section 3.2.
    """
    structure = weights

    @tf.custom_gradient
    def run(x, y, *weights):
        steps = list(
            zip(functions, tf.nest.pack_sequence_as(structure, weights), given, strict=True)
        )
        for function, own, other in steps:
            # What is drawn at random waits, or TensorFlow would draw for all functions at first.
            x, y = y, x + function(y, own, _all_after(y, other))

        def gradient(of_x, of_y):
            first, second, gradients = x, y, []
            for function, own, other in reversed(steps):
                stream, other = _all_after(of_y, (first, other))
                with tf.GradientTape() as tape:
                    tape.watch([stream, own])
                    added = function(stream, own, other)
                of_stream, of_weights = tape.gradient(
                    added, (stream, own), of_y, unconnected_gradients="zero"
                )
                first, second = second - added, stream
                # What the gradients of weights read is free before the next function begins.
                with tf.control_dependencies(of_weights):
                    of_x, of_y = of_y, of_x + of_stream
                gradients = [*of_weights, *gradients]
            return of_x, of_y, *gradients

        return (x, y), gradient

    return run(x, y, *map(tf.convert_to_tensor, tf.nest.flatten(weights)))


def _all_after(tensor, nested):
    """Return nested tensors, of which some may be None, as `_after` does each."""
    return tf.nest.map_structure(lambda x: None if x is None else _after(tensor, x), nested)


def _after(tensor, x):
    """Return `x`, not before another tensor of floats is there.

    So a computation waits for it, and TensorFlow does not merge it with an earlier one.
    """
    first = tf.reduce_max(tf.reshape(tensor, [-1])[:1])
    zero, other = (0.0, float("nan")) if x.dtype.is_floating else (0, 1)
    return x + tf.cast(tf.where(tf.equal(first, first), zero, other), x.dtype)


# === Vectors of known words ===


class WordCache:
    """A cache of the vectors (V, D) of words, looked up by the words' characters (V, C).

    A word is looked up by a fingerprint of its ids, which are then compared, so that words cannot
    be confused. `cache(character_ids, compute)` with (W, C) returns (W, D); `compute` is called
    with the rows that are not in the cache.
    """

    def __init__(self, character_ids: Any, vectors: Any):
        keys = self._keys(character_ids)
        order = tf.argsort(keys)
        with tf.init_scope():
            self.keys = tf.Variable(tf.gather(keys, order), trainable=False, name="keys")
            ids = tf.cast(tf.gather(character_ids, order), tf.uint16)
            self.character_ids = tf.Variable(ids, trainable=False, name="character_ids")
            vectors = tf.gather(vectors, order)
            self.vectors = tf.Variable(vectors, trainable=False, name="vectors")

    @staticmethod
    def _keys(character_ids):
        data = tf.cast(character_ids, tf.int32)
        return tf.bitcast(tf.raw_ops.Fingerprint(data=data, method="farmhash64"), tf.int64)

    def __call__(self, character_ids, compute):
        if is_for_lite():
            return compute(character_ids)
        place = tf.searchsorted(self.keys, self._keys(character_ids))
        place = tf.minimum(place, self.keys.shape[0] - 1)
        stored = tf.cast(tf.gather(self.character_ids, place), character_ids.dtype)
        is_new = tf.reduce_any(stored != character_ids, axis=-1)  # (W,)
        return tf.tensor_scatter_nd_update(
            tf.gather(self.vectors, place),
            tf.where(is_new),
            compute(tf.boolean_mask(character_ids, is_new)),
        )


# === A bound on the work of a served request: rows × beams × tokens, read or written ===
#
# Each token that is written has a place in the memory of the model, for each row and beam; each
# that is read has one while its row is computed. Rows are as long as the longest.


MOST_TOKENS = 2**16
MOST_PIECES = 2**20  # that are only made of text, or text of them
MOST_NUMBERS = 2**26  # of an output, such as logits: 256 MiB
MOST_BEAMS = 64
TOO_MANY = (
    "rows times beams times tokens, those of the prompt or source and max_new_tokens, may be "
    "{} at most: send fewer rows, beams or tokens. Here they are"
)
TOO_LONG = (
    "rows times tokens, those of the longest row, may be {} at most: send fewer or shorter rows. "
    "Here they are"
)


TOO_WIDE = (
    "rows times tokens squared, those of the longest row, may be {} at most: send fewer or shorter "
    "rows. Here they are"
)


def within(value, rows, beams, tokens):
    """Return a tensor; in a graph traced as `bounded`, once the work is known to be little."""
    return _once_few(value, TOO_MANY, most_tokens(), rows, beams, tokens)


def few_tokens(tensors, rows, tokens=1):
    """Return tensors to be read; in a graph traced as `bounded`, once they are known to be few.

    Args:
        tensors: nested tensors.
        rows, tokens: how many there are; `rows` may be their product.
    """
    return _once_few(tensors, TOO_LONG, most_tokens(), rows, tokens)


def few_packed(packed):
    """The same for the packed rows of texts."""
    masks = [mask for name, mask in packed.items() if name.endswith("padding_mask")]
    return few_tokens(packed, tf.size(masks[0])) if masks and most_tokens() else packed


def few_numbers(tensors, rows, tokens, width):
    """The same for tokens with an output of `width` numbers each, such as logits."""
    most = min(MOST_NUMBERS // width, most_tokens() or 1)
    return _once_few(tensors, TOO_LONG, most, rows, tokens)


def few_pairs(tensors, rows, tokens, width, usual):
    """The same for `width` numbers of each pair of tokens; a row of `usual` tokens is few."""
    most = max(MOST_NUMBERS // width, usual**2)
    return _once_few(tensors, TOO_WIDE, most, rows, tokens, tokens)


def longest(ragged):
    """Return the length of the longest row of a ragged tensor; 0 without any."""
    return tf.reduce_max(tf.concat([ragged.row_lengths(), [0]], axis=0))


def _once_few(tensors, message, most, *numbers):
    if most_tokens() is None:
        return tensors
    # In floats, as the product may exceed an int32.
    work = 1.0
    for number in numbers:
        work *= tf.cast(number, tf.float32)
    work = required(work, work <= most, message.format(most))
    with tf.control_dependencies([work]):
        return tf.nest.map_structure(tf.identity, tensors, expand_composites=True)


# === What TensorFlow's own functions compute slowly on a CPU in training: dropout, GELU, norms ===

BITS = 16  # of a random number that decides about an element: it is dropped to 2**-17 of the rate


class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` by `dropout`: drawing random numbers takes most of its time.

    Args:
        rate: float. Fraction of the inputs to drop in training.
    """

    def call(self, inputs, training=False):
        if not training or not 0 < self.rate < 1 or self.noise_shape is not None:
            return super().call(inputs, training=training)
        return dropout(inputs, self.rate, draw_seed(self.seed_generator))


def dropout(x, rate, seed):
    """Return `x` with a fraction `rate` dropped; the seed decides which.

    A random number of 32 bits decides about two elements.

    Args:
        x: tensor of floats.
        rate: float.
        seed: (2,) int32.
    """
    number = tf.size(x)
    drawn = tf.random.stateless_uniform([(number + 1) // 2], seed, None, None, tf.uint32)
    drawn = tf.reshape(tf.bitcast(drawn, tf.uint16), [-1])[:number]
    is_kept = drawn >= tf.constant(min(round(rate * 2**BITS), 2**BITS - 1), tf.uint16)
    # Multiplied, not selected: that takes a third of the time.
    factors = tf.reshape(tf.cast(is_kept, x.dtype) / (1 - rate), tf.shape(x))
    factors.set_shape(x.shape)
    return x * factors


def gelu_in_training(x, approximate=False):
    """As `keras.activations.gelu`; the gradient takes half the passes over `x`.

    Elsewhere Keras's function is better: TensorFlow fuses it with the product before it.

    Args:
        x: tensor of floats.
        approximate: bool. Whether to take the form with tanh.

    Source: https://arxiv.org/abs/1606.08415, section 2.
    """
    # (The decorator cannot stand above: this is imported without TensorFlow, too.)
    return tf.custom_gradient(_gelu_tanh if approximate else _gelu)(x)


def _gelu(x):
    scaled = x * math.sqrt(0.5)
    below = tf.math.erf(scaled) * 0.5 + 0.5

    def gradient(upstream):
        density = tf.exp(-tf.square(scaled)) * math.sqrt(1 / math.pi)
        return upstream * (below + scaled * density)

    return x * below, gradient


def _gelu_tanh(x):
    scale, cubic = math.sqrt(2 / math.pi), 0.044715
    square = tf.square(x)
    tanh = tf.tanh(x * (square * (scale * cubic) + scale))
    below = tanh * 0.5 + 0.5

    def gradient(upstream):
        density = (0.5 - tf.square(tanh) * 0.5) * (square * (3 * scale * cubic) + scale)
        return upstream * (below + x * density)

    return x * below, gradient


def layer_norm_in_training(x, gamma, beta, epsilon):
    """Return the layer normalisation of the last axis; it keeps one tensor for its gradient.

    Args:
        x: (…, D) floats.
        gamma, beta: (D,), scale and offset.
        epsilon: float.

    Source: https://arxiv.org/abs/1607.06450, equation 4.
    """

    @tf.custom_gradient
    def normalise(x, gamma, beta):
        x = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        scale = tf.math.rsqrt(tf.reduce_mean(tf.square(x), axis=-1, keepdims=True) + epsilon)
        x = x * scale

        def gradient(upstream):
            outer = list(range(len(x.shape) - 1))
            of_gamma = upstream * x
            of_x = upstream * gamma
            shift = tf.reduce_mean(of_x, axis=-1, keepdims=True)
            along = tf.reduce_mean(of_gamma * gamma, axis=-1, keepdims=True)
            of_x = (of_x - (x * along + shift)) * scale
            return of_x, tf.reduce_sum(of_gamma, outer), tf.reduce_sum(upstream, outer)

        return x * gamma + beta, gradient

    return normalise(x, gamma, beta)


# === Parts of a network that a graph, or several graphs, hold once, as functions that they call ===

# TensorFlow puts a function in the place of each call before it runs a graph.


@contextlib.contextmanager
def sharing_traces():
    """A context for tracing: `traced_once` and `traced_alike` trace what is the same once."""
    token, collects = _TRACES.set({}), gc.isenabled()
    gc.disable()  # it would go through the many objects of a graph again and again
    try:
        yield
    finally:
        _TRACES.reset(token)
        if collects:
            gc.enable()


def traced_once(function, inputs, *key):
    """Return `function(inputs)`, nested tensors; where traces are shared, by a call of its trace.

    `key` has a name of the function, and all that it depends on except its inputs and their shapes.
    """
    traces = _TRACES.get()
    if traces is None:
        return function(inputs)
    if key not in traces:
        traces[key] = tf.function(function, autograph=False)
    return traces[key](inputs)


def traced_alike(layer, *inputs, training=None):
    """Return `layer(*inputs, training=training)`, nested tensors.

    Where traces are shared, and it is not training, layers that differ in the values of their
    weights alone have one trace, which takes these values as inputs.
    """
    traces = _TRACES.get()
    if traces is None or training:
        return layer(*inputs, training=training)
    if layer not in traces:
        traces[layer] = _Trace.key(layer), layer.weights
    key, weights = traces[layer]
    # TensorFlow would take a trace for any size where there are operations for a size of 1.
    shapes = [str(getattr(x, "shape", x)) for x in tf.nest.flatten(inputs)]
    key = key, *shapes, is_for_lite(), is_growing(), is_in_place(), id(PRODUCTS.get())
    if key not in traces:
        traces[key] = _Trace(layer)
    trace = traces[key]
    outputs = trace.call([v.value for v in weights], inputs)
    # What a layer assigns, such as the state of random numbers, is its own.
    return layer(*inputs, training=training) if trace.assigns else outputs


class _Trace:
    """The trace of a layer as a function of the values of its weights, and of its inputs."""

    def __init__(self, layer):
        self.assigns = False

        def compute(values, inputs):
            mapping = zip(layer.weights, values, strict=True)
            with keras.StatelessScope(mapping) as scope:
                before = [scope.get_current_value(v) for v in layer.variables]
                outputs = layer(*inputs, training=False)
                after = [scope.get_current_value(v) for v in layer.variables]
            self.assigns |= any(x is not y for x, y in zip(before, after, strict=True))
            return outputs

        self.call = tf.function(compute, autograph=False)

    # Attributes of every layer that say how Keras keeps it, not what it computes.
    KEPT = frozenset(vars(keras.layers.Layer())) - {"_dtype_policy", "autocast"}

    @classmethod
    def _is_of_result(cls, name):
        """Whether a layer's attribute is no bookkeeping, and used after the layer is built."""
        return not (name in cls.KEPT or name.startswith("_self_") or name.endswith("_initializer"))

    @classmethod
    def key(cls, layer):
        """Return what a layer depends on beyond the values of its weights, hashable.

        It has all attributes of the layer and of those in it. What is no number, string, function
        or layer, nor made of such, is the same for two layers only if it is the same object.
        """
        numbers = {id(v): number for number, v in enumerate(layer.weights)}
        plain = bool, int, float, str, bytes, type, type(None), np.dtype, types.FunctionType

        def described(value):
            kind = type(value)
            if isinstance(value, plain):
                return kind, value
            if id(value) in numbers:  # a layer or a variable may be there twice
                return kind, numbers[id(value)]
            if isinstance(value, (list, tuple)):
                return kind, *map(described, value)
            if isinstance(value, dict):
                return kind, *((name, described(value[name])) for name in value)
            if isinstance(value, keras.random.SeedGenerator):
                return kind  # a layer that draws assigns its state
            if isinstance(value, keras.layers.Layer):
                own = {name: x for name, x in vars(value).items() if cls._is_of_result(name)}
            elif isinstance(value, keras.dtype_policies.DTypePolicy):
                own = vars(value)
            else:
                return "the same", id(value)
            numbers[id(value)] = len(numbers)
            return kind, *((name, described(own[name])) for name in sorted(own))

        return described(layer), *((v.shape, v.dtype) for v in layer.weights)


class GraphCache(collections.UserDict):
    """Graphs of functions of named strings, each traced once for texts of all sizes.

    It is no dict, which TensorFlow would save with a module that holds it.
    """

    def call(self, name, function, columns, *more):
        """Call a function by its graph, which is kept under its name, the form of texts and more.

        Args:
            name: str.
            function: dict of tensors → tensors.
            columns: dict of string tensors, dense or ragged.
            *more: what else the graph depends on.
        """
        specs = {name: _spec_of_any_size(value) for name, value in columns.items()}
        key = (name, *more, str(sorted(specs.items())))
        if key not in self:
            traced = tf.function(lambda columns: function(columns), autograph=False)
            with sharing_traces():
                self[key] = traced.get_concrete_function(specs)
        return self[key](columns)


def _spec_of_any_size(value):
    """Return the spec of a string tensor, dense or ragged, with all sizes unknown."""
    if isinstance(value, tf.RaggedTensor):
        return tf.RaggedTensorSpec([None] * value.shape.rank, value.dtype)
    return tf.TensorSpec([None] * value.shape.rank, value.dtype)
