"""Transformer-XL: a language model that reads a text segment by segment, and remembers the last.

Each block attends to what it read before, the memory, beside the tokens of a segment; positions are
distances, and rare words have narrow vectors.

Shapes: B batch, S sequence, M memory, L blocks, D hidden, V vocabulary.
"""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_lm.layers import AttentionContext, CausalBias, PaddingBias
from keras_lm.layers.attention import KeyValueCache, block_options
from keras_lm.layers.backend import Dropout
from keras_lm.layers.state import FIXED
from keras_lm.models.backbone import TOKENS, Backbone, CausalBackbone, Head, Input, from_backbone
from keras_lm.models.sizes import kernels
from keras_lm.models.transformer_xl_layers import (
    RelativeBiases,
    RelativePostNormBlock,
    RelativePreNormBlock,
    SegmentPositions,
    in_order,
)
from keras_lm.models.transformer_xl_words import AdaptiveEmbedding, AdaptiveSoftmax
from keras_lm.packers import Template
from keras_lm.presets.argument_ranges import Whole, check_arguments
from keras_lm.tokenizers import TransformerXLTokenizer
from keras_lm.utils.argument_types import DType, Tensor


def _make_block(config, dtype, name):
    block = RelativePreNormBlock if config["pre_norm"] else RelativePostNormBlock
    options = block_options(config | {"activation": "relu"}, dtype)
    return block(head_dim=config["head_dim"], **options, name=name)


