"""What all models that read from left to right share: their state, explicit and batch first.

A cache holds the keys and values of the tokens so far, so that the next ones need not read these
again:

    {"keys": (B, L, N, T, H), "values": (B, L, N, T, H),
     "padding_mask": (B, T) int32, 1 where a slot holds a real token,
     "length": (B,) int32, how many slots are in use, padding among them}

Shapes: B batch, S new tokens, T slots, L blocks, N heads, H per head, D hidden.
"""

from functools import partial

import keras
from keras import ops

from keras_lm.layers import CausalBias, CausalLMHead, LastTokenClassifier
from keras_lm.layers.slots import write_slots, write_slots_in_place
from keras_lm.models.backbone import Backbone
from keras_lm.packers import Template

PARTS = ("keys", "values", "padding_mask", "length")


class CausalBackbone(Backbone):
    """A backbone whose tokens see only what stands before them; the base class of the GPTs.

    A subclass makes the layers and stores its arguments in `self.config`; the forward pass is here,
    once for a whole sequence and once, in `extend`, behind a cache.

    Args:
        token_embedding: `keras.layers.ReversibleEmbedding`, whose transpose gives the logits.
        position_embedding: `keras_lm.layers.PositionEmbedding`.
        blocks: list of L layers, each a `keras_lm.layers.transformer.CausalBlock`.
        windows: list of L ints or Nones, how many tokens a token of each block sees; see
            `keras_lm.layers.CausalBias`.
        final_norm: layer behind the last block, or None.
        dropout: float. Share of the embeddings dropped in training.
        dtype: a dtype policy or its name.
        name: str.

    Call: `backbone({"token_ids": …, "padding_mask": …, "cache": …})`. The mask may be left out, and
    so may the cache, which is then empty. Returns `sequence_output` (B, S, D) of these tokens, and
    the `cache` with them in it. Tokens go into a cache's free slots; where there are too few, it
    grows. Positions are counted in real tokens: prompts may be padded on either side.

    Raises:
        ValueError: if an input is unknown or missing, or there are more tokens than positions.

    Example:

        first = backbone({"token_ids": [[5, 9, 2]]})
        backbone({"token_ids": [[7]], "cache": first["cache"]})["sequence_output"]  # of the fourth
    """

    TEMPLATE = Template(single="$A:0", pair="$A:0 $B:0")

    def __init__(
        self,
        token_embedding,
        position_embedding,
        blocks,
        windows,
        final_norm=None,
        dropout=0.0,
        dtype=None,
        name=None,
    ):
        bias_layers = {window: _bias_layer(window, dtype) for window in dict.fromkeys(windows)}

        # === Functional model ===
        inputs = {
            name: keras.Input((None,), dtype="int32", name=name)
            for name in ("token_ids", "padding_mask")
        }
        mask = inputs["padding_mask"]
        x = keras.layers.Add(dtype=dtype, name="embeddings")(
            [token_embedding(inputs["token_ids"]), position_embedding(mask)]
        )
        hidden_states, keys, values = [x], [], []
        x = keras.layers.Dropout(dropout, dtype=dtype, name="embedding_dropout")(x)
        biases = {window: layer(mask) for window, layer in bias_layers.items()}
        for block, window in zip(blocks, windows, strict=True):
            x, key, value = block(x, bias=biases[window])
            hidden_states.append(x)
            keys.append(key)
            values.append(value)
        if final_norm is not None:
            x = hidden_states[-1] = final_norm(x)
        cache = {
            "keys": keys,
            "values": values,
            "padding_mask": mask,
            "length": ops.sum(ops.ones_like(mask), axis=1),
        }
        super().__init__(
            inputs,
            {"sequence_output": x, "cache": stack_cache(cache)},
            hidden_states,
            [biases[window] for window in windows],
            blocks,
            dtype=dtype,
            name=name,
        )

        self.token_embedding = token_embedding
        self.position_embedding = position_embedding
        self.final_norm = final_norm
        self.windows = windows
        self._bias_layers = list(bias_layers.values())  # a dict of Keras's takes only str as keys

    def __call__(self, inputs, *args, **kwargs):
        if not isinstance(inputs, dict) or "cache" not in inputs:
            return super().__call__(inputs, *args, **kwargs)
        inputs = dict(inputs)
        cache = inputs.pop("cache")
        if cache is None:
            return super().__call__(inputs, *args, **kwargs)
        if set(cache) != set(PARTS):
            raise ValueError(f"cache has the keys {sorted(cache)}, but needs {list(PARTS)}.")
        cache = keras.tree.map_structure(ops.convert_to_tensor, cache)
        inputs = self.complete(inputs)
        self._check_positions(inputs["padding_mask"], cache["padding_mask"])
        cache = self._with_room(cache, ops.shape(inputs["token_ids"])[1])
        return self.extend(inputs["token_ids"], inputs["padding_mask"], cache)

    def make_cache(self, batch_size, slots):
        """Return an empty cache.

        Args:
            batch_size: int or int32 scalar. B.
            slots: int or int32 scalar. T, the number of tokens it has room for.

        Returns:
            A dict as the module's docstring describes it.
        """
        config = self.config
        heads = config["num_heads"], slots, config["hidden_dim"] // config["num_heads"]
        shape = (batch_size, config["num_layers"], *heads)
        return {
            "keys": ops.zeros(shape, self.compute_dtype),
            "values": ops.zeros(shape, self.compute_dtype),
            "padding_mask": ops.zeros((batch_size, slots), "int32"),
            "length": ops.zeros((batch_size,), "int32"),
        }

    def make_loop_cache(self, batch_size, slots):
        """Return an empty cache in the form that a loop writes into in place.

        Args:
            batch_size, slots: see `make_cache`.
        """
        return unstack_cache(self.make_cache(batch_size, slots))

    def extend(self, token_ids, padding_mask, cache):
        """Read tokens behind those of a cache: the step of a loop, of which no shape grows.

        Args:
            token_ids: (B, S) int32.
            padding_mask: (B, S) int32, 1 = real.
            cache: a cache with S free slots in each row, or the same with `keys` and `values`
                unstacked (`unstack_cache`): a loop writes into those in place.

        Returns:
            dict of `sequence_output` (B, S, D) and `cache`, in the form that was given.

        Example:

            cache = backbone.make_cache(batch_size=1, slots=64)
            outputs = backbone.extend(token_ids, padding_mask, cache)
        """
        is_stacked = not isinstance(cache["keys"], (tuple, list))
        cache = unstack_cache(cache) if is_stacked else cache
        length = ops.shape(token_ids)[1]
        slots = ops.expand_dims(cache["length"], 1) + ops.arange(length, dtype="int32")  # (B, S)
        rows = ops.expand_dims(ops.arange(ops.shape(token_ids)[0], dtype="int32"), 1)  # (B, 1)
        mask = ops.scatter_update(
            cache["padding_mask"],
            ops.reshape(_indices(rows, slots), (-1, 2)),
            ops.reshape(padding_mask, (-1,)),
        )
        biases = {layer.window: layer(mask, slots) for layer in self._bias_layers}
        heads = ops.arange(self.config["num_heads"], dtype="int32")
        indices = _indices(
            ops.expand_dims(rows, 1), ops.reshape(heads, (1, -1, 1)), ops.expand_dims(slots, 1)
        )  # (B, N, S, 3)
        write = partial(write_slots if is_stacked else write_slots_in_place, indices=indices)

        start = ops.sum(cache["padding_mask"], axis=1)  # (B,)
        x = self.token_embedding(token_ids) + self.position_embedding(padding_mask, start)
        keys, values = [], []
        for block, window, *past in zip(
            self.blocks, self.windows, cache["keys"], cache["values"], strict=True
        ):
            x, key, value = block(x, bias=biases[window], past=tuple(past), write=write)
            keys.append(key)
            values.append(value)
        if self.final_norm is not None:
            x = self.final_norm(x)
        cache = {
            "keys": tuple(keys),
            "values": tuple(values),
            "padding_mask": mask,
            "length": cache["length"] + length,
        }
        return {
            "sequence_output": x,
            "cache": stack_cache(cache) if is_stacked else cache,
        }

    def make_head(self, kind, **options):
        if kind == "causal_lm":
            return CausalLMHead(self.token_embedding, dtype=self.dtype_policy, name="token_head")
        if kind == "classification":
            options = {"dropout": self.config["dropout"], "use_bias": False} | options
            return LastTokenClassifier(name="classifier", dtype=self.dtype_policy, **options)
        if kind == "multiple_choice":  # one number for each choice
            options = {"dropout": self.config["dropout"]} | options
            return LastTokenClassifier(
                num_classes=1, name="multiple_choice_head", dtype=self.dtype_policy, **options
            )
        return super().make_head(kind, **options)

    def _check_positions(self, new, past):
        tokens = _known(ops.max(ops.sum(past, axis=1) + ops.sum(new, axis=1)))
        limit = self.max_sequence_length
        if tokens is not None and limit is not None and tokens > limit:
            raise ValueError(
                f"cache and token_ids have {tokens} tokens together, but "
                f"max_sequence_length={limit}: begin again with the last ones of them."
            )

    @staticmethod
    def _with_room(cache, length):
        slots = ops.shape(cache["padding_mask"])[1]
        lacking = ops.maximum(ops.max(cache["length"]) + length - slots, 0)
        lacking = lacking if _known(lacking) is None else _known(lacking)
        if isinstance(lacking, int) and lacking == 0:
            return cache
        cache = dict(cache)
        for name, axis in (("keys", 3), ("values", 3), ("padding_mask", 1)):
            shape = list(ops.shape(cache[name]))
            shape[axis] = lacking
            free = ops.zeros(shape, cache[name].dtype)
            cache[name] = ops.concatenate([cache[name], free], axis=axis)
        return cache


def stack_cache(cache):
    """Return a cache whose `keys` and `values` are (B, L, N, T, H), from one with tuples.

    Args:
        cache: dict, its `keys` and `values` a (B, N, T, H) a block.
    """
    return cache | {name: ops.stack(cache[name], axis=1) for name in ("keys", "values")}


def unstack_cache(cache):
    """Return a cache whose `keys` and `values` are tuples of a (B, N, T, H) a block.

    Args:
        cache: dict, its `keys` and `values` (B, L, N, T, H).
    """
    return cache | {name: tuple(ops.unstack(cache[name], axis=1)) for name in ("keys", "values")}


def _bias_layer(window, dtype):
    name = "attention_bias" if window is None else f"attention_bias_{window}"
    return CausalBias(window, dtype=dtype, name=name)


def _indices(*parts):
    """Integers that broadcast to one shape → (…, number of parts)."""
    ones = sum(ops.zeros_like(part) for part in parts)
    return ops.stack([part + ones for part in parts], axis=-1)


def _known(x):
    """The value of an integer tensor, or None while a graph is being made."""
    try:
        return int(x)
    except TypeError:
        return None
