"""The layers of DeBERTa.

Shapes: B batch, S sequence, P = 2·S distances of two tokens, K buckets of distances, D hidden, N
heads, H per head.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.layers import (
    FirstTokenClassifier,
    LayerNormalization,
    PaddingBias,
    PostNormBlock,
    SelfAttention,
    get_activation,
    truncated_normal,
)
from keras_lm.layers.backend import Dropout, matmul_transposed
from keras_lm.layers.basic import make_dense
from keras_lm.models.electra import ReplacedTokenHead

# Far below `layers.masks.MASKED`: what sees nothing attends to all tokens alike.
UNSEEN = -1e30


class PairBias(PaddingBias):
    """Turn a padding mask (B, S) into attention's additive bias, (B, 1, S, S) float32.

    Padding is not seen, and does not see: it attends to all tokens alike, as in the reference.
    """

    def call(self, padding_mask):
        visible = ops.cast(padding_mask, "float32")
        visible = ops.expand_dims(visible, 1) * ops.expand_dims(visible, 2)
        return ops.expand_dims((1.0 - visible) * UNSEEN, 1)

    def compute_output_spec(self, padding_mask):
        batch, length = padding_mask.shape
        return keras.KerasTensor((batch, 1, length, length), dtype="float32")


class MaskedNormalization(LayerNormalization):
    """`LayerNormalization`, and zeros at padding: `layer(x, padding_mask)`."""

    def call(self, x, padding_mask):
        mask = ops.expand_dims(ops.cast(padding_mask, self.compute_dtype), 2)  # (B, S, 1)
        return super().call(x) * mask

    def compute_output_spec(self, x, padding_mask):
        return keras.KerasTensor(x.shape, self.compute_dtype)


class DistanceEmbedding(keras.layers.Layer):
    """A vector for each bucket of distances between two tokens, for all layers.

    Up to half of `bucket_size`, each distance to either side has a bucket of its own; longer ones
    share buckets whose width grows with the logarithm of the distance.

    Args:
        hidden_dim: int, D.
        max_sequence_length: int. The longest text.
        max_distance: int. The distance from which on all are alike.
        bucket_size: int. Buckets to either side, or None for one to each distance: then as many as
            `max_distance`.
        layer_norm_epsilon: float, or None for vectors that are not normalised.

    Call: `layer(padding_mask)` for (B, S); returns a dict of `vectors` (1, K, D), and `buckets`
    (P,) int32 of the distances S − 1, S − 2, … −S of a query to the keys from first to last. (The
    last is longer than there is any: see `shift`.)

    Source: https://arxiv.org/abs/2006.03654, section 3.1; microsoft/DeBERTa, `da_utils.py`.
    """

    def __init__(
        self,
        hidden_dim: int,
        max_sequence_length: int,
        max_distance: int,
        bucket_size: int | None = None,
        layer_norm_epsilon: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        self.max_sequence_length = max_sequence_length
        self.max_distance = max_distance
        self.bucket_size = bucket_size
        self.layer_norm_epsilon = layer_norm_epsilon

    def build(self, input_shape):
        span = self.bucket_size or self.max_distance
        self.embeddings = self.add_weight(
            name="embeddings", shape=(2 * span, self.hidden_dim), initializer=truncated_normal()
        )
        self.norm = None
        if self.layer_norm_epsilon is not None:
            self.norm = LayerNormalization(
                epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name="norm"
            )
            self.norm.build((1, 2 * span, self.hidden_dim))
        distance = np.arange(self.max_sequence_length + 1)
        if self.bucket_size is not None:
            distance = log_buckets(distance, self.bucket_size, self.max_distance)
        distance = np.concatenate([distance[-2:0:-1], -distance])
        self.buckets = np.clip(distance + span, 0, 2 * span - 1).astype("int32")

    def call(self, padding_mask):
        length = ops.shape(padding_mask)[1]
        vectors = ops.expand_dims(ops.cast(self.embeddings, self.compute_dtype), 0)
        vectors = vectors if self.norm is None else self.norm(vectors)
        places = ops.arange(2 * length, dtype="int32") + (self.max_sequence_length - length)
        return {"vectors": vectors, "buckets": ops.take(self.buckets, places, axis=0)}

    def compute_output_spec(self, padding_mask):
        shape = (1, *self.embeddings.shape)
        return {
            "vectors": keras.KerasTensor(shape, self.compute_dtype),
            "buckets": keras.KerasTensor((None,), "int32"),
        }

    def get_config(self):
        return super().get_config() | {
            "hidden_dim": self.hidden_dim,
            "max_sequence_length": self.max_sequence_length,
            "max_distance": self.max_distance,
            "bucket_size": self.bucket_size,
            "layer_norm_epsilon": self.layer_norm_epsilon,
        }


def log_buckets(distance, bucket_size, max_distance):
    """Return the buckets of distances from 0 on, an array, in the arithmetic of the reference."""
    middle = bucket_size // 2
    distance = np.asarray(distance)
    one = np.float32
    longer = np.maximum(distance, middle + 1).astype("float32") / one(middle)
    share = np.log(longer) / np.log(one((max_distance - 1) / middle)) * one(middle - 1)
    return np.where(distance <= middle, distance, np.ceil(share).astype("int64") + middle)


class DisentangledSelfAttention(SelfAttention):
    """Self-attention whose scores are of contents, and of contents and distances.

    A score is the sum of three products: of query and key; of the query and the distance's key
    (`"c2p"`, content to position); and of the distance's query and the key (`"p2c"`).

    Its context has as `positions` what `DistanceEmbedding` returns.

    Args:
        terms: list of str, of `"c2p"` and `"p2c"`.
        share_projections: bool. Whether queries and keys of distances have the kernels of those of
            contents.
        position_dropout: float. Fraction dropped of the vectors of distances in training.
        **kwargs: see `keras_lm.layers.SelfAttention`.

    Source: https://arxiv.org/abs/2006.03654, section 3.1, equation 4.
    """

    def __init__(self, *args, terms, share_projections, position_dropout, **kwargs):
        self.terms = terms
        super().__init__(*args, **kwargs)
        self.share_projections = share_projections
        self.position_dropout = Dropout(position_dropout, dtype=self.dtype_policy)

    def make_scale(self):
        return (self.head_dim * (1 + len(self.terms))) ** -0.5

    def build(self, input_shape):
        super().build(input_shape)
        self.position_key = self.position_query = None
        if not self.share_projections:
            width, shape = self.num_heads * self.head_dim, (1, None, input_shape[-1])
            if "c2p" in self.terms:
                self.position_key = self.make_projection(width, "position_key")
                self.position_key.build(shape)
            if "p2c" in self.terms:
                self.position_query = self.make_projection(width, "position_query")
                self.position_query.build(shape)

    def forward(self, x, context, training=None):
        vectors = self.position_dropout(context.positions["vectors"], training=training)
        positions = context.positions | {"vectors": vectors}
        return super().forward(x, context._replace(positions=positions), training)

    def project(self, x, context):
        query, key, value = super().project(x, context)
        query = query * self.scale
        return (query, self.scores_of_distances(query, key, **context.positions)), key, value

    def scores_of_distances(self, query, key, vectors, buckets):
        """Return the scores (B, N, S, S) of distances, given scaled queries and keys.

        Each query is multiplied with a vector for each distance that there is, not for each key:
        those of its keys are S of them in a row.
        """
        position_query, position_key = self.project_distances(vectors)  # (1, N, K, H) each
        scores = 0.0
        if "c2p" in self.terms:
            position_key = ops.take(position_key, buckets, axis=2)  # (1, N, P, H)
            scores = shift(matmul_transposed(query, position_key))
        if "p2c" in self.terms:
            # From the queries from first to last to a key: the other way, and again one more.
            buckets = ops.roll(ops.flip(buckets), -1)
            position_query = ops.take(position_query * self.scale, buckets, axis=2)
            of_keys = shift(matmul_transposed(key, position_query))  # keys first
            scores = scores + ops.transpose(of_keys, (0, 1, 3, 2))
        return scores

    def project_distances(self, vectors):
        if self.share_projections:
            query, key, _ = self.split_heads(self.query_key_value(vectors), 3)
            return query, key
        layers = self.position_query, self.position_key
        return [layer and self.split_heads(layer(vectors), 1)[0] for layer in layers]

    def raw_scores(self, query, key):
        query, of_distances = query
        return matmul_transposed(query, key) + of_distances

    def get_config(self):
        return super().get_config() | {
            "terms": self.terms,
            "share_projections": self.share_projections,
            "position_dropout": self.position_dropout.rate,
        }


def shift(scores):
    """Return (B, N, S, S) of (B, N, S, P): row i are the S columns from S − 1 − i on.

    Without the first ones, rows that are a column shorter run on, and begin one place earlier each.
    """
    batch, heads, rows = ops.shape(scores)[:3]
    scores = ops.reshape(scores, (batch, heads, rows * 2 * rows))
    # (The gradient of `ops.slice` is much quicker on TensorFlow than that of indexing.)
    scores = ops.slice(scores, (0, 0, rows - 1), (batch, heads, rows * (2 * rows - 1)))
    scores = ops.reshape(scores, (batch, heads, rows, 2 * rows - 1))
    return ops.slice(scores, (0, 0, 0, 0), (batch, heads, rows, rows))


class DisentangledBlock(PostNormBlock):
    """A `PostNormBlock` with `DisentangledSelfAttention`; `terms` and `share_projections` are its.

    Vectors of distances have the block's `dropout`.
    """

    def __init__(self, terms, share_projections, **kwargs):
        super().__init__(**kwargs)
        self.terms = terms
        self.share_projections = share_projections

    def make_attention(self):
        return DisentangledSelfAttention(
            self.num_heads,
            self.attention_dropout,
            terms=self.terms,
            share_projections=self.share_projections,
            position_dropout=self.dropout_rate,
            name="attention",
            dtype=self.dtype_policy,
        )

    def get_config(self):
        return super().get_config() | {
            "terms": self.terms,
            "share_projections": self.share_projections,
        }


class LocalConvolution(keras.layers.Layer):
    """A convolution of the embeddings over each token and its neighbours, beside the first block.

    Args:
        kernel_size: int, odd. How many tokens.
        activation: str. See `keras_lm.layers.get_activation`.
        dropout, layer_norm_epsilon: float.

    Call: `layer(x, residual, padding_mask)`, the embeddings and the first block's output, both
    (B, S, D), and (B, S); returns the normalised sum of `residual` and the convolution of `x`.

    Source: microsoft/DeBERTa, `bert.py`, `ConvLayer`.
    """

    def __init__(
        self,
        kernel_size: int,
        activation: str,
        dropout: float,
        layer_norm_epsilon: float,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.kernel_size = kernel_size
        self.activation = activation
        self.layer_norm_epsilon = layer_norm_epsilon
        self.dropout = Dropout(dropout, dtype=self.dtype_policy)

    def build(self, x_shape):
        self.dense = make_dense("dense", x_shape[-1], self.dtype_policy)
        self.dense.build((None, None, self.kernel_size * x_shape[-1]))
        self.norm = MaskedNormalization(
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name="norm"
        )
        self.norm.build(x_shape)

    def call(self, x, residual, padding_mask, training=None):
        length, beside = ops.shape(x)[1], self.kernel_size // 2
        x = ops.pad(x, [(0, 0), (beside, beside), (0, 0)])
        # A product of all neighbours at once.
        x = [x[:, first : first + length] for first in range(self.kernel_size)]
        x = self.dense(ops.concatenate(x, axis=2))
        x = x * ops.expand_dims(ops.cast(padding_mask, x.dtype), 2)
        x = get_activation(self.activation)(self.dropout(x, training=training))
        return self.norm(residual + x, padding_mask)

    def compute_output_spec(self, x, residual, padding_mask, training=None):
        return keras.KerasTensor(x.shape, self.compute_dtype)

    def get_config(self):
        return super().get_config() | {
            "kernel_size": self.kernel_size,
            "activation": self.activation,
            "dropout": self.dropout.rate,
            "layer_norm_epsilon": self.layer_norm_epsilon,
        }


# === Heads ===


@keras.saving.register_keras_serializable("keras_lm")
class ContextPooledClassifier(FirstTokenClassifier):
    """Dropout, dense, activation, dropout and logits on `[CLS]`.

    Args:
        num_classes: int.
        dropout: float. Fraction dropped after the activation.
        pooler_dropout: float. Fraction dropped of the first token's vector.
        activation: str. See `keras_lm.layers.get_activation`.

    Source: microsoft/DeBERTa, `pooling.py`, `ContextPooler`.
    """

    def __init__(self, num_classes, dropout=0.1, pooler_dropout=0.0, activation="gelu", **kwargs):
        super().__init__(num_classes, dropout, **kwargs)
        self.activation = activation
        self.pooler_dropout = Dropout(pooler_dropout, dtype=self.dtype_policy)

    def build(self, outputs_shape, inputs_shape=None):
        super().build(outputs_shape)
        self.pooler.activation = get_activation(self.activation)

    def call(self, outputs, inputs=None, training=None):
        first = self.pooler_dropout(outputs["sequence_output"][:, 0], training=training)
        return self.logits(self.dropout(self.pooler(first), training=training))

    def get_config(self):
        return super().get_config() | {
            "pooler_dropout": self.pooler_dropout.rate,
            "activation": self.activation,
        }


class ReplacedTokenByContextHead(ReplacedTokenHead):
    """One logit per token (B, S) float32, positive for a replaced token.

    It is norm, dense, activation and logit of the sum of a token's vector and that of `[CLS]`.

    Args:
        activation, layer_norm_epsilon: see `keras_lm.layers.PostNormBlock`.

    Source: DeBERTaV3, https://arxiv.org/abs/2111.09543, section 3.1; microsoft/DeBERTa,
    `replaced_token_detection_model.py`.
    """

    def __init__(self, activation="gelu", layer_norm_epsilon=1e-7, **kwargs):
        super().__init__(activation, **kwargs)
        self.layer_norm_epsilon = layer_norm_epsilon

    def build(self, outputs_shape, inputs_shape=None):
        shape = outputs_shape["sequence_output"]
        self.norm = LayerNormalization(
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name="norm"
        )
        self.norm.build(shape)
        super().build(outputs_shape)

    def call(self, outputs, inputs=None, training=None):
        x = outputs["sequence_output"]
        return super().call({"sequence_output": self.norm(x + x[:, :1])})
