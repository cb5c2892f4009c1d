"""EuroBERT: a multilingual encoder of Llama's building blocks, for texts of up to 8,192 tokens.

Differs from BERT: norms come before each part of a block, scale only and without a mean; nothing
has a bias but the heads of tasks; instead of learned positions, queries and keys are rotated by
theirs; several heads of queries may share one of keys and values; feed-forward networks have a
gate; the masked LM is one matrix, not the token embedding, and has nothing before it; there are no
segments, no norm of the embedding, and no pooler.

Shapes: B batch, S sequence, D hidden, N heads, K heads of keys and values, H per head, V tokens.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.layers import (
    AttentionContext,
    EachTokenClassifier,
    MaskedLMHead,
    PaddingBias,
    PreNormBlock,
    SelfAttention,
    SpanHead,
    truncated_normal,
)
from keras_lm.layers.attention import through_blocks
from keras_lm.layers.backend import word_scores
from keras_lm.layers.basic import (
    RMSNorm,
    at_masks,
    first_real_token,
    make_dense,
    make_logits,
    make_token_embedding,
    mean_of_real_tokens,
)
from keras_lm.layers.gated import GatedBlock
from keras_lm.layers.rotary import RotaryPositions, check_halves, rotate
from keras_lm.models.backbone import TOKENS, Backbone, Head, from_backbone
from keras_lm.models.sizes import transformer_size
from keras_lm.packers import Template
from keras_lm.presets.argument_ranges import Axis, Whole
from keras_lm.tokenizers.byte_pair import BytePairTokenizer
from keras_lm.utils.argument_types import DType, Tensor

POOLINGS = {"bos": "first", "mean": "mean", "late": "late"}  # Hugging Face's names → ours


class GroupedSelfAttention(SelfAttention):
    """Rotary self-attention without biases, in which groups of heads share keys and values.

    Queries have a kernel (D, N·H) of their own; keys and values come from one of (D, 2·K·H).

    Args:
        num_key_value_heads: int, K, which divides N.
        Other arguments: as `SelfAttention`.

    Source: Ainslie et al. 2023, https://arxiv.org/abs/2305.13245, section 2.2.
    """

    has_biases = has_output_bias = False

    def __init__(self, *args, num_key_value_heads, **kwargs):
        super().__init__(*args, **kwargs)
        self.num_key_value_heads = num_key_value_heads

    def build(self, input_shape):
        width = self.set_widths(input_shape[-1])
        self.query = self.make_projection(width, "query")
        self.query.build(input_shape)
        units = 2 * self.num_key_value_heads * self.head_dim
        self.key_value = self.make_projection(units, "key_value")
        self.key_value.build(input_shape)
        self.build_output(input_shape[-1])

    def project(self, x, context):
        (query,) = self.split_heads(self.query(x), 1)
        key, value = self.keys_and_values(x)
        key = rotate(key, *context.positions)
        return rotate(query, *context.positions), self.for_each_head(key), self.for_each_head(value)

    def keys_and_values(self, x):
        """Return the shared keys and values of `x` (B, S, D), (B, K, S, H) each."""
        batch, length = ops.shape(x)[0], ops.shape(x)[1]
        heads = 2 * self.num_key_value_heads
        x = ops.reshape(self.key_value(x), (batch, length, heads, self.head_dim))
        return ops.split(ops.transpose(x, (0, 2, 1, 3)), 2, axis=1)

    def for_each_head(self, x):
        """Return (B, K, S, H) as (B, N, S, H): each head's own."""
        group = self.num_heads // self.num_key_value_heads
        if group == 1:
            return x
        return ops.take(x, np.repeat(np.arange(self.num_key_value_heads), group), axis=1)


class EuroBertBlock(GatedBlock, PreNormBlock):
    """A block of EuroBERT.

    Args:
        num_key_value_heads: int, see `GroupedSelfAttention`.
        Other arguments: as `PreNormBlock`.
    """

    def __init__(self, num_key_value_heads, **arguments):
        super().__init__(**arguments)
        self.num_key_value_heads = num_key_value_heads

    def make_attention(self):
        return GroupedSelfAttention(
            self.num_heads,
            self.attention_dropout,
            self.output_stddev,
            self.head_dim,
            num_key_value_heads=self.num_key_value_heads,
            name="attention",
            dtype=self.dtype_policy,
        )

    def make_norm(self, name):
        return RMSNorm(self.layer_norm_epsilon, name=name, dtype=self.dtype_policy)


