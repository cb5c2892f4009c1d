"""ERNIE (Tsinghua): BERT with a second stream of entities, which upper blocks fuse with the tokens.

Differs from BERT: a text has entities beside its tokens, each at the first token of its mention, as
vectors of a knowledge graph. The lower blocks are BERT's; one takes the entities in, and those
above it also let entities attend to each other.

Shapes: B batch, S sequence, D hidden, E width of an entity, V vocabulary, C candidates, N
entities.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

import keras
import numpy as np
from keras import ops

from keras_lm.layers import (
    AttentionContext,
    LayerNormalization,
    PaddingBias,
    PostNormBlock,
    get_activation,
)
from keras_lm.layers.attention import SelfAttention, block_options
from keras_lm.layers.backend import Dropout, matmul_transposed
from keras_lm.layers.basic import make_dense, make_pooler
from keras_lm.models.backbone import TOKENS_IN_SEGMENTS, Backbone, Head, Input, from_backbone
from keras_lm.models.bert import BertBackbone, BertEmbeddings
from keras_lm.models.sizes import transformer_size
from keras_lm.models.students import chosen_layers, copy_layers
from keras_lm.packers import EntityPacker
from keras_lm.presets.argument_ranges import Axis, Range, Whole
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.tokenizers.wordpiece import WordPieceTokenizer
from keras_lm.utils.argument_types import DType, Tensor

NO_ENTITY = -1
LOWEST = -1e9  # the score of all others than the candidates


class EntityTable(keras.layers.Layer):
    """The vectors of a knowledge graph's entities, which training does not change.

    Args:
        num_entities, entity_dim: int. N and E.

    Call: `table(ids)` with (B, S) int32 returns (B, S, E); `NO_ENTITY` is the zero vector.

    Source: Zhang et al. 2019, section 3.2; the vectors are those of TransE, section 4.1.
    """

    def __init__(self, num_entities, entity_dim, **kwargs):
        super().__init__(**kwargs)
        self.num_entities, self.entity_dim = num_entities, entity_dim

    def build(self, ids_shape=None):
        self.embeddings = self.add_weight(
            (self.num_entities, self.entity_dim),
            initializer="random_normal",
            trainable=False,
            name="embeddings",
        )

    def call(self, ids):
        vectors = ops.take(self.embeddings, ops.maximum(ids, 0), axis=0)
        is_entity = ops.expand_dims(ops.greater(ids, NO_ENTITY), -1)
        return vectors * ops.cast(is_entity, vectors.dtype)


class FusionFeedForward(keras.layers.Layer):
    """Information fusion: one hidden layer of a token and its entity, then one output for each.

    Args:
        intermediate_dim: int. Width of the hidden layer.
        entity_dim: int. E.
        activation: str. See `keras_lm.layers.get_activation`.

    Call: `layer(x, entities)` with (B, S, D) and (B, S, E) returns both, in the same shapes.

    Source: Zhang et al. 2019, section 3.3, equations 4 and 5.
    """

    def __init__(self, intermediate_dim, entity_dim, activation="gelu", **kwargs):
        super().__init__(**kwargs)
        self.intermediate_dim = intermediate_dim
        self.entity_dim = entity_dim
        self.activation = get_activation(activation)

    def build(self, x_shape, *_):
        hidden, entity, inner = (
            (*x_shape[:-1], width)
            for width in (x_shape[-1], self.entity_dim, self.intermediate_dim)
        )
        self.intermediate = self._make("intermediate", hidden, inner)
        self.entity_intermediate = self._make("entity_intermediate", entity, inner)
        self.output_dense = self._make("output", inner, hidden)
        self.entity_output = self._make("entity_output", inner, entity)

    def _make(self, name, input_shape, output_shape):
        dense = make_dense(name, output_shape[-1], self.dtype_policy)
        dense.build(input_shape)
        return dense

    def call(self, x, entities):
        x = self.activation(self.intermediate(x) + self.entity_intermediate(entities))
        return self.output_dense(x), self.entity_output(x)

    def compute_output_spec(self, x, entities):
        return tuple(keras.KerasTensor(part.shape, self.compute_dtype) for part in (x, entities))


class KnowledgeBlock(PostNormBlock):
    """A block of the knowledgeable encoder: BERT's, with a stream of entities beside the tokens.

    Args:
        entity_dim: int. E.
        num_entity_heads: int, or None for a block in which entities do not attend to each other.
        Other arguments: see `PostNormBlock`.

    Call: `block(x, context, entities, entity_context)` with (B, S, D) and (B, S, E), and the
    entities' mask (B, S) and additive bias as a pair; returns both streams.

    Source: Zhang et al. 2019, section 3.3, equations 2 to 5.
    """

    def __init__(self, entity_dim, num_entity_heads=None, **kwargs):
        super().__init__(**kwargs)
        self.entity_dim = entity_dim
        self.num_entity_heads = num_entity_heads

    def make_feedforward(self):
        return FusionFeedForward(
            self.intermediate_dim,
            self.entity_dim,
            self.activation,
            name="feedforward",
            dtype=self.dtype_policy,
        )

    def build(self, input_shape):
        super().build(input_shape)
        shape = (*input_shape[:-1], self.entity_dim)
        self.entity_norm = self.make_norm("entity_norm")
        self.entity_norm.build(shape)
        if self.num_entity_heads is not None:
            self.entity_attention = SelfAttention(
                self.num_entity_heads,
                self.attention_dropout,
                name="entity_attention",
                dtype=self.dtype_policy,
            )
            self.entity_attention.build(shape)
            self.entity_attention_norm = self.make_norm("entity_attention_norm")
            self.entity_attention_norm.build(shape)

    def call(self, x, context, entities, entity_context, training=None):
        entity_mask, entity_bias = entity_context
        x, _ = self.add_attention(x, self.as_context(context, {}), training)
        if self.num_entity_heads is not None:
            attended = self.entity_attention(entities, entity_bias, training=training)
            entities = self.residual(entities, self.entity_attention_norm, attended, training)
        entities = entities * ops.expand_dims(ops.cast(entity_mask, entities.dtype), -1)
        added, entities_added = self.feedforward(x, entities)
        x = self.residual(x, self.feedforward_norm, added, training)
        return x, self.residual(entities, self.entity_norm, entities_added, training)

    def compute_output_spec(self, x, context, entities, entity_context, training=None):
        return tuple(keras.KerasTensor(part.shape, self.compute_dtype) for part in (x, entities))


class EntityHead(keras.layers.Layer):
    """Which entity a token is aligned with: scores of its vector with those of candidates.

    Args:
        entity_dim: int. E.
        entity_table: `EntityTable` of the backbone, or None.
        activation, layer_norm_epsilon: see `PostNormBlock`.

    Call: `head(outputs, inputs)` → (B, S, C) float32, for candidates that are the same for all
    tokens of a batch. With a table they are `candidate_ids` (B, C), of which all rows are alike and
    numbers below `NO_ENTITY` are left out; without, `candidate_embeddings` (B, C / B, E), of
    which all rows together are the candidates. If `inputs` has neither, C is 0.

    Source: Zhang et al. 2019, section 3.4, equation 6.
    """

    def __init__(
        self, entity_dim, entity_table=None, activation="gelu", layer_norm_epsilon=1e-12, **kwargs
    ):
        super().__init__(**kwargs)
        self.entity_dim, self.entity_table = entity_dim, entity_table
        self.activation = activation
        self.layer_norm_epsilon = layer_norm_epsilon

    def build(self, outputs_shape, inputs_shape=None):
        shape = outputs_shape["sequence_output"]
        self.dense = make_dense(
            "dense", self.entity_dim, self.dtype_policy, activation=get_activation(self.activation)
        )
        self.dense.build(shape)
        self.norm = LayerNormalization(
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name="norm"
        )
        self.norm.build((*shape[:-1], self.entity_dim))

    def call(self, outputs, inputs=None, training=None):
        x = self.norm(self.dense(outputs["sequence_output"]))  # (B, S, E)
        inputs, is_candidate = inputs or {}, None
        if "candidate_ids" in inputs and self.entity_table is not None:
            ids = inputs["candidate_ids"][:1]
            candidates, is_candidate = self.entity_table(ids), ids >= NO_ENTITY
        else:
            candidates = inputs.get("candidate_embeddings", ops.zeros((0, self.entity_dim)))
        candidates = ops.reshape(ops.cast(candidates, x.dtype), (1, -1, self.entity_dim))
        scores = ops.cast(matmul_transposed(x, candidates), "float32")
        if is_candidate is None:
            return scores
        return ops.where(ops.expand_dims(is_candidate, 1), scores, LOWEST)


# A block of tokens alone; one that fuses them with entities; and one where entities attend, too.
# These are the words of the published configurations.
LAYER_TYPES = ("sim", "mix", "norm")


class LayerTypes(Range):
    """What `layer_types` may be, for `Backbone.RANGES`."""

    def problem(self, value):
        is_list = isinstance(value, (list, tuple))
        if value is None or (is_list and all(kind in LAYER_TYPES for kind in value)):
            return None
        return f"a list of {', '.join(map(repr, LAYER_TYPES))}, one for each block"


def first_tokens(padding_mask):
    """Return a mask (B, S) of the first real token, which has no entity, but takes part as one."""
    return ops.cast(ops.equal(ops.cumsum(padding_mask, axis=1) * padding_mask, 1), "int32")


def entity_inputs(num_entities, entity_dim):
    """Return the inputs for entities: rows of a table, or without one their vectors and a mask."""
    if num_entities:
        return {"entity_ids": Input(default=NO_ENTITY, like="token_ids")}

    def zeros(token_ids):
        ids = ops.expand_dims(ops.cast(token_ids, "float32"), -1)
        return ops.zeros_like(ops.tile(ids, (1, 1, entity_dim)))

    return {
        "entity_embeddings": Input((None, entity_dim), "float32", default=zeros, like="token_ids"),
        "entity_mask": Input(default=first_tokens, like="padding_mask"),
    }


def _check(layer_types, num_layers, num_entity_heads, entity_dim):
    if len(layer_types or ()) > num_layers:
        raise ValueError(
            f"layer_types has {len(layer_types)} entries for num_layers={num_layers}: pass one "
            "for each block."
        )
    if entity_dim % num_entity_heads:
        raise ValueError(
            f"num_entity_heads={num_entity_heads} does not divide entity_dim={entity_dim}."
        )


def _make_block(kind, config, dtype, name):
    options = block_options(config, dtype) | {"name": name}
    if kind == "sim":
        return PostNormBlock(**options)
    heads = config["num_entity_heads"] if kind == "norm" else None
    return KnowledgeBlock(config["entity_dim"], heads, **options)


@keras.saving.register_keras_serializable("keras_lm")
class ErnieBackbone(BertEmbeddings, Backbone):
    """The encoder of ERNIE by Tsinghua University, a BERT that reads entities beside the tokens.

    Args:
        vocabulary_size, num_layers, hidden_dim: int. V, the number of blocks, and D.
        num_heads: int. Attention heads per block; must divide `hidden_dim`.
        intermediate_dim: int. Width inside a block's feed-forward network, of both streams.
        entity_dim: int. E, 100 in the published model.
        num_entity_heads: int. Attention heads of the entities; must divide `entity_dim`.
        num_entities: int. Rows of a table of entities that the model has and does not train, see
            `with_entities`; 0 for a model that takes entities as vectors.
        layer_types: list of `"sim"` (tokens alone, as in BERT), `"mix"` (entities are fused with
            the tokens) or `"norm"` (and attend to each other before), one per block; blocks that it
            does not reach are `"sim"`. None for the paper's: the lower half `"sim"`, of which the
            last is `"mix"`, then `"norm"`.
        dropout, attention_dropout, activation, layer_norm_epsilon: see `BertBackbone`; they are of
            both streams.
        max_sequence_length, num_segments: int. Positions and segments that have an embedding.
        use_pooler: bool. False for a checkpoint that has no weights for `pooled_output`.
        dtype: a dtype policy or its name, such as `"mixed_bfloat16"`.

    Call: `backbone({"token_ids": …, "segment_ids": …, "padding_mask": …, "entity_ids": …})`, each
    (B, S) int32, with a table: `entity_ids` are rows of it at the first token of each mention, and
    -1 elsewhere. Without a table, `entity_embeddings` (B, S, E) float32 and `entity_mask` (B, S)
    stand in for them: the mask is 1 at the first token of each mention, and, as in the authors'
    code, at the first token of the text, whose entity is the zero vector. All but the first are
    optional; by default, there are no entities. Returns what `BertBackbone` does.

    Raw texts get their entities from an `EntityTokenizer`, which finds mentions in them.

    Raises:
        ValueError: if a number of heads does not divide its width, or `layer_types` has more
            entries than `num_layers` or other ones.

    Example:

        backbone = keras_lm.models.ErnieBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32,
            entity_dim=8,
        )
        inputs = {
            "token_ids": [[2, 7, 3]],
            "entity_embeddings": np.ones((1, 3, 8)) * [[[0], [1], [0]]],
            "entity_mask": [[1, 1, 0]],
        }
        backbone(inputs)["pooled_output"].shape  # (1, 16)
        backbone = backbone.with_entities(np.ones((5, 8)))
        inputs = {"token_ids": [[2, 7, 3]], "entity_ids": [[-1, 4, -1]]}
        backbone(inputs)["pooled_output"].shape  # (1, 16)

    Source: Zhang et al. 2019, https://arxiv.org/abs/1905.07129, section 3; thunlp/ERNIE.
    """

    TEMPLATE = BertBackbone.TEMPLATE
    HEADS = BertBackbone.HEADS | {
        "entity": Head(
            EntityHead,
            "entity_head",
            entity_dim=from_backbone("entity_dim"),
            entity_table=from_backbone("entity_table"),
            activation=from_backbone("activation"),
            layer_norm_epsilon=from_backbone("layer_norm_epsilon"),
        ),
    }
    PRETRAINING_HEADS = BertBackbone.PRETRAINING_HEADS
    RANGES = {
        "entity_dim": Axis(),
        "num_entities": Whole(),
        "num_entity_heads": Whole(),
        "layer_types": LayerTypes(),
    }
    INNER = (*Backbone.INNER, "entity_hidden_states")
    packer_class = EntityPacker
    tokenizer_class = WordPieceTokenizer

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        entity_dim: int = 100,
        num_entity_heads: int = 4,
        layer_types: Sequence[str] | None = None,
        num_entities: int = 0,
        dropout: float = 0.1,
        attention_dropout: float | None = None,
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        max_sequence_length: int = 512,
        num_segments: int = 2,
        layer_norm_epsilon: float = 1e-12,
        use_pooler: bool = True,
        dtype: DType = None,
        name: str = "ernie_backbone",
    ):
        _check(layer_types, num_layers, num_entity_heads, entity_dim)
        entities = entity_inputs(num_entities, entity_dim)
        super().__init__(TOKENS_IN_SEGMENTS | entities, dtype, name)
        self.entity_table = None
        if num_entities:
            self.entity_table = EntityTable(
                num_entities, entity_dim, dtype=dtype, name="entity_table"
            )
        self.make_embeddings(hidden_dim, dtype)
        self.embedding_dropout = Dropout(dropout, dtype=dtype)
        self.attention_bias = PaddingBias()
        self.layer_types: list[str] = all_layer_types(layer_types, num_layers)
        self.blocks = [
            _make_block(kind, self.config, dtype, f"block_{i}")
            for i, kind in enumerate(self.layer_types)
        ]
        self.pooler = make_pooler(hidden_dim, dtype) if use_pooler else None
        self.finish()

    def forward(
        self,
        token_ids: Tensor,
        segment_ids: Tensor,
        padding_mask: Tensor,
        entity_embeddings: Tensor | None = None,
        entity_mask: Tensor | None = None,
        entity_ids: Tensor | None = None,
        training: bool | None = None,
    ) -> dict[str, Any]:
        if self.entity_table is not None:
            entity_embeddings = self.entity_table(entity_ids)
            is_entity = ops.cast(ops.not_equal(entity_ids, NO_ENTITY), "int32")
            entity_mask = ops.maximum(first_tokens(padding_mask), is_entity * padding_mask)
        x = self.embed(token_ids, segment_ids, padding_mask)
        hidden_states, entity_states = [x], [entity_embeddings]  # (B, S, D), (B, S, E)
        x, entities = self.embedding_dropout(x, training=training), entity_embeddings
        context = AttentionContext(bias=self.attention_bias(padding_mask))
        entity_context = entity_mask, self.attention_bias(entity_mask)
        for block, kind in zip(self.blocks, self.layer_types, strict=True):
            if kind == "sim":
                x, _ = block(x, context, training=training)
            else:
                x, entities = block(x, context, entities, entity_context, training=training)
            hidden_states.append(x)
            entity_states.append(entities)
        outputs = self.outputs_of(hidden_states, [context] * len(self.blocks))
        return outputs | {"entity_hidden_states": entity_states}

    def is_new_head(self, kind: str) -> bool:
        # The published checkpoint has this one, too.
        return kind != "entity" and super().is_new_head(kind)

    def forward_flops(self) -> float:
        width = self.layer_types.count("norm") * self.config["entity_dim"]
        return super().forward_flops() + 4 * self.max_sequence_length * width

    def with_entities(self, vectors: Tensor) -> Self:
        """Return a copy with a table of entities, in place of any other, which takes `entity_ids`.

        Args:
            vectors: (N, E), one row for each entity, such as those that
                `keras_lm.converters.read_entities` reads from the authors' `kg_embed`. Only those
                that texts may mention are needed: an export holds them all.

        Raises:
            ValueError: if the vectors have another width.

        Example:

            entities = keras_lm.converters.read_entities("kg_embed", ["Q7259", "Q84"])
            backbone = backbone.with_entities(entities.vectors)
        """
        vectors, width = np.asarray(vectors), self.config["entity_dim"]
        if vectors.ndim != 2 or vectors.shape[1] != width or not len(vectors):
            raise ValueError(
                f"vectors has the shape {vectors.shape}, but the model reads entity_dim={width}: "
                f"pass (N, {width}), a row for each entity, of the graph that it was trained with."
            )
        copy = self.from_config(self.get_config() | {"num_entities": len(vectors)})
        own = self.weights_by_path
        for path, variable in copy.weights_by_path.items():
            variable.assign(vectors if path.startswith("entity_table/") else own[path])
        return copy

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        rows, number = self.config["num_entities"], len(getattr(tokenizer, "entities", ()))
        if number and number != rows:
            raise ValueError(
                f"tokenizer finds {number} entities, and the backbone's table has {rows} rows: "
                "pass backbone.with_entities(vectors), of tokenizer.entities in their order."
            )

    def trimmed(self, tokenizer: Tokenizer) -> tuple[Backbone, Tokenizer] | None:
        mentioned = getattr(tokenizer, "mentioned_rows", None)
        if not mentioned or len(mentioned) == self.config["num_entities"]:
            return None
        vectors = np.asarray(self.entity_table.embeddings)[mentioned]
        return self.with_entities(vectors), tokenizer.with_rows(mentioned)

    def with_layers(self, layers: Sequence[int]) -> Self:
        layers = chosen_layers(self, layers)
        kinds = [self.layer_types[i] for i in layers]
        config = self.get_config() | {"num_layers": len(layers), "layer_types": kinds}
        copy = self.from_config(config)
        copy_layers(self, copy, layers)
        return copy


def all_layer_types(layer_types, num_layers):
    """Return the type of each block; see `layer_types` of `ErnieBackbone`."""
    if layer_types is None:
        lower = max(num_layers // 2, 1)
        return ["sim"] * (lower - 1) + ["mix"] + ["norm"] * (num_layers - lower)
    return [*layer_types] + ["sim"] * (num_layers - len(layer_types))


ErnieBackbone.SIZES = {"ernie_base_en_uncased": transformer_size(30522, 12, 768)}
