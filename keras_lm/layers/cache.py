"""A decoder's cache. Shapes: B batch, S new tokens, T slots, L blocks, N heads, H per head."""

from keras import ops

from keras_lm.layers.context import AttentionContext
from keras_lm.layers.state import FIXED


class KeyValueCache:
    """The keys and values of the tokens so far, during a forward pass that adds new ones.

    Between two passes, the state is a dict:

        {"keys": tuple of L (B, N, T, H), "values": tuple of L (B, N, T, H),
         "padding_mask": (B, T) int32, 1 where a slot holds a real token,
         "length": (B,) int32, how many slots are in use, padding among them}

    It is created from the `padding_mask` (B, S) of the new tokens, and a `state` with S free slots
    in each row, or None. The attribute `padding_mask` (B, T) is that of all slots, `slots` (B, S)
    are the slots of the new tokens, and `start` (B,) is the number of real tokens before them.
    Without a state, `slots` and `start` are None.

    Example:

        cache = KeyValueCache(padding_mask, state, len(blocks))
        for block, context in zip(blocks, cache.contexts(biases)):
            x, kept = block(x, context)
            cache.keep(kept)
        state = cache.state()
    """

    def __init__(self, padding_mask, state, num_layers):
        self.keys, self.values = [], []
        if state is None:
            self.padding_mask = padding_mask
            self.slots = self.start = self.write_at = None
            self.length = ops.sum(ops.ones_like(padding_mask), axis=1)
            self.past = [None] * num_layers
            return
        rows, new = ops.shape(padding_mask)
        self.length = state["length"] + new
        self.slots = ops.expand_dims(state["length"], 1) + ops.arange(new, dtype="int32")
        self.start = ops.sum(state["padding_mask"], axis=1)
        self.past = list(zip(state["keys"], state["values"], strict=True))
        row = ops.expand_dims(ops.arange(rows, dtype="int32"), 1)  # (B, 1)
        self.padding_mask = ops.scatter_update(
            state["padding_mask"],
            ops.reshape(_indices(row, self.slots), (-1, 2)),
            ops.reshape(padding_mask, (-1,)),
        )
        head = ops.arange(state["keys"][0].shape[1], dtype="int32")
        indices = _indices(
            ops.expand_dims(row, 1), ops.reshape(head, (1, -1, 1)), ops.expand_dims(self.slots, 1)
        )  # (B, N, S, 3)
        self.write_at = ops.reshape(indices, (-1, 3))

    def contexts(self, biases):
        """Return the `AttentionContext` of each block, given their biases."""
        return [
            AttentionContext(bias=bias, past=past, write_at=self.write_at)
            for bias, past in zip(biases, self.past, strict=True)
        ]

    def keep(self, kept):
        """Store the keys and values that a block keeps."""
        keys, values = kept
        self.keys.append(keys)
        self.values.append(values)

    def state(self):
        return {
            "keys": tuple(self.keys),
            "values": tuple(self.values),
            "padding_mask": self.padding_mask,
            "length": self.length,
        }


class DecoderCache(KeyValueCache):
    """A `KeyValueCache` that also has the keys and values of a source (B, S), which do not change.

    A state has them under `FIXED`: {"keys": tuple of L (B, N, S, H), "values": the same,
    "padding_mask": (B, S) int32}. Without a state, the blocks read `encoded` (B, S, D), the
    encoder's output, with its `source_mask`.
    """

    def __init__(self, padding_mask, state, num_layers, encoded=None, source_mask=None):
        super().__init__(padding_mask, state, num_layers)
        self.source_keys, self.source_values = [], []
        self.sources, self.source_mask = [encoded] * num_layers, source_mask
        if state is not None:
            fixed = state[FIXED]
            self.sources = list(zip(fixed["keys"], fixed["values"], strict=True))
            self.source_mask = fixed["padding_mask"]

    def contexts(self, biases, source_bias):
        return [
            context._replace(source=source, source_bias=source_bias)
            for context, source in zip(super().contexts(biases), self.sources, strict=True)
        ]

    def keep(self, kept):
        own, (source_keys, source_values) = kept
        super().keep(own)
        self.source_keys.append(source_keys)
        self.source_values.append(source_values)

    def state(self):
        fixed = {
            "keys": tuple(self.source_keys),
            "values": tuple(self.source_values),
            "padding_mask": self.source_mask,
        }
        return super().state() | {FIXED: fixed}


def with_free_slots(cache, number):
    """Return a cache with at least `number` free slots in each row.

    It holds stacked keys and values (B, L, N, T, H), or `token_ids` (B, T).
    """
    slots = ops.shape(cache["padding_mask"])[1]
    lacking = ops.maximum(ops.max(cache["length"]) + number - slots, 0)
    lacking = lacking if known(lacking) is None else known(lacking)
    if isinstance(lacking, int) and lacking == 0:
        return cache
    cache = dict(cache)
    axes = {"keys": 3, "values": 3, "padding_mask": 1, "token_ids": 1}
    for name, axis in ((name, axis) for name, axis in axes.items() if name in cache):
        shape = list(ops.shape(cache[name]))
        shape[axis] = lacking
        free = ops.zeros(shape, cache[name].dtype)
        cache[name] = ops.concatenate([cache[name], free], axis=axis)
    return cache


def known(x):
    """The value of an integer tensor, or None while a graph is traced."""
    try:
        return int(x)
    except TypeError:
        return None


def _indices(*parts):
    """Integers that broadcast to one shape → (…, number of parts)."""
    ones = sum(ops.zeros_like(part) for part in parts)
    return ops.stack([part + ones for part in parts], axis=-1)
