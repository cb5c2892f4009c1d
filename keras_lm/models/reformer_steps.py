"""Reformer's attention of a token to what was kept of those before it.

A block keeps keys and values of all tokens, and, if they are hashed, their buckets and the order of
these. A new token is put into the order at its place, and reads the chunks that it would read of
the whole text. Earlier tokens stay as they were computed, which makes a difference where later
blocks read what hashing made of them, or in a ring of few chunks that reads one of them twice.

Shapes: B batch, S tokens of the prompt, T slots, N heads, H per head, R rounds of hashing, L tokens
of a chunk, W what a token reads in a round.
"""

from keras import ops

from keras_lm.layers import float32_or_wider
from keras_lm.layers.backend import write_slots
from keras_lm.models.reformer_attention import HIDDEN, ITSELF, HashedAttention, ascending, rows_at


def after_prompt(backbone, state):
    """Return a backbone's state of tokens in the form from which one is read at a time.

    It is `{"blocks": tuple of what each keeps, "count": (B,) tokens, "length": (B,) columns}`.
    """
    slots = ops.shape(state["token_ids"])[1]
    tokens, mask, _ = backbone.in_order(state, state["token_ids"][:, :0])
    y = x = backbone.embedded(tokens, mask)
    caches = []
    for block in backbone.blocks:
        caches.append(new_cache(block.attention, block.attention_norm(y), mask, slots))
        x, y = block(x, y, mask)
    return {"blocks": tuple(caches), "count": ops.sum(mask, axis=1), "length": state["length"]}


def read_token(backbone, token_ids, padding_mask, state):
    """Return a backbone's outputs for one token (B, 1), given a state in that form."""
    count = state["count"]
    y = x = backbone.embedded(token_ids, padding_mask, start=count)
    columns = ops.max(state["length"])
    lengths = [n + backbone.whole_chunks.lacking(n) for n in (columns, columns + 1)]
    caches = []
    for block, before in zip(backbone.blocks, state["blocks"], strict=True):
        added, now = step(block.attention, block.attention_norm(y), before, count, lengths)
        x = x + block.widened(added)
        y = y + block.feed_forward(x, None, None, None)
        caches.append(now)
    x = backbone.final_norm(ops.concatenate([x, y], axis=-1))
    cache = {"blocks": tuple(caches), "count": count + 1, "length": state["length"] + 1}
    return {"sequence_output": x, "cache": cache}


def new_cache(attention, x, padding_mask, slots):
    """Return what an attention keeps of the tokens `x` (B, S, D) of a prompt, with free slots.

    It is a dict of `keys` and `values` (B, N, T, H), and if they are hashed of `buckets` and their
    `order` (B, N, R, T) int32. `padding_mask` (B, S) is 1 for tokens, which come first.
    """

    def in_slots(x):
        lacking = ops.maximum(slots - ops.shape(x)[2], 0)
        return ops.pad(x[:, :, :slots], [[0, 0], [0, 0], [0, lacking], [0, 0]])

    _, keys, values = projected(attention, x)
    mask = ops.cast(padding_mask, values.dtype)[:, None, :, None]
    state = {"keys": in_slots(keys * mask), "values": in_slots(values * mask)}
    if isinstance(attention, HashedAttention):
        count = ops.sum(padding_mask, axis=1)
        state |= in_buckets(attention, state["keys"], count, ops.shape(x)[1])
    return state


def step(attention, x, state, count, lengths):
    """Return what a token `x` (B, 1, D) makes of a state, (B, 1, D), and the state with it.

    `count` (B,) is the number of tokens before it, `lengths` are those of all columns in whole
    chunks, before and with it.
    """
    query, key, value = projected(attention, x)  # (B, N, 1, H)
    rows, heads = ops.shape(query)[:2]
    ones = ops.ones((rows, heads), "int32")
    row, head = ops.arange(rows, dtype="int32")[:, None], ops.arange(heads, dtype="int32")
    at = ops.reshape(ops.stack([row * ones, head * ones, count[:, None] * ones], axis=2), (-1, 3))
    written = {
        name: write_slots(state[name], ops.reshape(new, (-1, attention.head_dim)), at)
        for name, new in (("keys", key), ("values", value))
    }
    state = state | written
    own = ops.reshape(count, (-1, 1, 1, 1))  # its slot
    last = ops.shape(state["keys"])[2] - 1
    is_hashed = isinstance(attention, HashedAttention)
    if is_hashed:
        state |= with_token(attention, state, key, count, lengths)
        places = ops.arange(last + 1, dtype="int32")
        is_own = ops.equal(state["order"], own)
        is_own = ops.logical_and(is_own, ops.less_equal(places, own))  # later ones are free
        place = ops.sum(ops.where(is_own, places, 0), axis=3)  # (B, N, R)
    else:
        place = count[:, None, None] * ones[:, :, None]
    rounds, places, is_read = window(attention, place, lengths[1])  # (B, N, R, W)
    is_read = ops.logical_and(is_read, ops.less_equal(places, own))
    chosen = ops.minimum(places, last)
    shape = ops.shape(chosen)
    flat = (*shape[:2], shape[2] * shape[3])
    if is_hashed:
        order = ops.reshape(state["order"], (rows, heads, -1, 1))  # (B, N, R·T, 1)
        chosen = rows_at(order, ops.reshape(rounds * (last + 1) + chosen, flat))
        chosen = ops.reshape(chosen, shape)
    flat = ops.reshape(chosen, flat)
    keys, values = (
        ops.reshape(rows_at(state[name], flat), (*shape, attention.head_dim))
        for name in ("keys", "values")
    )
    scores = ops.sum(query[:, :, None] * keys, axis=-1)
    scores = ops.where(is_read, ops.cast(scores, float32_or_wider(attention.dtype_policy)), HIDDEN)
    if is_hashed:
        scores = ops.where(ops.equal(chosen, own), ITSELF, scores)
    divisor = ops.logsumexp(scores, axis=-1, keepdims=True)
    probabilities = ops.cast(ops.exp(scores - divisor), values.dtype)
    context = ops.sum(probabilities[..., None] * values, axis=3)  # (B, N, R, H)
    share = ops.exp(divisor - ops.logsumexp(divisor, axis=2, keepdims=True))
    share = ops.cast(share, values.dtype)
    width = attention.num_heads * attention.head_dim
    context = ops.reshape(ops.sum(context * share, axis=2), (rows, 1, width))
    return attention.output_dense(context), state


