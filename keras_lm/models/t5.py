"""T5: an encoder-decoder that turns every task into text to text; and T5 1.1, FLAN-T5 and mT5.

Differs from the Transformer: norms come before each part of a block, scale only and without a mean;
nothing has a bias; scores are not scaled; instead of positions, scores have a bias by the distance
of two tokens, in buckets, one table for all blocks of a half; heads may be wider than D / N. T5
1.1 has a gated feed-forward network and an output matrix of its own.

Shapes: B batch, S source, T target, D hidden, N heads, H per head, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.layers import (
    CausalLMHead,
    CrossAttention,
    DecoderPreNormBlock,
    Dense,
    PreNormBlock,
    RelativePositionBias,
    SelfAttention,
    get_activation,
)
from keras_lm.layers.attention import bias_tensor, block_options
from keras_lm.layers.backend import Dropout
from keras_lm.layers.basic import RandomNormal, RMSNorm
from keras_lm.models.backbone import Head, from_backbone
from keras_lm.models.encoder_decoder import CachedEncoderDecoderBackbone, EncoderHalf
from keras_lm.models.sizes import transformer_size
from keras_lm.presets.argument_ranges import Axis
from keras_lm.tokenizers.sentence_piece import SentencePieceTokenizer
from keras_lm.utils.argument_types import DType, Tensor


def normal(stddev):
    """Return a new initialiser of normal numbers."""
    return RandomNormal(stddev=stddev)


class T5Attention:
    """A mixin before attention: no biases, no scale, and initial values that make up for it."""

    def make_scale(self):
        return 1.0

    def make_projection(self, units, name):
        width = self.num_heads * self.head_dim

        def initializer(shape, dtype=None):
            rows = shape[0]
            stddev = np.full(shape[1], rows**-0.5, "float32")
            if name.startswith("query"):
                stddev[:width] = (rows * self.head_dim) ** -0.5
            return ops.cast(keras.random.normal(shape) * stddev, dtype)

        return Dense(
            units,
            use_bias=False,
            kernel_initializer=initializer,
            dtype=self.dtype_policy,
            name=name,
        )

    def make_output(self, units):
        return Dense(
            units,
            use_bias=False,
            kernel_initializer=normal((self.num_heads * self.head_dim) ** -0.5),
            dtype=self.dtype_policy,
            name="output",
        )


class T5SelfAttention(T5Attention, SelfAttention):
    """Self-attention of T5."""


class T5CrossAttention(T5Attention, CrossAttention):
    """Attention of T5's decoder to its source."""


class T5FeedForward(keras.layers.Layer):
    """T5's feed-forward network, in T5 1.1 with a gate, with dropout inside and without biases.

    Args:
        intermediate_dim, activation: see `keras_lm.layers.FeedForward`.
        gated: bool. Multiply the activated half by a linear one.
        dropout: float. Fraction dropped between the two matrices.

    Source: Shazeer 2020, https://arxiv.org/abs/2002.05202, equation 6.
    """

    def __init__(self, intermediate_dim, activation, gated, dropout, **kwargs):
        super().__init__(**kwargs)
        self.intermediate_dim = intermediate_dim
        self.activation = activation
        self.gated = gated
        self.dropout_rate = dropout

    def build(self, input_shape):
        width = input_shape[-1]

        def dense(units, fan_in, name, activation=None):
            return Dense(
                units,
                use_bias=False,
                activation=activation,
                kernel_initializer=normal(fan_in**-0.5),
                dtype=self.dtype_policy,
                name=name,
            )

        activation = get_activation(self.activation)
        self.intermediate = dense(self.intermediate_dim, width, "intermediate", activation)
        self.intermediate.build(input_shape)
        self.gate = None
        if self.gated:
            self.gate = dense(self.intermediate_dim, width, "gate")
            self.gate.build(input_shape)
        self.dropout = Dropout(self.dropout_rate, dtype=self.dtype_policy)
        self.output_dense = dense(width, self.intermediate_dim, "output")
        self.output_dense.build((*input_shape[:-1], self.intermediate_dim))

    def call(self, x, training=None):
        inner = self.intermediate(x)
        if self.gate is not None:
            inner = inner * self.gate(x)
        return self.output_dense(self.dropout(inner, training=training))

    def compute_output_shape(self, input_shape):
        return input_shape


