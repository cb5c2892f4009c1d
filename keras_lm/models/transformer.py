"""The Transformer of Vaswani et al.: the first encoder-decoder of attention alone.

Shapes: B batch, S source, T target, D hidden, V vocabulary.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras

from keras_lm.layers import (
    CausalLMHead,
    DecoderPostNormBlock,
    LayerNormalization,
    PostNormBlock,
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
from keras_lm.tokenizers.sentence_piece import SentencePieceTokenizer
from keras_lm.utils.argument_types import DType, Tensor


@keras.saving.register_keras_serializable("keras_lm")
class TransformerBackbone(CachedEncoderDecoderBackbone):
    """The encoder and the decoder of the Transformer.

    Args:
        vocabulary_size, hidden_dim: int. V and D.
        num_layers: int. Blocks of the encoder.
        num_heads: int. Attention heads per block; must divide D.
        intermediate_dim: int. Width inside a block's feed-forward network.
        num_decoder_layers: int, or None for as many as the encoder has.
        decoder_vocabulary_size: int, or None for one embedding of source, target and softmax. With
            a number, the target has an embedding of its own, which is that of the softmax too.
        dropout: float. Fraction dropped in training: of embeddings, and of what each part of a
            block adds.
        attention_dropout: float. Fraction dropped of the attention probabilities.
        activation: str. See `keras_lm.layers.get_activation`.
        final_norms: bool. Normalise once more after each half, as `torch.nn.Transformer` does.
        max_sequence_length: int. Positions of a source, and of a target.
        layer_norm_epsilon: float; tensor2tensor's by default.
        dtype: a dtype policy or its name, such as `"mixed_bfloat16"`.

    Call: like `EncoderDecoderBackbone`.

    Example:

        backbone = keras_lm.models.TransformerBackbone(
            vocabulary_size=100, num_layers=2, num_heads=2, hidden_dim=16, intermediate_dim=32
        )
        outputs = backbone({"encoder_token_ids": [[8, 6, 1]], "decoder_token_ids": [[0, 5]]})
        outputs["sequence_output"].shape  # (1, 2, 16)

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.
    """

    HEADS = {
        "seq2seq_lm": Head(
            CausalLMHead,
            "token_head",
            token_embedding=from_backbone("decoder_token_embedding"),
        ),
    }
    tokenizer_class = SentencePieceTokenizer

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        num_decoder_layers: int | None = None,
        decoder_vocabulary_size: int | None = None,
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        final_norms: bool = False,
        max_sequence_length: int = 512,
        layer_norm_epsilon: float = 1e-6,
        dtype: DType = None,
        name: str = "transformer_backbone",
    ):
        super().__init__(dtype=dtype, name=name)
        # Times √D, a vector begins with the length of a position's.
        initializer = functools.partial(RandomNormal, stddev=hidden_dim**-0.5)
        self.token_embedding, self.decoder_token_embedding = make_token_embeddings(
            vocabulary_size, decoder_vocabulary_size, hidden_dim, initializer, dtype
        )
        self.position_embedding = SinusoidalPositionEmbedding(
            max_sequence_length, hidden_dim, dtype=dtype, name="position_embedding"
        )
        options = block_options(self.config, dtype)
        self.make_blocks(PostNormBlock, DecoderPostNormBlock, options)
        if final_norms:
            self.encoder_norm, self.decoder_norm = (
                LayerNormalization(epsilon=layer_norm_epsilon, dtype=dtype, name=f"{half}_norm")
                for half in ("encoder", "decoder")
            )
        self.finish()

    def embed(
        self, embedding: keras.Layer, token_ids: Tensor, padding_mask: Tensor, start: Any = None
    ) -> Tensor:
        x = embedding(token_ids) * self.config["hidden_dim"] ** 0.5
        return x + self.position_embedding(padding_mask, start)


@keras.saving.register_keras_serializable("keras_lm")
class TransformerEncoderBackbone(EncoderHalf, TransformerBackbone):
    """The encoder of the Transformer alone, for all tasks that read texts. See `EncoderHalf`.

    Example:

        encoder = keras_lm.models.TransformerEncoderBackbone(
            100, 2, 2, hidden_dim=16, intermediate_dim=32
        )
        encoder({"token_ids": [[8, 6, 1]]})["sequence_output"].shape  # (1, 3, 16)
    """


TransformerBackbone.encoder_class = TransformerEncoderBackbone

# Tables 2 and 3 of the paper; its vocabularies of both languages, section 5.1.
_BASE = {"num_layers": 6, "num_heads": 8, "hidden_dim": 512, "intermediate_dim": 2048}
_BIG = {"num_layers": 6, "num_heads": 16, "hidden_dim": 1024, "intermediate_dim": 4096}
TransformerBackbone.SIZES = {
    "transformer_base_en_de": {"vocabulary_size": 37000, **_BASE, "dropout": 0.1},
    "transformer_base_en_fr": {"vocabulary_size": 32000, **_BASE, "dropout": 0.1},
    "transformer_big_en_de": {"vocabulary_size": 37000, **_BIG, "dropout": 0.3},
    "transformer_big_en_fr": {"vocabulary_size": 32000, **_BIG, "dropout": 0.1},
}