def projected(attention, x):
    """Return queries, keys and values, (B, N, S, H) each; keys are divided by √H."""
    if isinstance(attention, HashedAttention):
        query, value = map(attention.split_heads, (attention.query_key(x), attention.value(x)))
        return query, attention.keys(query), value
    parts = ops.split(attention.query_key_value(x), 3, axis=-1)
    query, key, value = map(attention.split_heads, parts)
    return query, key * attention.head_dim**-0.5, value


def window(attention, place, length):
    """Return what a token at a place (B, N, R) of each round reads: rounds, places, which count.

    They are (B, N, R, W) each. The chunks of all rounds form one ring; of a text of one chunk, it
    is read once.
    """
    size = attention.chunk_length
    number = ops.maximum(length // size, 1)
    offsets = ops.arange(-attention.chunks_before, attention.chunks_after + 1, dtype="int32")
    rounds = ops.shape(place)[2]
    chunks = ops.arange(rounds, dtype="int32") * number + place // size
    chunks = ops.mod(chunks[..., None] + offsets, rounds * number)[..., None]
    places = ops.mod(chunks, number) * size + ops.arange(size, dtype="int32")
    is_read = ops.logical_or(ops.equal(offsets, 0), length > size)[:, None]
    parts = (chunks // number, places, ops.cast(is_read, "int32"))
    shape = (*ops.shape(place), (attention.chunks_before + 1 + attention.chunks_after) * size)
    rounds, places, is_read = (ops.reshape(x + 0 * places, shape) for x in parts)
    return rounds, places, ops.equal(is_read, 1)


def in_buckets(attention, keys, count, length):
    """Return the `buckets` of keys (B, N, T, H), the first of which are tokens, and their `order`.

    Keys have the directions of queries, which alone decide.
    """
    slots = ops.arange(ops.shape(keys)[2], dtype="int32")
    mask = ops.cast(ops.less(slots, count[:, None]), "int32")  # (B, T)
    length = ops.maximum(length, attention.chunk_length)
    buckets = attention.buckets(keys, mask, length=length)
    return {"buckets": buckets, "order": ascending(buckets)}


def with_token(attention, state, key, count, lengths):
    """Return buckets and their order with a token's key (B, N, 1, H), which is in its slot."""
    before, length = (ops.maximum(n, attention.chunk_length) for n in lengths)

    def put():
        bucket = attention.buckets(key, ops.ones_like(count)[:, None], length=length)
        slots = ops.arange(ops.shape(state["keys"])[2], dtype="int32")
        own = ops.reshape(count, (-1, 1, 1, 1))
        buckets = ops.where(ops.equal(slots, own), bucket, state["buckets"])
        is_before = ops.logical_and(ops.less(slots, own), ops.less_equal(buckets, bucket))
        place = ops.sum(ops.cast(is_before, "int32"), axis=3, keepdims=True)  # (B, N, R, 1)
        order = state["order"]
        later = ops.concatenate([order[..., :1], order[..., :-1]], axis=3)
        order = ops.where(ops.less(slots, place), order, later)
        return {"buckets": buckets, "order": ops.where(ops.equal(slots, place), own, order)}

    def again():
        return in_buckets(attention, state["keys"], count + 1, length)

    if attention.num_buckets is not None:
        return put()
    # Longer texts have more buckets.
    sizes = (ops.stack(attention.bucket_sizes(n)) for n in (before, length))
    return ops.cond(ops.all(ops.equal(*sizes)), put, again)
