"""Marian: the Transformer as OPUS-MT's translation models use it, from Hugging Face's folders.

Differs from the Transformer: a position's sines come first, then its cosines; logits have a bias;
embeddings are times √D only if a checkpoint says so; the feed-forward networks of OPUS-MT's models
have Swish, and the target starts with the padding token.

Shapes: B batch, S source, T target, D hidden, V vocabulary.
"""

from collections.abc import Callable
from typing import Any

import keras

from keras_lm.layers import (
    CausalLMHead,
    DecoderPostNormBlock,
    PostNormBlock,
    SinusoidalPositionEmbedding,
    truncated_normal,
)
from keras_lm.layers.attention import block_options
from keras_lm.models.backbone import Head, from_backbone
from keras_lm.models.encoder_decoder import (
    CachedEncoderDecoderBackbone,
    EncoderHalf,
    make_token_embeddings,
)
from keras_lm.tokenizers.marian import MarianTokenizer
from keras_lm.utils.argument_types import DType, Tensor


class MarianLMHead(CausalLMHead):
    """The next token's logits by the token embedding, and a bias.

    The bias is not trained, as in the reference, where it is a buffer: zeros in most checkpoints.
    """

    def build(self, outputs_shape, inputs_shape=None):
        self.bias = self.add_weight(
            name="bias",
            shape=(self.token_embedding.input_dim,),
            initializer="zeros",
            trainable=False,
            dtype="float32",
            autocast=False,
        )

    def call(self, outputs, inputs=None, training=None):
        return super().call(outputs) + self.bias


@keras.saving.register_keras_serializable("keras_lm")
class MarianBackbone(CachedEncoderDecoderBackbone):
    """The encoder and the decoder of Marian's Transformer.

    Args:
        vocabulary_size, hidden_dim: int. V and D.
        num_layers: int. Blocks of the encoder.
        num_heads: int. Attention heads per block; must divide D.
        intermediate_dim: int. Width inside a block's feed-forward network.
        num_decoder_layers: int, or None for as many as the encoder has.
        decoder_vocabulary_size: int, or None for one embedding of source, target and softmax. With
            a number, the target has an embedding of its own, which is that of the softmax too.
        scale_embedding: bool. Multiply embeddings by √D.
        dropout: float. Fraction dropped in training: of embeddings, and of what each part of a
            block adds.
        attention_dropout: float. Fraction dropped of the attention probabilities.
        activation: str. See `keras_lm.layers.get_activation`.
        max_sequence_length: int. Positions of a source, and of a target.
        layer_norm_epsilon: float.
        dtype: a dtype policy or its name, such as `"mixed_bfloat16"`.

    Call: like `EncoderDecoderBackbone`.

    Example:

        backbone = keras_lm.models.MarianBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
        )
        outputs = backbone({"encoder_token_ids": [[8, 6, 0]], "decoder_token_ids": [[99, 5]]})
        outputs["sequence_output"].shape  # (1, 2, 16)

    Source: Junczys-Dowmunt et al. 2018, https://arxiv.org/abs/1804.00344; Tiedemann and Thottingal
    2020, https://aclanthology.org/2020.eamt-1.61, for OPUS-MT.
    """

    HEADS = {
        "seq2seq_lm": Head(
            MarianLMHead,
            "token_head",
            token_embedding=from_backbone("decoder_token_embedding"),
        ),
    }
    tokenizer_class = MarianTokenizer
    generates_start = False

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        num_decoder_layers: int | None = None,
        decoder_vocabulary_size: int | None = None,
        scale_embedding: bool = True,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        activation: str | Callable[[Tensor], Tensor] = "silu",
        max_sequence_length: int = 512,
        layer_norm_epsilon: float = 1e-5,
        dtype: DType = None,
        name: str = "marian_backbone",
    ):
        super().__init__(dtype=dtype, name=name)
        self.token_embedding, self.decoder_token_embedding = make_token_embeddings(
            vocabulary_size, decoder_vocabulary_size, hidden_dim, truncated_normal, dtype
        )
        self.position_embedding = SinusoidalPositionEmbedding(
            max_sequence_length,
            hidden_dim,
            interleaved=False,
            dtype=dtype,
            name="position_embedding",
        )
        options = block_options(self.config, dtype)
        self.make_blocks(PostNormBlock, DecoderPostNormBlock, options)
        self.finish()

    def embed(
        self, embedding: keras.Layer, token_ids: Tensor, padding_mask: Tensor, start: Any = None
    ) -> Tensor:
        x = embedding(token_ids)
        if self.config["scale_embedding"]:
            x = x * self.config["hidden_dim"] ** 0.5
        return x + self.position_embedding(padding_mask, start)

    def usual_token_ids(self) -> dict[str, int]:
        last = (self.config["decoder_vocabulary_size"] or self.vocabulary_size) - 1
        return {"pad_token_id": last, "eos_token_id": 0, "decoder_start_token_id": last}


@keras.saving.register_keras_serializable("keras_lm")
class MarianEncoderBackbone(EncoderHalf, MarianBackbone):
    """The encoder of Marian's Transformer alone, for all tasks that read texts. See `EncoderHalf`.

    Example:

        encoder = keras_lm.models.MarianEncoderBackbone(
            100, 2, 2, hidden_dim=16, intermediate_dim=32
        )
        encoder({"token_ids": [[8, 6, 1]]})["sequence_output"].shape  # (1, 3, 16)
    """

    LEFT_OUT = rf"{EncoderHalf.LEFT_OUT}|^(model\.)?decoder\.|^lm_head\.|^final_logits_bias$"


MarianBackbone.encoder_class = MarianEncoderBackbone

_SIZE = {"num_layers": 6, "num_heads": 8, "hidden_dim": 512, "intermediate_dim": 2048}
MarianBackbone.SIZES = {
    "opus_mt_en_de": {"vocabulary_size": 58101, **_SIZE},
    "opus_mt_en_fr": {"vocabulary_size": 59514, **_SIZE},
}
MarianBackbone.PUBLISHED = {
    "opus_mt_en_de": "hf://Helsinki-NLP/opus-mt-en-de",
    "opus_mt_en_fr": "hf://Helsinki-NLP/opus-mt-en-fr",
}
