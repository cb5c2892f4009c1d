"""tensor2tensor: the Transformer as its authors train it, from TensorFlow 1's checkpoints.

Differs from the Transformer: in its later settings, norms come before each part of a block, and
once more after each half; attention has no biases; a position's sines come first, then its cosines,
by other frequencies; token 0, padding and the decoder's start, is the zero vector; and one more
vector tells the encoder what kind of text to write.

Shapes: B batch, S source, T target, D hidden, V vocabulary.
"""

import functools
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_lm.layers import (
    CausalLMHead,
    CrossAttention,
    DecoderPostNormBlock,
    DecoderPreNormBlock,
    LayerNormalization,
    PostNormBlock,
    PreNormBlock,
    SelfAttention,
    SinusoidalPositionEmbedding,
)
from keras_lm.layers.attention import block_options
from keras_lm.layers.basic import RandomNormal
from keras_lm.models.backbone import Head, from_backbone
from keras_lm.models.encoder_decoder import (
    CachedEncoderDecoderBackbone,
    EncoderHalf,
    make_token_embeddings,
)
from keras_lm.packers import Template
from keras_lm.tokenizers.subwords import SubwordTokenizer
from keras_lm.utils.argument_types import DType, Tensor

NUM_SPACES = 32


class WithoutBiases:
    """A mixin before attention: no biases."""

    has_biases = has_output_bias = False


class UnbiasedSelfAttention(WithoutBiases, SelfAttention):
    """Self-attention of tensor2tensor."""


class SourceAttention(WithoutBiases, CrossAttention):
    """Attention of tensor2tensor's decoder to its source."""


class EncoderPreNormBlock(PreNormBlock):
    """A block of tensor2tensor's encoder, as in `transformer_base`."""

    attention_class = UnbiasedSelfAttention


class EncoderPostNormBlock(PostNormBlock):
    """A block of tensor2tensor's encoder, as in `transformer_base_v1`."""

    attention_class = UnbiasedSelfAttention


class TargetPreNormBlock(DecoderPreNormBlock):
    """A block of tensor2tensor's decoder, as in `transformer_base`."""

    attention_class = UnbiasedSelfAttention
    cross_attention_class = SourceAttention


class TargetPostNormBlock(DecoderPostNormBlock):
    """A block of tensor2tensor's decoder, as in `transformer_base_v1`."""

    attention_class = UnbiasedSelfAttention
    cross_attention_class = SourceAttention


class TimingSignal(SinusoidalPositionEmbedding):
    """Positions of tensor2tensor: sines, then cosines, of wave lengths from 2π to 10,000 · 2π."""

    def build(self, input_shape):
        number = self.hidden_dim // 2
        frequency = 10000.0 ** -(np.arange(number) / max(number - 1, 1))
        angles = np.arange(self.max_sequence_length)[:, None] * frequency
        table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        self.embeddings = np.pad(table, [(0, 0), (0, self.hidden_dim % 2)]).astype("float32")


def _space_embedding(hidden_dim, initializer, dtype):
    return keras.layers.ReversibleEmbedding(
        NUM_SPACES,
        hidden_dim,
        embeddings_initializer=initializer,
        dtype=dtype,
        name="target_space_embedding",
    )


def _check_space(target_space):
    if target_space is not None and not 0 <= target_space < NUM_SPACES:
        raise ValueError(
            f"target_space={target_space!r} must be from 0 to {NUM_SPACES - 1}, or None."
        )