@keras.saving.register_keras_serializable("keras_lm")
class TransformerXLBackbone(Backbone):
    """The network of Transformer-XL.

    Args:
        vocabulary_size, num_layers, hidden_dim: int. V, the number of blocks, and D.
        num_heads, head_dim: int. N; and H, or None for D / N.
        intermediate_dim: int. Width inside a block's feed-forward network.
        embedding_dim, cutoffs, div_val, project_all: see `AdaptiveEmbedding`; the width is D if it
            is None.
        tie_projections, tie_embeddings: see `AdaptiveSoftmax`; bool, whether it has the vectors of
            the embedding.
        memory_length: int, M. How many tokens before a segment are remembered.
        clamp_length: int, or None. See `SegmentPositions`.
        same_length: bool. Each token attends to as many, M with itself; False for all before it.
        counts_itself: bool. False with `same_length` is for M tokens beside itself, as in the
            authors' TensorFlow code.
        starts_empty: bool. Whether there is nothing to attend to before a text, as in the authors'
            PyTorch code; else zeros are, as in their TensorFlow code and Hugging Face's.
        pre_norm: bool. Normalise before each part of a block, and not after it.
        untie_biases: bool. Whether each block has `RelativeBiases` of its own.
        dropout: float. Fraction dropped in training of embeddings, distances, of what each part of
            a block adds, and inside of feed-forward networks.
        attention_dropout: float. Fraction dropped of the attention probabilities.
        layer_norm_epsilon: float.
        dtype: a dtype policy or its name, such as `"mixed_bfloat16"`.

    Call: `backbone({"token_ids": …, "padding_mask": …, "memory": …})`, the first two (B, S) int32;
    the mask and the memory are optional. Returns `sequence_output` (B, S, D) and the `memory`
    (B, L, M, D) of the next segment: what each of L blocks read of the last M tokens. At the start
    it is zero. It does not take in padding, and passes on no gradients.

    Example:

        backbone = keras_lm.models.TransformerXLBackbone(
            vocabulary_size=100,
            num_layers=2,
            num_heads=2,
            hidden_dim=16,
            intermediate_dim=32,
            cutoffs=[20, 50],
            memory_length=4,
        )
        first = backbone({"token_ids": [[5, 9, 2]]})
        backbone({"token_ids": [[7, 80]], "memory": first["memory"]})["sequence_output"]

    Source: Dai et al. 2019, https://arxiv.org/abs/1901.02860, section 3; kimiyoung/transformer-xl.
    """

    TEMPLATE = Template(single="$A:0", pair="$A:0 $B:0")
    HEADS = CausalBackbone.HEADS | {
        "causal_lm": Head(
            AdaptiveSoftmax,
            "token_head",
            token_embedding=from_backbone("token_embedding"),
            tie_projections=from_backbone("tie_projections"),
            tied=from_backbone("tie_embeddings"),
        ),
    }
    RANGES = {"memory_length": Whole(0), "clamp_length": Whole(1, is_optional=True)}
    STREAM_LENGTHS = {"memory_length": 1}  # as in the authors' scripts
    is_causal = True
    tokenizer_class = TransformerXLTokenizer

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        head_dim: int | None = None,
        embedding_dim: int | None = None,
        cutoffs: Sequence[int] = (),
        div_val: int = 1,
        project_all: bool = True,
        tie_projections: bool | Sequence[bool] | None = None,
        tie_embeddings: bool = True,
        memory_length: int = 512,
        clamp_length: int | None = None,
        same_length: bool = False,
        counts_itself: bool = True,
        starts_empty: bool = False,
        pre_norm: bool = False,
        untie_biases: bool = True,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        layer_norm_epsilon: float = 1e-5,
        dtype: DType = None,
        name: str = "transformer_xl_backbone",
    ):
        super().__init__(TOKENS | {"memory": Input(is_state=True)}, dtype, name)
        self.token_embedding = AdaptiveEmbedding(
            vocabulary_size,
            hidden_dim,
            embedding_dim or hidden_dim,
            cutoffs,
            div_val,
            project_all,
            dtype=dtype,
            name="token_embedding",
        )
        self.dropout = Dropout(dropout, dtype=dtype)
        self.positions = SegmentPositions(hidden_dim, clamp_length, dtype=dtype, name="positions")
        self.attention_bias, self.padding_bias = CausalBias(), PaddingBias()
        self._set_lengths()
        self.blocks = [_make_block(self.config, dtype, f"block_{i}") for i in range(num_layers)]
        if not untie_biases:
            self.biases = RelativeBiases(
                num_heads, head_dim or hidden_dim // num_heads, dtype=dtype, name="biases"
            )
            self.biases.build()
            for block in self.blocks:
                block.biases = self.biases
        self.finish()

    def set_lengths(self, **lengths: Any) -> None:
        """Change `memory_length`, `clamp_length` or `same_length`, which no weight depends on.

        Models are evaluated with longer memories than they were trained with. A memory of an
        earlier call has the earlier length: begin without one. Of a task that has been called, call
        `forget_graphs` afterwards.

        Raises:
            ValueError: if another argument is passed, or a value is out of range.

        Example:

            task.backbone.set_lengths(memory_length=1600, clamp_length=1000, same_length=True)
            task.forget_graphs()
            task.score(texts)["perplexity"]

        Source: Transformer-XL, https://arxiv.org/abs/1901.02860, section 4.1.
        """
        unknown = sorted(lengths.keys() - {"memory_length", "clamp_length", "same_length"})
        if unknown:
            raise ValueError(
                f"set_lengths got {unknown}: it takes memory_length, clamp_length and same_length."
            )
        check_arguments(type(self), lengths)
        self._arguments |= lengths
        self._set_lengths()
        self.finish()

    def _set_lengths(self):
        config = self.config
        self.positions.clamp_length = config["clamp_length"]
        window = config["memory_length"] + (not config["counts_itself"])
        self.attention_bias.window = max(window, 1) if config["same_length"] else None

    def forward(self, token_ids, padding_mask, memory=None, training=None):
        if isinstance(memory, dict):
            return self._step(token_ids, padding_mask, memory)
        x = self.dropout(self.token_embedding(token_ids), training=training)
        if memory is None:
            empty = ops.zeros_like(ops.expand_dims(x[:, 0], 1))
            empty = ops.tile(empty, (1, self.config["memory_length"], 1))
            memory = [empty] * len(self.blocks)  # (B, M, D) each
        positions = self.positions(padding_mask, self._is_read(memory[0]))
        distances = self.dropout(positions["distances"], training=training)
        shared = AttentionContext(
            bias=self.attention_bias(positions["padding_mask"], positions["slots"]),
            positions=positions | {"distances": distances},
        )
        hidden_states, contexts, new_memory = [x], [], []  # (B, S, D)
        for block, before in zip(self.blocks, memory, strict=True):
            new_memory.append(ops.stop_gradient(in_order(before, x, positions["kept"])))
            contexts.append(shared._replace(memory=before))
            x, _ = block(x, contexts[-1], training=training)
            hidden_states.append(x)
        hidden_states[-1] = self.dropout(x, training=training)
        return self.outputs_of(hidden_states, contexts) | {"memory": new_memory}

    def _is_read(self, memory):
        """Return the mask (B, M) int32 of a memory (B, M, D)."""
        if self.config["starts_empty"]:  # no vector is zero in all of its numbers
            return ops.cast(ops.any(ops.not_equal(memory, 0), axis=2), "int32")
        return ops.ones_like(memory[:, :, 0], dtype="int32")

    def _step(self, token_ids, padding_mask, memory):
        """`forward` of one token (B, 1), given a memory in the form of `decoding_state`."""
        cache = KeyValueCache(padding_mask, memory, len(self.blocks))
        bias = self.padding_bias(cache.padding_mask)
        slots = ops.arange(ops.shape(bias)[3], dtype="int32")
        columns = (slots - memory["length"][0] - 1) % ops.size(slots)  # the token itself is last
        x = self.token_embedding(token_ids)
        contexts = cache.contexts([bias] * len(self.blocks))
        for block, context, distances in zip(
            self.blocks, contexts, memory[FIXED]["distances"], strict=True
        ):
            positions = {"distances": distances[:1], "columns": columns}
            x, ((keys, *_), values) = block(x, context._replace(positions=positions))
            cache.keep((keys, values))
        state = cache.state()
        length = state["length"] % ops.size(slots)
        return {"sequence_output": x, "memory": state | {"length": length, FIXED: memory[FIXED]}}

    def forward_flops(self) -> float:
        """See `Backbone.forward_flops`: of a segment as long as the memory, the last word of it.

        What a segment projects of the memory and of its distances counts for its tokens, and so do
        the words of all clusters.
        """
        again = 0  # keys, values and distances of as many columns of memory as there are tokens
        for block in self.blocks:
            width = block.attention.num_heads * block.attention.head_dim
            again += 3 * width * self.config["hidden_dim"]
        words = sum(
            math.prod(shape)
            for cluster in self.token_embedding.clusters
            for shape in (cluster.shapes["embeddings"], cluster.shapes["projection"])
            if shape
        )
        scores = 6 * self.attended_tokens() * width
        return 2 * (kernels(self.blocks) + again + words) + scores

    def attended_tokens(self) -> int:
        memory_length = self.config["memory_length"]
        return len(self.blocks) * memory_length * (1 if self.config["same_length"] else 2)

    # === State ===

    def initial_state(self, batch_size: int | Tensor, length: int | Tensor = 0) -> Any:
        shape = (batch_size, self.config["memory_length"], self.config["hidden_dim"])
        return [ops.zeros(shape, self.compute_dtype) for _ in self.blocks]

    def pack_state(self, state: Any) -> Tensor:
        return ops.stack(state, axis=1)

    def unpack_state(self, state: Any) -> Any:
        return ops.unstack(state, len(self.blocks), axis=1)

    def decoding_state(self, state: Any) -> dict[str, Any]:
        """Return the memory's keys and values, (B, N, T, H) a block, and those of distances.

        They are a `KeyValueCache` of the T tokens to which one attends, itself among them, in which
        it takes the slot of the one that is too far away now; all rows have the same `length`. So
        no step projects the memory again.
        """
        number = self.attention_bias.window or self.config["memory_length"] + 1
        distances = self.positions.vectors(ops.arange(number - 1, -1, -1, dtype="int32"))
        free = [(0, 0), (0, 0), (0, 1), (0, 0)]
        keys, values, projected = [], [], []
        state = [memory[:, ops.shape(memory)[1] - number + 1 :] for memory in state]
        for block, memory in zip(self.blocks, state, strict=True):
            both = block.attention.keys_and_values(block.read(memory, block.attention_norm))
            for kept, part in zip((keys, values), both, strict=True):
                kept.append(ops.pad(part, free))
            projected.append(block.attention.project_distances(ops.expand_dims(distances, 0)))
        is_read = self._is_read(state[0])
        return {
            "keys": tuple(keys),
            "values": tuple(values),
            "padding_mask": ops.pad(is_read, [(0, 0), (0, 1)]),
            "length": ops.full((ops.shape(is_read)[0],), number - 1, "int32"),
            FIXED: {"distances": tuple(projected)},
        }


