"""SpanBERT: BERT's network, pretrained on masked spans, single texts and no second sentence.

Differs from BERT: the published checkpoints have no pooler; beside the masked-LM head there is one
that predicts a span's tokens from the two tokens around it, the span-boundary objective.

Shapes: B batch, S sequence, D hidden, V vocabulary, M spans per row, L longest span.
"""

import dataclasses
import functools
import re
from collections.abc import Callable

import keras
from keras import ops

from keras_lm.converters.converter import Derived
from keras_lm.layers import LayerNormalization, MaskedLMHead, get_activation, truncated_normal
from keras_lm.layers.backend import require, word_scores
from keras_lm.layers.basic import make_dense
from keras_lm.models.backbone import Head, from_backbone
from keras_lm.models.bert import BertBackbone
from keras_lm.presets.argument_ranges import Whole
from keras_lm.utils.argument_types import DType, Tensor

POSITION_DIM = 200  # as in the authors' code


class SpanBoundaryHead(keras.layers.Layer):
    """Logits of the tokens in spans, from the tokens left and right of each.

    The two vectors and one for the position in the span go through two layers (dense, activation,
    norm), the tied token embedding, and a bias of its own.

    Args:
        token_embedding: the backbone's `ReversibleEmbedding`; its transpose is the output matrix.
        max_span_length: int. L.
        activation, layer_norm_epsilon: see `PostNormBlock`.

    Call: `head(outputs, inputs)` → (B, M, L, V) float32 for `span_boundaries` (B, M, 2), the
    positions of the tokens left and right of each span. Without these in `inputs`, M is 0. With
    `span_places` (B, M) too, only the token at this place of the span is predicted: (B, M, 1, V).

    Raises:
        InvalidArgumentError: if a place is not below L, when the graph runs.

    Source: https://arxiv.org/abs/1907.10529, section 3.2, equations 1 to 3.
    """

    share_of_tokens = MaskedLMHead.share_of_tokens

    def __init__(
        self,
        token_embedding,
        max_span_length=20,
        activation="gelu",
        layer_norm_epsilon=1e-12,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.token_embedding = token_embedding
        self.max_span_length = max_span_length
        self.activation = activation
        self.layer_norm_epsilon = layer_norm_epsilon

    def build(self, outputs_shape, inputs_shape=None):
        hidden_dim = outputs_shape["sequence_output"][-1]
        self.positions = self.add_weight(
            name="positions",
            shape=(self.max_span_length, POSITION_DIM),
            initializer=truncated_normal(),
        )
        self.first = self._make_layer("first", 2 * hidden_dim + POSITION_DIM, hidden_dim)
        self.second = self._make_layer("second", hidden_dim, hidden_dim)
        rows = self.token_embedding.input_dim
        self.bias = self.add_weight(name="bias", shape=(rows,), initializer="zeros")

    def _make_layer(self, name, input_dim, output_dim):
        dense = make_dense(
            f"{name}_dense",
            output_dim,
            self.dtype_policy,
            activation=get_activation(self.activation),
        )
        dense.build((None, None, None, input_dim))
        norm = LayerNormalization(
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name=f"{name}_norm"
        )
        norm.build((None, None, None, output_dim))
        return dense, norm

    def call(self, outputs, inputs=None, training=None):
        states = outputs["sequence_output"]
        rows = ops.shape(states)[0]
        boundaries = (inputs or {}).get("span_boundaries")
        if boundaries is None:
            boundaries = ops.zeros((rows, 0, 2), "int32")
        boundaries = ops.convert_to_tensor(boundaries, "int32")
        positions = self._read_positions((inputs or {}).get("span_places"))
        spans, length = ops.shape(boundaries)[1], positions.shape[2]
        ends = ops.take_along_axis(states, ops.reshape(boundaries, (rows, -1, 1)), axis=1)
        ends = ops.reshape(ends, (rows, spans, 1, 2 * states.shape[-1]))  # left, right
        positions = ops.cast(positions, ends.dtype)
        x = ops.concatenate(
            [
                ops.broadcast_to(ends, (rows, spans, length, ends.shape[-1])),
                ops.broadcast_to(positions, (rows, spans, length, POSITION_DIM)),
            ],
            axis=-1,
        )
        for dense, norm in (self.first, self.second):
            x = norm(dense(x))  # (B, M, L, D)
        x = word_scores(x, self.token_embedding.embeddings)
        return x + ops.cast(self.bias, "float32")

    def _read_positions(self, places):
        """Return the vectors of all places, (1, 1, L, 200), or of those given, (B, M, 1, 200)."""
        if places is None:
            return self.positions[None, None]
        require(
            places < self.max_span_length,
            f"span_places exceeds the head's max_span_length={self.max_span_length}: predict the "
            "first tokens of a span, up to this number.",
        )
        return ops.take(self.positions, places, axis=0)[:, :, None]


@keras.saving.register_keras_serializable("keras_lm")
class SpanBertBackbone(BertBackbone):
    """The encoder of SpanBERT, called like `BertBackbone`.

    Args:
        max_span_length: int. Positions that the head of the span-boundary objective knows.
        Other arguments: as `BertBackbone`.

    Example:

        backbone = keras_lm.models.SpanBertBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
        )
        backbone({"token_ids": [[2, 7, 3]]})["sequence_output"].shape  # (1, 3, 16)

    Source: Joshi et al. 2019, https://arxiv.org/abs/1907.10529, section 3.
    """

    HEADS = BertBackbone.HEADS | {
        "span_boundary": Head(
            SpanBoundaryHead,
            "span_boundary_head",
            token_embedding=from_backbone("token_embedding"),
            max_span_length=from_backbone("max_span_length"),
            activation=from_backbone("activation"),
            layer_norm_epsilon=from_backbone("layer_norm_epsilon"),
        ),
    }
    PRETRAINING_HEADS = {"token_logits": "token", "span_boundary_logits": "span_boundary"}
    PRETRAINING_OBJECTIVES = {"token": "MaskedSpans"}
    RANGES = {"max_span_length": Whole()}

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        dropout: float = 0.1,
        attention_dropout: float | None = None,
        activation: str | Callable[[Tensor], Tensor] = "gelu",
        max_sequence_length: int = 512,
        num_segments: int = 2,
        layer_norm_epsilon: float = 1e-12,
        use_pooler: bool = False,
        max_span_length: int = 20,
        dtype: DType = None,
        name: str = "span_bert_backbone",
    ):
        others = {k: v for k, v in self.config.items() if k != "max_span_length"}
        super().__init__(**others, dtype=dtype, name=name)