class T5Block:
    """A mixin before `PreNormBlock`: T5's norms, attention and feed-forward network."""

    attention_class = T5SelfAttention

    def __init__(self, gated=False, **arguments):
        super().__init__(**arguments)
        self.gated = gated

    def make_norm(self, name):
        return RMSNorm(self.layer_norm_epsilon, name=name, dtype=self.dtype_policy)

    def make_feedforward(self):
        return T5FeedForward(
            self.intermediate_dim,
            self.activation,
            self.gated,
            self.dropout_rate,
            name="feedforward",
            dtype=self.dtype_policy,
        )

    def add_feedforward(self, x, training=None):
        added = self.feedforward(self.read(x, self.feedforward_norm), training=training)
        return self.residual(x, self.feedforward_norm, added, training)

    def get_config(self):
        return super().get_config() | {"gated": self.gated}


class T5EncoderBlock(T5Block, PreNormBlock):
    """A block of T5's encoder."""


class T5DecoderBlock(T5Block, DecoderPreNormBlock):
    """A block of T5's decoder."""

    cross_attention_class = T5CrossAttention


class T5LMHead(CausalLMHead):
    """`CausalLMHead` over states that are scaled by D^-0.5.

    Args:
        scaled: bool, or None for `tied`. Whether they are.
        **arguments: see `CausalLMHead`.
    """

    def __init__(self, scaled=None, **arguments):
        super().__init__(**arguments)
        self.scaled = self.tied if scaled is None else scaled

    def make_initializer(self):
        return normal(1.0)

    def call(self, outputs, inputs=None, training=None):
        x = outputs["sequence_output"]
        if self.scaled:
            outputs = {"sequence_output": x * x.shape[-1] ** -0.5}
        return super().call(outputs)


def _make_positions(half, config, dtype):
    return RelativePositionBias(
        config["num_buckets"],
        config["num_heads"],
        config["max_distance"],
        bidirectional=half == "encoder",
        stddev=config["hidden_dim"] ** -0.5,
        dtype=dtype,
        name=f"{half}_positions",
    )


@keras.saving.register_keras_serializable("keras_lm")
class T5Backbone(CachedEncoderDecoderBackbone):
    """The encoder and the decoder of T5.

    Args:
        vocabulary_size, hidden_dim: int. V and D.
        num_layers: int. Blocks of the encoder.
        num_heads: int. Attention heads per block.
        intermediate_dim: int. Width inside a block's feed-forward network.
        head_dim: int, or None for D / N. Width of a head.
        num_decoder_layers: int, or None for as many as the encoder has.
        dropout: float. Fraction dropped in training: of embeddings, attention probabilities, inside
            of feed-forward networks, of what each part of a block adds, and of the outputs.
        activation: str. See `keras_lm.layers.get_activation`.
        gated: bool. Whether feed-forward networks have a gate, as in T5 1.1.
        tie_embeddings: bool. Whether the output matrix is the token embedding, as in T5 1.0.
        scale_outputs: bool, or None for `tie_embeddings`. Whether the states that the output matrix
            is multiplied with are scaled by D^-0.5, as in T5 1.0.
        num_buckets, max_distance: int. See `RelativePositionBias`.
        layer_norm_epsilon: float.
        dtype: a dtype policy or its name, such as `"mixed_bfloat16"`.

    Call: like `EncoderDecoderBackbone`; texts may have any length. The outputs are those after the
    final norms. ByT5's folders hold the same network; its tokenizer of bytes is not read.

    Example:

        backbone = keras_lm.models.T5Backbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
        )
        outputs = backbone({"encoder_token_ids": [[8, 6, 1]], "decoder_token_ids": [[0, 5]]})
        outputs["sequence_output"].shape  # (1, 2, 16)

    Source: Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 2.1; T5 1.1:
    google-research/text-to-text-transfer-transformer, `released_checkpoints.md`; mT5: Xue et al.
    2021, https://arxiv.org/abs/2010.11934, section 3.2.
    """

    tokenizer_class = SentencePieceTokenizer
    HEADS = {
        "seq2seq_lm": Head(
            T5LMHead,
            "token_head",
            token_embedding=from_backbone("token_embedding"),
            tied=from_backbone("tie_embeddings"),
            scaled=from_backbone("scale_outputs"),
        ),
    }
    PRETRAINING_HEADS = {"token_logits": "seq2seq_lm"}
    RANGES = {"num_buckets": Axis()}

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        head_dim: int | None = None,
        num_decoder_layers: int | None = None,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        gated: bool = False,
        tie_embeddings: bool = True,
        scale_outputs: bool | None = None,
        num_buckets: int | Sequence[int] = 32,
        max_distance: int = 128,
        layer_norm_epsilon: float = 1e-6,
        dtype: DType = None,
        name: str = "t5_backbone",
    ):
        super().__init__(dtype=dtype, name=name)
        self.token_embedding = keras.layers.ReversibleEmbedding(
            vocabulary_size,
            hidden_dim,
            embeddings_initializer=normal(1.0),
            dtype=dtype,
            name="token_embedding",
        )
        options = block_options(self.config | {"attention_dropout": None}, dtype)
        options |= {"head_dim": head_dim, "gated": gated}
        self.make_blocks(T5EncoderBlock, T5DecoderBlock, options)
        self.encoder_positions, self.decoder_positions = (
            _make_positions(half, self.config, dtype) for half in ("encoder", "decoder")
        )
        self.encoder_norm = RMSNorm(layer_norm_epsilon, dtype=dtype, name="encoder_norm")
        self.decoder_norm = RMSNorm(layer_norm_epsilon, dtype=dtype, name="decoder_norm")
        self.finish()

    def usual_token_ids(self) -> dict[str, int]:
        return {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}

    def encode(
        self, token_ids: Tensor, padding_mask: Tensor, training: bool | None = None
    ) -> dict[str, Any]:
        bias = self.encoder_positions(padding_mask) + self.padding_bias(padding_mask)
        encoded = self.through_encoder(self.token_embedding(token_ids), bias, training)
        x = self.dropout(encoded["encoder_sequence_output"], training=training)  # (B, S, D)
        return encoded | {"encoder_sequence_output": x}

    def decode(
        self, token_ids: Tensor, padding_mask: Tensor, cache: Any, training: bool | None = None
    ) -> dict[str, Any]:
        bias = bias_tensor(self.causal_bias(cache.padding_mask, cache.slots))
        bias = bias + self.decoder_positions(cache.padding_mask, cache.slots)
        decoded = self.through_decoder(self.token_embedding(token_ids), bias, cache, training)
        x = self.dropout(decoded["sequence_output"], training=training)  # (B, T, D)
        return decoded | {"sequence_output": x}