def _size(vocabulary_size, num_layers, hidden_dim, num_heads, intermediate_dim, length, **others):
    return {
        "vocabulary_size": vocabulary_size,
        "num_layers": num_layers,
        "hidden_dim": hidden_dim,
        "num_heads": num_heads,
        "intermediate_dim": intermediate_dim,
        "memory_length": length,
    } | others


_CLUSTERS = {"cutoffs": [20000, 40000, 200000], "div_val": 4}
_LM1B = {"cutoffs": [60000, 100000, 640000], "div_val": 4, "tie_projections": [False] * 4}
# Those of the authors' scripts for PyTorch: for the words of WikiText-103, of which the large one
# was published, and of One Billion Word, whose vocabulary is that of Jozefowicz et al. 2016,
# https://arxiv.org/abs/1602.02410; and for the characters of enwik8 and text8, without line ends.
# Lengths are those of training.
TransformerXLBackbone.SIZES = {
    "transformer_xl_base_wt103_en": _size(
        267735, 16, 410, 10, 2100, 150, cutoffs=_CLUSTERS["cutoffs"]
    ),
    "transformer_xl_large_wt103_en": _size(
        267735, 18, 1024, 16, 4096, 384, dropout=0.2, attention_dropout=0.2, **_CLUSTERS
    ),
    "transformer_xl_12_layers_enwik8": _size(204, 12, 512, 8, 2048, 512),
    "transformer_xl_24_layers_enwik8": _size(
        204, 24, 1024, 8, 3072, 768, dropout=0.15, attention_dropout=0.15
    ),
    "transformer_xl_base_lm1b_en": _size(793471, 18, 1024, 8, 4096, 32, dropout=0.0, **_LM1B),
    "transformer_xl_large_lm1b_en": _size(
        793471, 24, 1280, 16, 8192, 32, dropout=0.05, attention_dropout=0.05, **_LM1B
    ),
    "transformer_xl_12_layers_text8_en": _size(27, 12, 512, 8, 2048, 512),
    "transformer_xl_24_layers_text8_en": _size(
        27, 24, 1024, 8, 3072, 768, dropout=0.15, attention_dropout=0.15
    ),
}
TransformerXLBackbone.PUBLISHED = {
    "transformer_xl_large_wt103_en": "hf://transfo-xl/transfo-xl-wt103",
}
