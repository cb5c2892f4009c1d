"""TensorFlow code of layers, for what `keras.ops` lacks."""

import contextlib
import contextvars

import numpy as np
import tensorflow as tf

_IS_FOR_LITE = contextvars.ContextVar("is_for_lite", default=False)
_IS_IN_PLACE = contextvars.ContextVar("is_in_place", default=False)
_INT8_CONSTANTS = contextvars.ContextVar("int8_constants", default=None)  # None: all is as usual


@contextlib.contextmanager
def for_lite():
    """A context for tracing with LiteRT's operations only.

    It lacks tensor arrays: loops read and write slices of whole tensors, which copies them at every
    step. It lacks fingerprints: all words are computed. It lacks in-place scatter.
    """
    token = _IS_FOR_LITE.set(True)
    try:
        yield
    finally:
        _IS_FOR_LITE.reset(token)


def is_for_lite():
    """Whether this is traced with LiteRT's operations only."""
    return _IS_FOR_LITE.get()


def scan(step, init, xs, reverse=False):
    """Like `keras.ops.scan`, with less overhead per step, and also for zero steps.

    The carry stays in the loop's variables, where `keras.ops.scan` writes it into an array; and
    every step returns one output `y` with the shape and type of `carry[0]`, so that the result has
    a shape even after no steps. `step(carry, x)` returns `(carry, y)`, where `carry` and `x` are
    tuples. If `reverse`, the slices of `xs` (S, …) are read from last to first; `y` keep their
    order.
    """
    if _IS_FOR_LITE.get():
        return _scan_for_lite(step, init, xs, reverse)
    length = tf.shape(xs[0])[0]
    # The static number of rows may be known from the carry only, or from the slices only.
    any_rows = [tf.TensorShape([None, *first.shape[1:]]) for first in init]
    arrays = [
        tf.TensorArray(x.dtype, size=length, element_shape=x.shape[1:]).unstack(x) for x in xs
    ]
    # At least one slot with a value: an empty array does not know its number of rows.
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
    if _IS_IN_PLACE.get() and not _IS_FOR_LITE.get():
        return tf.raw_ops.ScatterNdNonAliasingAdd(
            input=old, indices=indices, updates=new - tf.gather_nd(old, indices)
        )
    return tf.tensor_scatter_nd_update(old, indices, new)


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


def computed_again(function):
    """Return a function that keeps its arguments, and computes again what its gradient needs.

    `function(inputs, weights)` takes two lists of tensors of floats and returns nested ones; it may
    use other tensors, which then have no gradient, but no variables. Unlike `tf.recompute_grad`,
    this copies no weights, and does the same on each replica of a strategy.

    Source: https://arxiv.org/abs/1604.06174, section 4.
    """

    def compute(inputs, weights):
        number, structure = len(inputs), None

        @tf.custom_gradient
        def flat(*tensors):
            nonlocal structure
            structure = function(tensors[:number], tensors[number:])

            def gradient(*upstream):
                # Not before the gradient is there, and not as one with the first computation.
                first = tf.reduce_max(tf.reshape(upstream[0], [-1])[:1])
                zero = tf.where(tf.equal(first, first), 0.0, float("nan"))
                sources = [x + tf.cast(zero, x.dtype) for x in tensors[:number]]
                sources += tensors[number:]
                with tf.GradientTape() as tape:
                    tape.watch(sources)
                    found = tf.nest.flatten(function(sources[:number], sources[number:]))
                return tape.gradient(found, sources, upstream, unconnected_gradients="zero")

            return tf.nest.flatten(structure), gradient

        outputs = flat(*inputs, *map(tf.convert_to_tensor, weights))
        return tf.nest.pack_sequence_as(structure, outputs)

    return compute


# Attention with so many scores, queries times columns of one text, goes block by block. Lengths
# have to be known when a graph is traced: for others it would hold both forms.
MANY_SCORES = 2**20
BLOCK = 64  # queries


def is_long(queries, columns):
    """Whether attention goes block by block; None is a length that is not known. LiteRT's never."""
    if _IS_FOR_LITE.get() or None in (queries, columns):
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


def num_replicas():
    """Return how many replicas the current `tf.distribute` strategy has; 1 without one."""
    return tf.distribute.get_strategy().num_replicas_in_sync


def sum_over_replicas(value):
    """Return the sum of a scalar over all replicas of a step, on each of them."""
    context = tf.distribute.get_replica_context()
    if num_replicas() == 1 or context is None:  # None where Keras only looks at shapes
        return value
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.convert_to_tensor(value))


