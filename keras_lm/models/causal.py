"""What the GPTs share: inputs, the cache as callers keep it, and heads.

Shapes: B batch, S new tokens, T slots, L blocks, N heads, H per head, D hidden.
"""

import math
from typing import Any

from keras import ops

from keras_lm.layers import CausalLMHead, LastTokenClassifier
from keras_lm.layers.backend import require
from keras_lm.layers.state import known, with_free_slots
from keras_lm.models.backbone import Backbone, Head, Input, from_backbone
from keras_lm.packers import Template
from keras_lm.utils.argument_types import DType, Tensor


class CachedBackbone(Backbone):
    """A model whose state, a `cache`, has slots with the keys and values of the tokens so far."""

    def cache_sizes(self) -> tuple[int, int, int]:
        """Return L, N and H of the cache."""
        heads = self.config["num_heads"]
        return self.config["num_layers"], heads, self.config["hidden_dim"] // heads

    def cache_bytes(self) -> int:
        """Return how many bytes the cache of one full sequence has, in float32."""
        return 4 * 2 * math.prod(self.cache_sizes()) * self.max_sequence_length

    def initial_state(self, batch_size: int | Tensor, length: int | Tensor = 0) -> dict[str, Any]:
        layers, heads, width = self.cache_sizes()
        shape = (batch_size, heads, length, width)
        empty = [ops.zeros(shape, self.compute_dtype) for _ in range(layers)]
        return {
            "keys": tuple(empty),
            "values": tuple(empty),
            "padding_mask": ops.zeros((batch_size, length), "int32"),
            "length": ops.zeros((batch_size,), "int32"),
        }

    def make_cache(self, batch_size: int, slots: int | None) -> Any:
        """Return an empty cache with T = `slots` free slots, as a call takes and returns it."""
        return self.pack_state(self.initial_state(batch_size, slots))

    def pack_state(self, state: Any) -> Any:
        return state | {name: ops.stack(state[name], axis=1) for name in ("keys", "values")}

    def unpack_state(self, state: Any) -> Any:
        number, _, _ = self.cache_sizes()
        return state | {
            name: tuple(ops.unstack(state[name], number, axis=1)) for name in ("keys", "values")
        }

    def rewind(self, state: Any, number: Tensor) -> dict[str, Any]:
        length = state["length"] - number
        slots = ops.arange(ops.shape(state["padding_mask"])[1], dtype="int32")
        is_used = ops.less(slots, ops.expand_dims(length, 1))  # (B, T)
        mask = state["padding_mask"] * ops.cast(is_used, "int32")
        return state | {"padding_mask": mask, "length": length}

    def make_room(self, state: Any, inputs: dict[str, Tensor]) -> dict[str, Any]:
        mask = inputs[self.mask_name]
        self._check_positions(mask, state["padding_mask"])
        return with_free_slots(state, ops.shape(mask)[1])

    def _check_positions(self, new, past):
        number, limit = ops.sum(past, axis=1) + ops.sum(new, axis=1), self.max_sequence_length
        tokens = known(ops.max(number))
        if limit is None:
            return
        if tokens is None:  # while a graph is traced
            message = f"cache and token_ids may have {limit} tokens together, but have"
            require(ops.less_equal(number, limit), message, number)
        elif tokens > limit:
            raise ValueError(
                f"cache and token_ids have {tokens} tokens together, but "
                f"max_sequence_length={limit}: start again with the last of them."
            )


class CausalBackbone(CachedBackbone):
    """A causal Transformer. A subclass defines its layers, with a `token_embedding`, and `forward`.

    Args:
        dtype: a dtype policy or its name.

    Call: `backbone({"token_ids": …, "padding_mask": …, "cache": …})`, the first two (B, S) int32;
    the mask and the cache are optional. Returns `sequence_output` (B, S, D) of these tokens, and
    the `cache` with them in it:

        {"keys": (B, L, N, T, H), "values": (B, L, N, T, H),
         "padding_mask": (B, T) int32, 1 where a slot holds a real token,
         "length": (B,) int32, how many slots are in use, padding among them}

    Tokens go into the cache's free slots; if there are too few, it grows. Positions count real
    tokens only, so prompts may be padded on either side; more of them than positions are an error.

    Raises:
        ValueError: if an input is unknown or missing, or there are more tokens than positions.

    Example:

        first = backbone({"token_ids": [[5, 9, 2]]})
        backbone({"token_ids": [[7]], "cache": first["cache"]})["sequence_output"]  # of the fourth
    """

    TEMPLATE = Template(single="$A:0", pair="$A:0 $B:0")
    HEADS = {
        "causal_lm": Head(
            CausalLMHead, "token_head", token_embedding=from_backbone("token_embedding")
        ),
        "classification": Head(
            LastTokenClassifier, "classifier", use_bias=False, dropout=from_backbone("dropout")
        ),
        "multiple_choice": Head(
            LastTokenClassifier,
            "multiple_choice_head",
            num_classes=1,
            dropout=from_backbone("dropout"),
        ),
    }
    is_causal = True
    SCRATCH_RATE = (6e-4, 1.0)  # GPT-3, table 2.1

    def __init__(self, dtype: DType = None, name: str | None = None):
        inputs = {
            "token_ids": Input(),
            "padding_mask": Input(default=1, like="token_ids"),
            "cache": Input(is_state=True),
        }
        super().__init__(inputs, dtype=dtype, name=name)

    def forward_flops(self) -> float:
        return super().forward_flops() + 2 * self.vocabulary_size * self.config["hidden_dim"]