@keras.saving.register_keras_serializable("keras_lm")
class T5EncoderBackbone(EncoderHalf, T5Backbone):
    """The encoder of T5 alone, for all tasks that read texts. See `EncoderHalf`.

    Example:

        encoder = keras_lm.models.T5EncoderBackbone(100, 2, 2, hidden_dim=16, intermediate_dim=32)
        encoder({"token_ids": [[8, 6, 1]]})["sequence_output"].shape  # (1, 3, 16)
    """

    LEFT_OUT = rf"{EncoderHalf.LEFT_OUT}|^(transformer\.)?(decoder|lm_head)\."


T5Backbone.encoder_class = T5EncoderBackbone


def _size(num_layers, num_heads, hidden_dim, intermediate_dim, **others):
    sizes = (32128, num_layers, hidden_dim, num_heads, intermediate_dim)
    return transformer_size(*sizes, head_dim=64, **others)


_GATED = {"activation": "gelu_tanh", "gated": True, "tie_embeddings": False}
_SMALL = _size(8, 6, 512, 1024, **_GATED)
_BASE = _size(12, 12, 768, 2048, **_GATED)
_LARGE = _size(24, 16, 1024, 2816, **_GATED)
T5Backbone.SIZES = {
    "t5_small_multi": _size(6, 8, 512, 2048),
    "t5_base_multi": _size(12, 12, 768, 3072),
    "t5_large_multi": _size(24, 16, 1024, 4096),
    "t5_1.1_small": _SMALL,
    "t5_1.1_base": _BASE,
    "t5_1.1_large": _LARGE,
    "t5_1.1_xl": _size(24, 32, 2048, 5120, **_GATED),
    "t5_1.1_xxl": _size(24, 64, 4096, 10240, **_GATED),
    "flan_small_multi": _SMALL,
    "flan_base_multi": _BASE,
    "flan_large_multi": _LARGE,
}
T5Backbone.PUBLISHED = {
    "t5_small_multi": "hf://google-t5/t5-small",
    "t5_base_multi": "hf://google-t5/t5-base",
    "t5_large_multi": "hf://google-t5/t5-large",
    "t5_1.1_small": "hf://google/t5-v1_1-small",
    "t5_1.1_base": "hf://google/t5-v1_1-base",
    "t5_1.1_large": "hf://google/t5-v1_1-large",
    "t5_1.1_xl": "hf://google/t5-v1_1-xl",
    "t5_1.1_xxl": "hf://google/t5-v1_1-xxl",
    "flan_small_multi": "hf://google/flan-t5-small",
    "flan_base_multi": "hf://google/flan-t5-base",
    "flan_large_multi": "hf://google/flan-t5-large",
}
