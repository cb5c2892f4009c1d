"""XLNet: an encoder that is pretrained by predicting tokens in random orders.

Differs from Transformer-XL: tokens see both sides; scores also depend on whether two tokens are in
one segment; words have one table. In pretraining a second stream runs beside the tokens, of targets
that do not see themselves, over the same weights. A memory that is not given is empty.

Shapes: B batch, S sequence, M memory, R targets, D hidden, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_lm.layers import AttentionContext, EachTokenClassifier, SpanHead, truncated_normal
from keras_lm.layers.attention import block_options
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import make_token_embedding
from keras_lm.models.backbone import TOKENS_IN_SEGMENTS, Backbone, Head, Input, from_backbone
from keras_lm.models.transformer_xl_layers import in_order
from keras_lm.models.xlnet_layers import (
    ConditionalSpanHead,
    LastTokenPooledClassifier,
    XLNetBlock,
    XLNetLMHead,
    XLNetPositions,
)
from keras_lm.packers import Template
from keras_lm.presets.argument_ranges import Whole
from keras_lm.tokenizers import SentencePieceTokenizer
from keras_lm.utils.argument_types import DType, Tensor


@keras.saving.register_keras_serializable("keras_lm")
class XLNetBackbone(Backbone):
    """The network of XLNet.

    Args:
        vocabulary_size, num_layers, hidden_dim: int. V, the number of blocks, and D.
        num_heads, head_dim: int. Attention heads per block, and their width, or None for D / N.
        intermediate_dim: int. Width inside a block's feed-forward network.
        memory_length: int, M. How many tokens before a text are remembered; 0 for none.
        reuse_length: int. Of each text, the memory takes in the first this many tokens, or with
            None all. In pretraining, the next text begins after them.
        causal: bool. Whether a token sees none after it (`attn_type="uni"`).
        clamp_length: int, or None. Longer distances count as this one.
        dropout: float. Fraction dropped in training of embeddings, distances, of what each part of
            a block adds, inside of feed-forward networks, and of the output.
        attention_dropout: float. Fraction dropped of the attention probabilities.
        activation: str. See `keras_lm.layers.get_activation`.
        layer_norm_epsilon: float.
        dtype: a dtype policy or its name, such as `"mixed_bfloat16"`.

    Call: `backbone({"token_ids": …, "segment_ids": …, "padding_mask": …, "memory": …})`, the first
    three (B, S) int32, of which all but the first are optional. Segments are only compared with
    each other; the memory's is 0. Returns `sequence_output` (B, S, D), and the `memory` for the
    text that follows: a dict of `states` (B, L, M, D), what each of L blocks read of the last M
    tokens, and their `padding_mask` (B, M). It takes in no padding, and passes on no gradients.

    For pretraining there are three more inputs. `permutation_mask` (B, S, S) is 1 where a token
    does not see another; `target_mapping` (B, R, S) has a row for each of R tokens to predict, with
    1 at its place. With the latter, `sequence_output` (B, R, D) is that of the query stream, whose
    tokens do not see themselves. `is_reversed` (B,) is 1 for texts whose tokens come from right to
    left, so that the memory is of what follows: their distances have the other sign. Of a target
    that sees no token at all, nothing defines the answer: here it attends to all columns alike,
    those of padding and of an empty memory, too, so that it varies with their number, and may
    differ from `transformers`.

    Example:

        backbone = keras_lm.models.XLNetBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
        )
        backbone({"token_ids": [[5, 9, 4, 3]]})["sequence_output"].shape  # (1, 4, 16)

    Source: Yang et al. 2019, https://arxiv.org/abs/1906.08237, section 2; zihangdai/xlnet.
    """

    TEMPLATE = Template(
        single="$A:0 <sep>:0 <cls>:2",
        pair="$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2",
        padding_side="left",
        padding_segment=3,
    )
    HEADS = {
        "classification": Head(
            LastTokenPooledClassifier, "classifier", dropout=from_backbone("dropout")
        ),
        "multiple_choice": Head(
            LastTokenPooledClassifier, "classifier", num_classes=1, dropout=from_backbone("dropout")
        ),
        "token_classification": Head(
            EachTokenClassifier, "token_classifier", dropout=from_backbone("dropout")
        ),
        "question_answering": Head(SpanHead, "span_head"),
        "conditional_question_answering": Head(
            ConditionalSpanHead,
            "conditional_span_head",
            hidden_dim=from_backbone("hidden_dim"),
            dropout=from_backbone("dropout"),
            layer_norm_epsilon=from_backbone("layer_norm_epsilon"),
        ),
        "token": Head(XLNetLMHead, "token_head", token_embedding=from_backbone("token_embedding")),
    }
    PRETRAINING_HEADS = {"token_logits": "token"}
    PRETRAINING_LAYERS = ("target_embedding",)
    PRETRAINING_OBJECTIVES = {"token": "PermutationLanguageModel"}
    STREAM_LENGTHS = {"reuse_length": 0.5, "memory_length": 0.75}  # as in the authors' README
    RANGES = {
        "memory_length": Whole(0),
        "reuse_length": Whole(1, is_optional=True),
        "clamp_length": Whole(1, is_optional=True),
    }
    INNER = (*Backbone.INNER, "query_hidden_states")
    tokenizer_class = SentencePieceTokenizer

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        head_dim: int | None = None,
        memory_length: int = 0,
        reuse_length: int | None = None,
        causal: bool = False,
        clamp_length: int | None = None,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        layer_norm_epsilon: float = 1e-12,
        dtype: DType = None,
        name: str = "xlnet_backbone",
    ):
        super().__init__(TOKENS_IN_SEGMENTS | {"memory": Input(is_state=True)}, dtype, name)
        self.token_embedding = make_token_embedding(vocabulary_size, hidden_dim, dtype)
        self.target_embedding = keras.layers.Embedding(
            1, hidden_dim, truncated_normal(), dtype=dtype, name="target_embedding"
        )
        self.target_embedding.build()
        self.dropout = Dropout(dropout, dtype=dtype)
        self.positions = XLNetPositions(
            hidden_dim, causal, clamp_length, reuse_length, dtype=dtype, name="positions"
        )
        options = block_options(self.config, dtype) | {"head_dim": head_dim}
        self.blocks = [XLNetBlock(**options, name=f"block_{i}") for i in range(num_layers)]
        self.finish()

    def fields_of(self, inputs: dict[str, Tensor]) -> dict[str, Input]:
        pretraining = {
            "permutation_mask": Input((None, None)),
            "target_mapping": Input((None, None), dtype="float32"),
            "is_reversed": Input((), default=0, like="token_ids"),
        }
        return self.input_fields | {n: f for n, f in pretraining.items() if n in inputs}

    def forward(
        self,
        token_ids: Tensor,
        segment_ids: Tensor,
        padding_mask: Tensor,
        memory: Any = None,
        permutation_mask: Tensor | None = None,
        target_mapping: Tensor | None = None,
        is_reversed: Tensor | None = None,
        training: bool | None = None,
    ) -> dict[str, Any]:
        x = self.dropout(self.token_embedding(token_ids), training=training)
        memory = self.empty_memory(x) if memory is None else memory
        positions = self.positions(
            padding_mask, segment_ids, memory["padding_mask"], permutation_mask, is_reversed
        )
        distances = self.dropout(positions["distances"], training=training)
        shared = AttentionContext(
            bias=positions["content_bias"],
            positions=positions | {"distances": distances},
            segments=positions["other_segment"],
        )
        y, targets = None, target_mapping
        if targets is not None:
            targets = ops.cast(targets, self.compute_dtype)
            y = self.target_embedding(ops.zeros_like(targets[:, :, 0], dtype="int32"))
            y = self.dropout(y, training=training)  # (B, R, D)
        hidden_states, query_states, contexts, states = [x], [y], [], []
        for block, before in zip(self.blocks, memory["states"], strict=True):
            states.append(ops.stop_gradient(in_order(before, x, positions["kept"])))
            contexts.append(shared._replace(memory=before))
            x, kept = block(x, contexts[-1], training=training)
            if y is not None:
                unseen = positions["query_bias"]
                y, _ = block(
                    y, shared._replace(bias=unseen, past=kept, source=targets), training=training
                )
            hidden_states.append(x)
            query_states.append(y)
        outputs = {
            "sequence_output": self.dropout(x if y is None else y, training=training),
            "memory": {"states": states, "padding_mask": positions["kept_mask"]},
            "hidden_states": hidden_states,
            "attention_contexts": contexts,
        }
        return outputs if y is None else outputs | {"query_hidden_states": query_states}

    def attended_tokens(self) -> int:
        return 512 * len(self.blocks)  # as in pretraining

    # === State ===

    def empty_memory(self, x: Tensor) -> dict[str, Any]:
        """Return the memory before a first text, for as many rows as `x` (B, S, D) has."""
        length = self.config["memory_length"]
        empty = ops.tile(ops.zeros_like(ops.expand_dims(x[:, 0], 1)), (1, length, 1))  # (B, M, D)
        mask = ops.zeros_like(empty[:, :, 0], dtype="int32")
        return {"states": [empty] * len(self.blocks), "padding_mask": mask}

    def initial_state(self, batch_size: int | Tensor, length: int | Tensor = 0) -> dict[str, Any]:
        return self.empty_memory(
            ops.zeros((batch_size, 1, self.config["hidden_dim"]), self.compute_dtype)
        )

    def pack_state(self, state: Any) -> Any:
        return state | {"states": ops.stack(state["states"], axis=1)}

    def unpack_state(self, state: Any) -> Any:
        return state | {"states": ops.unstack(state["states"], len(self.blocks), axis=1)}


_SIZE = {"vocabulary_size": 32000, "num_heads": 12, "hidden_dim": 768, "intermediate_dim": 3072}
XLNetBackbone.SIZES = {
    "xlnet_base_en": {**_SIZE, "num_layers": 12},
    "xlnet_large_en": {
        **_SIZE,
        "num_layers": 24,
        "num_heads": 16,
        "hidden_dim": 1024,
        "intermediate_dim": 4096,
    },
}
XLNetBackbone.PUBLISHED = {
    "xlnet_base_en": "hf://xlnet/xlnet-base-cased",
    "xlnet_large_en": "hf://xlnet/xlnet-large-cased",
}