@keras.saving.register_keras_serializable("keras_lm")
class Tensor2TensorBackbone(CachedEncoderDecoderBackbone):
    """The encoder and the decoder of tensor2tensor's Transformer.

    Without the dropout inside of feed-forward networks, `relu_dropout`, in training.

    Args:
        vocabulary_size, hidden_dim: int. V and D.
        num_layers: int. Blocks of the encoder.
        num_heads: int. Attention heads per block; must divide D.
        intermediate_dim: int. Width inside a block's feed-forward network.
        num_decoder_layers: int, or None for as many as the encoder has.
        decoder_vocabulary_size: int, or None for one embedding of source and target.
        tie_embeddings: bool. Whether the output matrix is the target's embedding.
        pre_norm: bool. Normalise before each part of a block, and after each half, as
            `transformer_base` and `transformer_big`; False for after each part, as the paper and
            `transformer_base_v1`.
        target_space: int from 0 to 31, tensor2tensor's `SpaceID` of what is written; or None for a
            model without such vectors.
        dropout: float. Fraction dropped in training: of embeddings, and of what each part of a
            block adds.
        attention_dropout: float. Fraction dropped of the attention probabilities.
        max_sequence_length: int. Positions of a source, and of a target.
        layer_norm_epsilon: float.
        dtype: a dtype policy or its name, such as `"mixed_bfloat16"`.

    Call: like `EncoderDecoderBackbone`.

    Example:

        backbone = keras_lm.models.Tensor2TensorBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
        )
        outputs = backbone({"encoder_token_ids": [[8, 6, 1]], "decoder_token_ids": [[0, 5]]})
        outputs["sequence_output"].shape  # (1, 2, 16)

    Source: Vaswani et al. 2018, https://arxiv.org/abs/1803.07416; `models/transformer.py` in
    tensor2tensor.
    """

    TEMPLATE = Template(single="$A:0 <EOS>:0", pair="$A:0 <EOS>:0 $B:0 <EOS>:0")
    HEADS = {
        "seq2seq_lm": Head(
            CausalLMHead,
            "token_head",
            token_embedding=from_backbone("decoder_token_embedding"),
            tied=from_backbone("tie_embeddings"),
        ),
    }
    tokenizer_class = SubwordTokenizer

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        num_decoder_layers: int | None = None,
        decoder_vocabulary_size: int | None = None,
        tie_embeddings: bool = True,
        pre_norm: bool = True,
        target_space: int = 0,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        max_sequence_length: int = 512,
        layer_norm_epsilon: float = 1e-6,
        dtype: DType = None,
        name: str = "tensor2tensor_backbone",
    ):
        _check_space(target_space)
        super().__init__(dtype=dtype, name=name)
        initializer = functools.partial(RandomNormal, stddev=hidden_dim**-0.5)
        self.token_embedding, self.decoder_token_embedding = make_token_embeddings(
            vocabulary_size, decoder_vocabulary_size, hidden_dim, initializer, dtype
        )
        self.target_space_embedding = None
        if target_space is not None:
            self.target_space_embedding = _space_embedding(hidden_dim, initializer(), dtype)
        self.position_embedding = TimingSignal(
            max_sequence_length, hidden_dim, dtype=dtype, name="position_embedding"
        )
        blocks = EncoderPostNormBlock, TargetPostNormBlock
        if pre_norm:
            blocks = EncoderPreNormBlock, TargetPreNormBlock
        self.make_blocks(*blocks, block_options(self.config | {"activation": "relu"}, dtype))
        if pre_norm:
            self.encoder_norm, self.decoder_norm = (
                LayerNormalization(epsilon=layer_norm_epsilon, dtype=dtype, name=f"{half}_norm")
                for half in ("encoder", "decoder")
            )
        self.finish()

    def embed(
        self, embedding: keras.Layer, token_ids: Tensor, padding_mask: Tensor, start: Any = None
    ) -> Tensor:
        x = embedding(token_ids) * self.config["hidden_dim"] ** 0.5
        x = x * ops.expand_dims(ops.cast(ops.not_equal(token_ids, 0), x.dtype), 2)  # token 0: zeros
        return x + self.position_embedding(padding_mask, start)

    def encode(
        self, token_ids: Tensor, padding_mask: Tensor, training: bool | None = None
    ) -> dict[str, Any]:
        x = self.embed(self.token_embedding, token_ids, padding_mask)
        if self.target_space_embedding is not None:
            space = ops.full_like(token_ids[:, :1], self.config["target_space"])
            x = x + self.target_space_embedding(space)  # (B, 1, D)
        return self.through_encoder(x, self.padding_bias(padding_mask), training)


@keras.saving.register_keras_serializable("keras_lm")
class Tensor2TensorEncoderBackbone(EncoderHalf, Tensor2TensorBackbone):
    """The encoder of tensor2tensor's Transformer alone, for all tasks that read texts.

    See `EncoderHalf`.

    Example:

        encoder = keras_lm.models.Tensor2TensorEncoderBackbone(
            100, 2, 2, hidden_dim=16, intermediate_dim=32
        )
        encoder({"token_ids": [[8, 6, 1]]})["sequence_output"].shape  # (1, 3, 16)
    """

    TEMPLATE = Tensor2TensorBackbone.TEMPLATE
    LEFT_OUT = rf"{EncoderHalf.LEFT_OUT}|(^|/)body/decoder/|/(target_emb|softmax)/"


Tensor2TensorBackbone.encoder_class = Tensor2TensorEncoderBackbone