class EuroBertClassifier(keras.layers.Layer):
    """Dense, GELU and logits (B, classes) float32, of one vector of a text or as a mean.

    Args:
        num_classes: int.
        pooling: str. `"late"` is the mean of the logits of all real tokens; `"first"` and `"mean"`
            are the logits of the first real token, and of the mean of the real tokens.
    """

    uses_pooler = False

    def __init__(self, num_classes, pooling="late", **kwargs):
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.pooling = pooling

    def build(self, outputs_shape, inputs_shape=None):
        shape = outputs_shape["sequence_output"]
        self.dense = make_dense("dense", shape[-1], self.dtype_policy, activation="gelu")
        self.dense.build(shape)
        self.logits = make_logits(self.num_classes, self.dtype_policy)
        self.logits.build(shape)

    def call(self, outputs, inputs=None, training=None):
        x, mask = outputs["sequence_output"], (inputs or {}).get("padding_mask")
        if self.pooling == "late":
            return mean_of_real_tokens(self.logits(self.dense(x)), mask)
        read = first_real_token if self.pooling == "first" else mean_of_real_tokens
        return self.logits(self.dense(read(x, mask)))


class EuroBertTokenHead(MaskedLMHead):
    """Logits of masked tokens: the product with a matrix of its own, and nothing else.

    Args:
        token_embedding: the backbone's `ReversibleEmbedding`.
        tied: bool. Whether its transpose is the matrix.
    """

    share_of_tokens = 0.5

    def __init__(self, token_embedding, tied=False, **kwargs):
        super().__init__(token_embedding, **kwargs)
        self.tied = tied

    def build(self, outputs_shape, inputs_shape=None):
        if not self.tied:
            self.own = self.add_weight(
                name="embeddings",
                shape=(self.token_embedding.input_dim, self.token_embedding.output_dim),
                initializer=truncated_normal(),
            )

    def call(self, outputs, inputs=None, training=None):
        x = at_masks(outputs, inputs)
        return word_scores(x, self.token_embedding.embeddings if self.tied else self.own)


def _check_arguments(arguments):
    pooling, num_heads = arguments["classifier_pooling"], arguments["num_heads"]
    if pooling not in POOLINGS.values():
        known = ", ".join(map(repr, POOLINGS.values()))
        raise ValueError(f"classifier_pooling={pooling!r}: pass one of {known}.")
    number = arguments["num_key_value_heads"] or num_heads
    if num_heads % number:
        raise ValueError(
            f"num_key_value_heads={number} does not divide num_heads={num_heads}, and each must "
            "serve the same number of heads: choose a divisor, or None."
        )
    check_halves(num_heads, arguments["hidden_dim"], arguments["head_dim"])