SpanBertBackbone.SIZES = {
    "span_bert_base_en": BertBackbone.SIZES["bert_base_en"] | {"use_pooler": False},
    "span_bert_large_en": BertBackbone.SIZES["bert_large_en"] | {"use_pooler": False},
}
SpanBertBackbone.PUBLISHED = {
    "span_bert_base_en": "hf://SpanBERT/spanbert-base-cased",
    "span_bert_large_en": "hf://SpanBERT/spanbert-large-cased",
}


_BERT = BertBackbone.CONVERTERS["huggingface"]
_HEAD = "cls.pair_target_predictions"
HUGGINGFACE_NAMES = dataclasses.replace(
    _BERT.names,
    names=_BERT.names.names
    | {
        "span_boundary_head/positions": f"{_HEAD}.position_embeddings.weight",
        "span_boundary_head/first_dense": f"{_HEAD}.mlp_layer_norm.linear1",
        "span_boundary_head/first_norm": f"{_HEAD}.mlp_layer_norm.layer_norm1",
        "span_boundary_head/second_dense": f"{_HEAD}.mlp_layer_norm.linear2",
        "span_boundary_head/second_norm": f"{_HEAD}.mlp_layer_norm.layer_norm2",
        "span_boundary_head/bias": f"{_HEAD}.bias",
    },
    spellings={".gamma": ".weight", ".beta": ".bias"},
    copies=_BERT.names.copies | {f"{_HEAD}.decoder.weight": "embeddings.word_embeddings.weight"},
)


def _longest_span(config, tensors):
    table = HUGGINGFACE_NAMES.names["span_boundary_head/positions"]
    return tensors.shape(table)[0] if table in tensors else 20


_CONFIG = dataclasses.replace(
    _BERT.config, rules=_BERT.config.rules | {"max_span_length": Derived(_longest_span)}
)


SpanBertBackbone.CONVERTERS = {
    "huggingface": dataclasses.replace(
        _BERT,
        # With its own head it is recognised; without, it is a BERT that must be asked for as this.
        matches=functools.partial(_BERT.matches, own=re.escape(f"{_HEAD}.bias")),
        config=_CONFIG,
        names=HUGGINGFACE_NAMES,
    )
}
