"""Reformer's attention: among near tokens, and among those that a hash puts into one bucket.

Shapes: B batch, S sequence, D hidden, N heads, H per head, K chunks, L tokens of a chunk, T what a
chunk attends to, R rounds of hashing, C columns of a rotation.
"""

import math

import keras
import numpy as np
from keras import ops

from keras_lm.layers import float32_or_wider
from keras_lm.layers.backend import dropout, matmul, matmul_transposed, normal, softmax
from keras_lm.layers.basic import make_dense

# Scores of what is hidden, and of a token with itself, which it attends to only if it is alone.
HIDDEN, ITSELF = -1e9, -1e5
POWERS = 2 ** np.arange(31, dtype="int32")


def dropped(x, rate, seeds, number):
    """Return `x` with a fraction dropped, by the seed of this number; as it is without seeds."""
    return x if seeds is None or not rate else dropout(x, rate, seeds[number])


def rows_at(x, places):
    """Return what stands at some places: (…, S, any) and (…, T) int32 → (…, T, any)."""
    leading = len(places.shape) - 1
    shape = ops.shape(x)
    starts = ops.arange(math.prod(shape[:leading]), dtype="int32") * shape[leading]
    places = places + ops.reshape(starts, (*shape[:leading], 1))
    return ops.take(ops.reshape(x, (-1, *shape[leading + 1 :])), places, axis=0)


def ascending(keys):
    """Return the order of numbers (…, S) int32; equal ones stay as they stand."""
    # `ops.argsort` does not promise the order of equal keys.
    return ops.cast(ops.top_k(-keys, ops.shape(keys)[-1])[1], "int32")


def inverse(order):
    """Return the inverse of permutations (…, S) int32: where each place has gone."""
    shape = ops.shape(order)
    columns = ops.zeros_like(order) + ops.arange(shape[-1], dtype="int32")
    starts = ops.arange(math.prod(shape[:-1]), dtype="int32") * shape[-1]
    places = ops.reshape(order + ops.reshape(starts, (*shape[:-1], 1)), (-1, 1))
    flat = ops.scatter(places, ops.reshape(columns, (-1,)), (math.prod(shape),))
    return ops.reshape(flat, shape)


def sorted_rows(x, order, back):
    """Return rows of `x` (B, N, S, any) in the order of each round (B, N, R, S): (B, N, R, S, any).

    The gradient puts them `back`, by the inverses. (That of a choice of rows would add to zeros,
    and XLA would make those of all blocks at once.)
    """

    @ops.custom_gradient
    def put(x):
        rows = rows_at(x, ops.reshape(order, (*ops.shape(order)[:2], -1)))
        rows = ops.reshape(rows, (*ops.shape(order), x.shape[-1]))
        return rows, lambda upstream: ops.sum(rows_at(upstream, back), axis=2)

    return put(x)


def rows_back(x, order, back):
    """Return rows of `x` (B, N, R, S, …) that are in an `order` as they stood, by its inverse."""

    @ops.custom_gradient
    def put(x):
        return rows_at(x, back), lambda upstream: rows_at(upstream, order)

    return put(x)


def chunks_from(x, first, number):
    """Return some chunks of `x` (B, N, K, …)."""
    start, shape = [0] * len(x.shape), list(ops.shape(x))
    start[2], shape[2] = first, number
    return ops.slice(x, start, shape)