@keras.saving.register_keras_serializable("keras_lm")
class EuroBertBackbone(Backbone):
    """The encoder of EuroBERT. It is called like `BertBackbone`, without segments or a pooler.

    Args:
        vocabulary_size, num_layers, hidden_dim: int. V, the number of blocks, and D.
        num_heads: int, N. Heads of queries per block.
        intermediate_dim: int. Width of a feed-forward network after its gate.
        num_key_value_heads: int, K, or None for N. Heads of keys and values; each serves N / K
            heads of queries.
        head_dim: int, H, an even number, or None for D / N.
        rope_max_wavelength: float. The base of the angles of positions.
        dropout: float. Fraction of the attention probabilities dropped in training; nothing else
            is.
        activation: str. See `keras_lm.layers.get_activation`.
        classifier_pooling: str. How classifiers of texts become one answer: `"late"`, the mean of
            the logits of all tokens; `"first"`, those of the first token; `"mean"`, those of the
            mean of all tokens.
        tie_embeddings: bool. Whether the masked LM's matrix is the token embedding.
        max_sequence_length: int.
        layer_norm_epsilon: float.
        dtype: a dtype policy or its name, such as `"mixed_bfloat16"`.

    Raises:
        ValueError: if `num_key_value_heads` does not divide `num_heads`, heads are of an odd width,
            or `classifier_pooling` is unknown.

    Example:

        backbone = keras_lm.models.EuroBertBackbone(
            vocabulary_size=100, num_layers=2, num_heads=4, hidden_dim=16, intermediate_dim=24,
            num_key_value_heads=2,
        )
        backbone({"token_ids": [[2, 7, 3]]})["sequence_output"].shape  # (1, 3, 16)

    Source: Boizard et al. 2025, https://arxiv.org/abs/2503.05500, section 2; the network is Hugging
    Face's `modeling_eurobert.py`.
    """

    TEMPLATE = Template(single="<s>:0 $A:0 </s>:0", pair="<s>:0 $A:0 </s>:0 $B:0 </s>:0")
    HEADS = {
        "classification": Head(
            EuroBertClassifier, "classifier", pooling=from_backbone("classifier_pooling")
        ),
        "multiple_choice": Head(
            EuroBertClassifier,
            "classifier",
            num_classes=1,
            pooling=from_backbone("classifier_pooling"),
        ),
        "token_classification": Head(EachTokenClassifier, "classifier", dropout=0.0),
        "question_answering": Head(SpanHead, "span_head"),
        "token": Head(
            EuroBertTokenHead,
            "token_head",
            token_embedding=from_backbone("token_embedding"),
            tied=from_backbone("tie_embeddings"),
        ),
    }
    # Positions are rotations: no tensor has an axis of them.
    RANGES = {"max_sequence_length": Whole(), "num_key_value_heads": Axis(is_optional=True)}
    RANGES |= {"head_dim": Axis(is_optional=True)}
    PRETRAINING_HEADS = {"token_logits": "token"}
    tokenizer_class = BytePairTokenizer

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        num_key_value_heads: int | None = None,
        head_dim: int | None = None,
        rope_max_wavelength: float = 250000.0,
        dropout: float = 0.0,
        activation: str | Callable[[Tensor], Tensor] = "silu",
        classifier_pooling: str = "late",
        tie_embeddings: bool = False,
        max_sequence_length: int = 8192,
        layer_norm_epsilon: float = 1e-5,
        dtype: DType = None,
        name: str = "eurobert_backbone",
    ):
        super().__init__(TOKENS, dtype, name)
        _check_arguments(self.config)
        self.token_embedding = make_token_embedding(vocabulary_size, hidden_dim, dtype)
        self.attention_bias = PaddingBias()
        self.positions = RotaryPositions(head_dim or hidden_dim // num_heads, rope_max_wavelength)
        self.blocks = [
            EuroBertBlock(
                num_key_value_heads=num_key_value_heads or num_heads,
                num_heads=num_heads,
                intermediate_dim=intermediate_dim,
                attention_dropout=dropout,
                activation=activation,
                layer_norm_epsilon=layer_norm_epsilon,
                head_dim=head_dim,
                dtype=dtype,
                name=f"block_{i}",
            )
            for i in range(num_layers)
        ]
        self.final_norm = RMSNorm(layer_norm_epsilon, dtype=dtype, name="final_norm")
        self.finish()

    def forward(
        self, token_ids: Tensor, padding_mask: Tensor, training: bool | None = None
    ) -> dict[str, Any]:
        x = self.token_embedding(token_ids)  # (B, S, D)
        context = AttentionContext(
            bias=self.attention_bias(padding_mask), positions=self.positions(padding_mask)
        )
        *states, last = through_blocks(self.blocks, x, context, training)
        return self.outputs_of([x, *states, self.final_norm(last)], [context] * len(self.blocks))


EuroBertBackbone.SIZES = {
    "eurobert_210m": transformer_size(128256, 12, 768, 12, 3072),
    "eurobert_610m": transformer_size(128256, 26, 1152, 18, 4096) | {"num_key_value_heads": 6},
    "eurobert_2.1b": transformer_size(128256, 32, 2304, 18, 6144) | {"num_key_value_heads": 6},
}
EuroBertBackbone.PUBLISHED = {
    "eurobert_210m": "hf://EuroBERT/EuroBERT-210m",
    "eurobert_610m": "hf://EuroBERT/EuroBERT-610m",
    "eurobert_2.1b": "hf://EuroBERT/EuroBERT-2.1B",
}