SMALLEST_KERNEL = 2**12  # weights; products with smaller ones take no time worth the loss
LARGEST_INT8 = 127  # of an int8; activations lie around 128, as oneDNN takes them unsigned
# Without VNNI, oneDNN cuts the sum of two neighbours' products to 16 bits. Weights of one sign that
# add up to this are 128 at most once rounded, and 255 · 128 fits.
LARGEST_PAIR = 127


@contextlib.contextmanager
def multiplying_in_int8():
    """A context for tracing in which `Dense` multiplies in int8, with constants for its weights.

    Raises:
        ValueError: if oneDNN, whose product that is, is off in this process.
    """
    _require_onednn()
    token = _INT8_CONSTANTS.set({})
    try:
        yield
    finally:
        _INT8_CONSTANTS.reset(token)


def is_in_int8(dense):
    """Whether a `Dense` layer is to multiply in int8."""
    return (
        _INT8_CONSTANTS.get() is not None
        and dense.input_spec.axes[-1] * dense.units >= SMALLEST_KERNEL
    )


def int8_product(x, dense):
    """Return the product (rows, units), float32, of `x` (rows, D) and a layer's kernel (D, units).

    A scale for each output is that of the weights; one for each row, found as it comes, that of the
    activations, so that a row's answer does not depend on the others. The operation is oneDNN's,
    quick on processors with VNNI or AMX, and exact on others too: see `LARGEST_PAIR`.

    Source: https://arxiv.org/abs/1712.05877, section 2.2; scales by row and output,
    https://arxiv.org/abs/2208.07339, section 3.1.
    """
    known, here = _INT8_CONSTANTS.get(), (id(dense), id(tf.compat.v1.get_default_graph()))
    if here not in known:  # a layer may be called again, as those of ALBERT
        known[here] = _int8_constants(dense)
    weights, offset, scales = known[here]
    x = tf.cast(x, tf.float32)
    largest = tf.reduce_max(tf.abs(x), axis=-1, keepdims=True)
    row_scales = tf.maximum(largest, 1e-20) / LARGEST_INT8
    rows = tf.cast(tf.round(x / row_scales) + 128, tf.uint8)
    return _multiply_int8(rows, weights, offset) * row_scales * scales


def _int8_constants(dense):
    """Return weights int8, what 128 in each of a row's values adds to the sums, and scales."""
    with tf.init_scope():
        values = tf.cast(dense.kernel, tf.float32).numpy()  # with an update by LoRA
    signs = np.maximum(values, 0), np.maximum(-values, 0)
    pair = np.max([(part[1:] + part[:-1]).max(axis=0, initial=0) for part in signs], axis=0)
    scales = np.maximum(np.abs(values).max(axis=0) / LARGEST_INT8, pair / LARGEST_PAIR)
    scales[scales == 0] = 1
    weights = np.round(values / scales).astype("int8")
    offset = 128 * weights.sum(axis=0, dtype="int32")
    return tf.constant(weights), tf.constant(offset), tf.constant(scales)


def _multiply_int8(rows, weights, offset):
    """Return rows · weights − offset, float32; the operation's name is the remedy if it fails."""
    found, _, _ = tf.raw_ops.QuantizedMatMulWithBias(
        a=tf.bitcast(rows, tf.quint8),
        b=tf.bitcast(weights, tf.qint8),
        bias=tf.bitcast(-offset, tf.qint32),
        # What these ranges mean in float is not asked for: the sums are read as they are.
        min_a=0.0,
        max_a=1.0,
        min_b=-1.0,
        max_b=1.0,
        Toutput=tf.qint32,
        input_quant_mode="SCALED",
        name="set_TF_ENABLE_ONEDNN_OPTS_to_1",
    )
    return tf.cast(tf.bitcast(found, tf.int32), tf.float32)


def _require_onednn():
    """Raise a ValueError if TensorFlow has no kernel for `_multiply_int8`, as with oneDNN off."""
    ones, offset = np.ones((1, 1)), np.zeros(1)

    def multiply():
        weights = tf.constant(ones, tf.int8)
        return _multiply_int8(tf.constant(ones, tf.uint8), weights, tf.constant(offset, tf.int32))

    try:
        tf.function(multiply, autograph=False).get_concrete_function()()
    except tf.errors.OpError as error:
        raise ValueError(
            "freeze=True with weights='int8' multiplies in int8 by oneDNN, which is off in this "
            "process: set TF_ENABLE_ONEDNN_OPTS=1 in its environment, on an x86 processor."
        ) from error


class WordCache:
    """A cache of the vectors (V, D) of words, looked up by the words' characters (V, C).

    A word is found by a fingerprint of its ids, which are then compared, so that no two words are
    confused. `cache(character_ids, compute)` with (W, C) returns (W, D); `compute` is called with
    the rows that are not in the cache.
    """

    def __init__(self, character_ids, vectors):
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
        if _IS_FOR_LITE.get():
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