class ChunkedAttention(keras.layers.Layer):
    """Attention of each chunk of a text to itself and to chunks beside it, which form a ring.

    A text that is no longer than one chunk attends to all of itself. A subclass makes queries, keys
    and values, in `build` and `attend`.

    Args:
        num_heads, head_dim: int. N and H.
        chunk_length: int, L. A longer text has to be a multiple of it.
        chunks_before, chunks_after: int. How many chunks a chunk attends to on either side.
        is_causal: bool. Whether tokens see none after them.
        dropout: float. Fraction of attention probabilities dropped in training.

    Call: `layer(x, padding_mask, seeds=None, rotations=None)`, `x` (B, S, D), `padding_mask` (B, S)
    int32; returns (B, S, D). In training there are `seeds`, of which the first is that of the
    hash, and the second that of dropout; `rotations` (N, H, R, C) are for `HashedAttention`.
    """

    def __init__(
        self,
        num_heads,
        head_dim,
        chunk_length,
        chunks_before=1,
        chunks_after=0,
        is_causal=True,
        dropout=0.0,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # of rotations, which are float32
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.chunk_length = chunk_length
        self.chunks_before = chunks_before
        self.chunks_after = chunks_after
        self.is_causal = is_causal
        self.dropout_rate = dropout

    def make_projection(self, units, name):
        return make_dense(name, units, self.dtype_policy, use_bias=False)

    def build(self, input_shape):
        width = self.num_heads * self.head_dim
        self.output_dense = self.make_projection(input_shape[-1], "output")
        self.output_dense.build((*input_shape[:-1], width))

    def call(self, x, padding_mask, seeds=None, rotations=None):
        context = self.attend(x, padding_mask, seeds, rotations)  # (B, N, S, H)
        context = ops.transpose(context, (0, 2, 1, 3))
        shape = ops.shape(context)
        context = ops.reshape(context, (*shape[:2], self.num_heads * self.head_dim))
        return self.output_dense(context)

    def attend(self, x, padding_mask, seeds, rotations):
        raise NotImplementedError(f"{type(self).__name__} must define attend.")

    def by_length(self, length, whole, chunked):
        """Return what one of two functions does, by whether a text is longer than a chunk."""
        if isinstance(length, int):
            return whole() if length <= self.chunk_length else chunked()
        return ops.cond(length <= self.chunk_length, whole, chunked)

    def split_heads(self, x):
        """(B, S, N·H) → (B, N, S, H)."""
        shape = ops.shape(x)
        x = ops.reshape(x, (*shape[:2], self.num_heads, self.head_dim))
        return ops.transpose(x, (0, 2, 1, 3))

    def in_chunks(self, x):
        """(B, N, K·L, …) → (B, N, K, L, …)."""
        shape = ops.shape(x)
        return ops.reshape(x, (*shape[:2], -1, self.chunk_length, *shape[3:]))

    def near(self, x):
        """(B, N, K, L, …) → (B, N, K, T, …): each chunk with those beside it."""
        number = ops.shape(x)[2]  # there may be fewer chunks than a side has
        parts = []
        for i in range(-self.chunks_before, self.chunks_after + 1):
            # Not `roll`, for which LiteRT has no kernel, nor indexing, whose gradient takes long.
            first = i % number
            if abs(i) > 1:  # as in transformers, which leaves chunks where none is that far
                first = first * ops.cast(abs(i) < number, "int32")
            rest = chunks_from(x, first, number - first)
            parts.append(x if i == 0 else ops.concatenate([rest, chunks_from(x, 0, first)], axis=2))
        return ops.concatenate(parts, axis=3)

    def visible(self, queries, keys, key_mask):
        """Return which keys each query sees, (…, L, T) bool, by places (…, L) and (…, T).

        `key_mask` (…, T) is 1 for real tokens.
        """
        visible = ops.expand_dims(ops.greater(key_mask, 0), -2)
        if self.is_causal:
            earlier = ops.greater_equal(ops.expand_dims(queries, -1), ops.expand_dims(keys, -2))
            visible = ops.logical_and(visible, earlier)
        return visible

    def scores(self, query, key, visible):
        """Return scores (…, L, T), float32 or wider."""
        scores = matmul_transposed(query, key)
        return ops.where(visible, ops.cast(scores, float32_or_wider(self.dtype_policy)), HIDDEN)

    def read(self, probabilities, value, seeds):
        """Return the context (…, L, H)."""
        probabilities = ops.cast(probabilities, self.compute_dtype)
        return matmul(dropped(probabilities, self.dropout_rate, seeds, 1), value)

    def places(self, padding_mask):
        """Return the places of tokens in the text, and their mask, (B, 1, S) int32 each."""
        mask = ops.expand_dims(padding_mask, 1)
        return ops.zeros_like(mask) + ops.arange(ops.shape(mask)[2], dtype="int32"), mask

    def flops(self):
        """Return the FLOPs for a token beside those of kernels."""
        seen = (self.chunks_before + 1 + self.chunks_after) * self.chunk_length
        return 4 * seen * self.num_heads * self.head_dim

    def compute_output_spec(self, x, padding_mask, seeds=None, rotations=None):
        return keras.KerasTensor(x.shape, self.compute_dtype)


class LocalAttention(ChunkedAttention):
    """Attention among near tokens; arguments and calls are those of `ChunkedAttention`.

    Source: trax, `layers/research/efficient_attention.py`, `SelfAttention` with a `chunk_len`.
    """

    def build(self, input_shape):
        super().build(input_shape)
        width = self.num_heads * self.head_dim
        self.query_key_value = self.make_projection(3 * width, "query_key_value")
        self.query_key_value.build(input_shape)

    def attend(self, x, padding_mask, seeds, rotations):
        query, key, value = map(self.split_heads, ops.split(self.query_key_value(x), 3, axis=-1))
        key = key * self.head_dim**-0.5
        places, mask = self.places(padding_mask)

        def read(query, key, value, queries, keys, mask):
            scores = self.scores(query, key, self.visible(queries, keys, mask))
            return self.read(softmax(scores), value, seeds)

        def whole():
            return read(query, key, value, places, places, mask)

        def chunked():
            queries, *others = map(self.in_chunks, (query, key, value, places, places, mask))
            keys, values, own, columns, mask_of_keys = others
            near = map(self.near, (columns, mask_of_keys))
            context = read(queries, self.near(keys), self.near(values), own, *near)
            return ops.reshape(context, ops.shape(query))

        return self.by_length(ops.shape(x)[1], whole, chunked)


class HashedAttention(ChunkedAttention):
    """Attention among tokens that fall into the same buckets: locality-sensitive hashing.

    Queries and keys are the same vectors. In each round, random rotations sort tokens into buckets;
    tokens are put in the order of their buckets, and attend in chunks of this order. A token does
    not attend to itself if it sees any other. Padding has a bucket of its own, the last.

    Rotations are drawn anew in each step of training, and are the same at all other times.

    Args:
        num_buckets: int; or a list for buckets that are pairs, when there are many; or None for
            about two a chunk, by the length of the text. All even.
        num_hashes: int, R. Rounds, whose answers are mixed by how much each has read.
        max_sequence_length: int. With `num_buckets=None`, its chunks say from when on there are
            pairs.
        hash_seed: list of int. Of the rotations outside of training.
        Others, and calls: as `ChunkedAttention`.

    Source: Reformer, https://arxiv.org/abs/2001.04451, section 2.
    """

    def __init__(
        self, num_buckets=None, num_hashes=1, max_sequence_length=4096, hash_seed=(0,), **kwargs
    ):
        super().__init__(**kwargs)
        odd = [size for size in num_buckets or [] if size % 2] if _is_list(num_buckets) else None
        if odd or (isinstance(num_buckets, int) and num_buckets % 2):
            raise ValueError(
                f"num_buckets={num_buckets}: pass even numbers, as each rotation has two sides."
            )
        self.num_buckets = num_buckets
        self.num_hashes = num_hashes
        self.max_sequence_length = max_sequence_length
        self.hash_seed = hash_seed

    def build(self, input_shape):
        super().build(input_shape)
        width = self.num_heads * self.head_dim
        self.query_key = self.make_projection(width, "query_key")
        self.query_key.build(input_shape)
        self.value = self.make_projection(width, "value")
        self.value.build(input_shape)
        shape = (self.num_heads, self.head_dim, self.num_hashes, self.most_columns())
        # Not by the backend's generator: equal on all of them, and a constant where it is exported.
        self.rotations = np.random.default_rng(self.hash_seed).normal(size=shape).astype("float32")

    def attend(self, x, padding_mask, seeds, rotations):
        query, value = map(self.split_heads, (self.query_key(x), self.value(x)))  # (B, N, S, H)
        places, mask = self.places(padding_mask)

        def read(query, value, near, queries, keys, mask):
            scores = self.scores(query, near(self.keys(query)), self.visible(queries, keys, mask))
            itself = ops.equal(ops.expand_dims(queries, -1), ops.expand_dims(keys, -2))
            scores = ops.where(itself, ITSELF, scores)
            if self.num_hashes == 1:
                return self.read(softmax(scores), near(value), seeds), scores[..., 0]
            divisor = ops.logsumexp(scores, axis=-1, keepdims=True)
            probabilities = ops.exp(scores - divisor)
            return self.read(probabilities, near(value), seeds), ops.squeeze(divisor, axis=-1)

        def whole():
            return read(query, value, lambda x: x, places, places, mask)[0]

        def chunked():
            bucket = self.buckets(ops.stop_gradient(query), padding_mask, seeds, rotations)
            order = ascending(bucket)  # (B, N, R, S)
            back = inverse(order)
            by_bucket = ops.reshape(order, (*ops.shape(query)[:2], -1))  # (B, N, R·S)
            sorted_mask = rows_at(ops.repeat(mask, self.num_heads, axis=1), by_bucket)
            both = sorted_rows(ops.concatenate([query, value], axis=-1), order, back)
            both = ops.reshape(both, (*ops.shape(by_bucket), 2 * self.head_dim))
            both, own, sorted_mask = map(self.in_chunks, (both, by_bucket, sorted_mask))
            context, divisor = read(
                *ops.split(both, 2, axis=-1), self.near, own, *map(self.near, (own, sorted_mask))
            )
            # In the order of the text again.
            context = ops.reshape(context, (*ops.shape(back), self.head_dim))
            context = rows_back(context, order, back)
            if self.num_hashes == 1:
                return ops.squeeze(context, axis=2)
            divisor = rows_back(ops.reshape(divisor, ops.shape(back)), order, back)
            share = ops.cast(ops.softmax(divisor, axis=2), context.dtype)
            return ops.sum(context * ops.expand_dims(share, -1), axis=2)

        return self.by_length(ops.shape(x)[1], whole, chunked)

    def keys(self, query):
        """Return queries with a length of 1, as keys (…, H), divided by √H like other scores."""
        x = ops.cast(query, float32_or_wider(self.dtype_policy))
        x = x * ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + 1e-6)
        return ops.cast(x * self.head_dim**-0.5, query.dtype)

    # === Buckets ===

    def bucket_sizes(self, length):
        """Return the numbers of buckets for a text of `length`: one, or those of pairs.

        A length that is not known yet, an int32 scalar, has two, of which the second may be 1.
        """
        if self.num_buckets is not None:
            return self.num_buckets if _is_list(self.num_buckets) else [self.num_buckets]
        number = 2 * (length // self.chunk_length)
        longest = self.max_sequence_length // self.chunk_length
        limit = 2 * max(math.isqrt(longest), self.chunk_length)
        if isinstance(length, int):
            power = number.bit_length() - 1
            is_pair = 2**power > limit
            return [2 ** (power // 2), 2 ** (power - power // 2)] if is_pair else [2**power]
        power = ops.sum(ops.cast(ops.greater_equal(number, POWERS[1:]), "int32"))
        is_pair = ops.greater(ops.take(POWERS, power), limit)
        second = ops.where(is_pair, power - ops.floor_divide(power, 2), 0)
        return [ops.take(POWERS, power - second), ops.take(POWERS, second)]

    def most_columns(self):
        """Return C: how many columns the rotations for a text of any length have at most."""
        if self.num_buckets is not None:
            return sum(self.bucket_sizes(0)) // 2
        powers = range((2 * self.max_sequence_length // self.chunk_length).bit_length() + 1)
        lengths = [self.chunk_length * 2**power for power in powers]
        # One more for the second number if it is 1.
        return max(sum(self.bucket_sizes(length)) // 2 for length in lengths) + 1

    def flops(self):
        of_hashing = 2 * self.num_heads * self.head_dim * self.most_columns()
        return self.num_hashes * (super().flops() + of_hashing)

    def buckets(self, x, padding_mask, seeds=None, rotations=None, length=None):
        """Return the bucket of each vector of `x` (B, N, S, H) in each round, (B, N, R, S) int32.

        In training, `seeds` decide on the rotations; some that are given are always taken. `length`
        is that of the text, if not S.
        """
        dtype = float32_or_wider(self.dtype_policy)
        if rotations is None:
            is_fixed = seeds is None
            rotations = self.rotations if is_fixed else normal(self.rotations.shape, seeds[0])
        rotated = ops.einsum("bnsh,nhrc->bnrsc", ops.cast(x, dtype), ops.cast(rotations, dtype))
        bucket, stride, start = 0, 1, 0
        for size in self.bucket_sizes(ops.shape(x)[2] if length is None else length):
            half = size // 2
            width = max(half, 1) if isinstance(half, int) else ops.maximum(half, 1)
            part = rotated[..., start : start + width]
            # The first of the largest of both sides. (Keras's `argmax` has bits that LiteRT lacks.)
            highest, above = ops.top_k(part, 1)
            lowest, below = ops.top_k(-part, 1)
            side = ops.where(ops.greater_equal(highest, lowest), above, below + half)[..., 0]
            bucket = bucket + stride * ops.cast(side, "int32")
            stride, start = stride * size, start + half
        mask = ops.expand_dims(ops.expand_dims(padding_mask, 1), 1)  # (B, 1, 1, S)
        return ops.where(ops.greater(mask, 0), bucket, stride)


def make_attention(config, number, dtype):
    """Return the attention of the block of a number, by the configuration of a backbone.

    Raises:
        ValueError: if the kind is unknown.
    """
    kinds = config["attention_layers"]
    kind = kinds[number % len(kinds)]
    if kind not in ("local", "lsh"):
        raise ValueError(
            f"attention_layers={kinds}: {kind!r} is unknown; pass a list of 'lsh' and 'local'."
        )
    shared = {
        "num_heads": config["num_heads"],
        "head_dim": config["head_dim"] or config["hidden_dim"] // config["num_heads"],
        "is_causal": config["causal"],
        "chunk_length": config[f"{kind}_chunk_length"],
        "chunks_before": config[f"num_{kind}_chunks_before"],
        "chunks_after": config[f"num_{kind}_chunks_after"],
        "dropout": config[f"{kind}_attention_dropout"],
        "dtype": dtype,
        "name": "attention",
    }
    if kind == "local":
        return LocalAttention(**shared)
    own = {name: config[name] for name in ("num_buckets", "num_hashes", "max_sequence_length")}
    return HashedAttention(hash_seed=(config["hash_seed"], number), **own, **shared)


def _is_list(value):
    return isinstance(value, (list, tuple))
