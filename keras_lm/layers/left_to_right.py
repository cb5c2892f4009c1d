"""What models that read from left to right need: a causal bias, a cache, and a head.

Shapes: B batch, S new tokens, T slots, L blocks, N heads, H per head, D hidden, V vocabulary.
"""

from typing import Any

import keras
from keras import ops

from keras_lm.layers.attention import AttentionContext
from keras_lm.layers.backend import takes_rules, word_scores
from keras_lm.layers.masks import Visible
from keras_lm.utils.argument_types import Tensor


@keras.saving.register_keras_serializable("keras_lm")
class CausalBias(keras.layers.Layer):
    """Turn a padding mask into the additive bias of causal attention.

    Args:
        window: int, 1 or more. The maximum number of tokens to attend to, including the token
            itself; None for all earlier tokens ("dense" in GPT-3's terms, where a window is
            "locally banded").

    Call: `layer(padding_mask, slots=None)` with (B, T) int32, 1 = real; returns (B, 1, S, T)
    float32. `slots` (B, S) int32 is the column of each query; by default, there is a query in each
    of the T columns. A query that may attend to nothing attends uniformly to everything.

    Raises:
        ValueError: if `window` is less than 1.

    Source: GPT-3, https://arxiv.org/abs/2005.14165, section 2.1; Sparse Transformer,
    https://arxiv.org/abs/1904.10509, section 4.
    """

    def __init__(self, window: int | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        if window is not None and window < 1:
            raise ValueError(f"window={window}: pass 1 or more, as a token attends to itself.")
        self.window = window

    def visible(self, padding_mask: Tensor, slots: int | None = None) -> Visible:
        """Return which columns each query attends to."""
        window = ()
        if self.window is not None:
            # Windows count real tokens, as there may be padding between prompt and continuation.
            keys = ops.cumsum(padding_mask, axis=1)  # (B, T)
            queries = keys if slots is None else ops.take_along_axis(keys, slots, axis=1)
            window = (ops.expand_dims(keys, 1), ops.expand_dims(queries - self.window, 2))
        if slots is None:
            slots = ops.expand_dims(ops.arange(ops.shape(padding_mask)[1], dtype="int32"), 0)
        return Visible(ops.expand_dims(padding_mask, 1), ops.expand_dims(slots, 2), window)

    def call(self, padding_mask, slots=None):
        visible = self.visible(padding_mask, slots)
        is_rule = takes_rules(visible.slots.shape[1], padding_mask.shape[1])
        return visible if is_rule else visible.bias()  # a tensor, computed once for all layers

    def compute_output_spec(self, padding_mask, slots=None):
        batch, length = padding_mask.shape
        queries = length if slots is None else slots.shape[1]
        return keras.KerasTensor((batch, 1, queries, length), dtype="float32")

    def get_config(self):
        return super().get_config() | {"window": self.window}


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


def _indices(*parts):
    """Integers that broadcast to one shape → (…, number of parts)."""
    ones = sum(ops.zeros_like(part) for part in parts)
    return ops.stack([part + ones for part in parts], axis=-1)


class CausalLMHead(keras.layers.Layer):
    """The next token's logits: the product with the token embedding, or with a separate matrix.

    Args:
        token_embedding: `keras.layers.ReversibleEmbedding` of the backbone.
        tied: bool. Whether to use the token embedding; False creates a matrix of the same shape.

    Call: `head(outputs, inputs)` → (B, S, V) float32, the next token's logits at each position.

    Source: GPT, "Improving Language Understanding by Generative Pre-Training", equation 2.
    """

    def __init__(self, token_embedding: keras.Layer, tied: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        self.token_embedding = token_embedding
        self.tied = tied

    def build(self, outputs_shape, inputs_shape=None):
        if not self.tied:
            self.own = self.add_weight(
                name="embeddings",
                shape=(self.token_embedding.input_dim, outputs_shape["sequence_output"][-1]),
                initializer=self.make_initializer(),
            )

    def make_initializer(self) -> str:
        """Return the initialiser of the head's own matrix, if it is not tied."""
        return "glorot_uniform"

    @property
    def table(self) -> Tensor:
        """The matrix (V, D), a row per token of the vocabulary."""
        return self.token_embedding.embeddings if self.tied else self.own

    def call(self, outputs, inputs=None, training=None):
        return word_scores(outputs["sequence_output"], self.table)
