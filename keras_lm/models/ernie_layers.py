"""Layers of ERNIE (Tsinghua): the table of entities, its blocks, and its head of pretraining.

Shapes: B batch, S sequence, D hidden, E width of an entity, N entities, C candidates.
"""

import keras
from keras import ops

from keras_lm.layers import (
    Dense,
    LayerNormalization,
    PostNormBlock,
    get_activation,
    truncated_normal,
)
from keras_lm.layers.attention import SelfAttention
from keras_lm.layers.backend import matmul_transposed

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
        dense = Dense(
            output_shape[-1],
            kernel_initializer=truncated_normal(),
            dtype=self.dtype_policy,
            name=name,
        )
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
        self,
        entity_dim,
        entity_table=None,
        activation="gelu",
        layer_norm_epsilon=1e-12,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.entity_dim, self.entity_table = entity_dim, entity_table
        self.activation = activation
        self.layer_norm_epsilon = layer_norm_epsilon

    def build(self, outputs_shape, inputs_shape=None):
        shape = outputs_shape["sequence_output"]
        self.dense = Dense(
            self.entity_dim,
            activation=get_activation(self.activation),
            kernel_initializer=truncated_normal(),
            dtype=self.dtype_policy,
            name="dense",
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
