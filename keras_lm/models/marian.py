"""Marian: the Transformer as OPUS-MT's translation models use it, from Hugging Face's folders.

Differs from the Transformer: a position's sines come first, then its cosines; logits have a bias;
embeddings are times √D only if a checkpoint says so; the feed-forward networks of OPUS-MT's models
have Swish, and the target starts with the padding token.

Shapes: B batch, S source, T target, D hidden, V vocabulary.
"""

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.converters.converter import (
    Activation,
    ConfigTable,
    Converter,
    Derived,
    Fixed,
    Key,
    match_score,
)
from keras_lm.converters.entries import Entries
from keras_lm.converters.names import PYTORCH_LEAVES, NameTable, transpose_kernels
from keras_lm.layers import (
    AttentionContext,
    CausalBias,
    CausalLMHead,
    DecoderPostNormBlock,
    PaddingBias,
    PostNormBlock,
    SinusoidalPositionEmbedding,
    truncated_normal,
)
from keras_lm.layers.backend import Dropout
from keras_lm.models.backbone import Head, from_backbone
from keras_lm.models.encoder_decoder import CachedEncoderDecoderBackbone, EncoderHalf
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

        def embedding(rows, name):
            return keras.layers.ReversibleEmbedding(
                rows,
                hidden_dim,
                embeddings_initializer=truncated_normal(),
                dtype=dtype,
                name=name,
            )

        self.token_embedding = self.decoder_token_embedding = embedding(
            vocabulary_size, "token_embedding"
        )
        if decoder_vocabulary_size is not None:
            self.decoder_token_embedding = embedding(
                decoder_vocabulary_size, "decoder_token_embedding"
            )
        self.position_embedding = SinusoidalPositionEmbedding(
            max_sequence_length,
            hidden_dim,
            interleaved=False,
            dtype=dtype,
            name="position_embedding",
        )
        self.dropout = Dropout(dropout, dtype=dtype)
        self.padding_bias, self.causal_bias = PaddingBias(), CausalBias()
        options = {
            "num_heads": num_heads,
            "intermediate_dim": intermediate_dim,
            "dropout": dropout,
            "attention_dropout": attention_dropout,
            "activation": activation,
            "layer_norm_epsilon": layer_norm_epsilon,
            "dtype": dtype,
        }
        self.encoder_blocks = [
            PostNormBlock(**options, name=f"encoder_block_{i}") for i in range(num_layers)
        ]
        number = num_layers if num_decoder_layers is None else num_decoder_layers
        self.decoder_blocks = [
            DecoderPostNormBlock(**options, name=f"decoder_block_{i}") for i in range(number)
        ]
        self.finish()

    def embed(
        self, embedding: keras.Layer, token_ids: Tensor, padding_mask: Tensor, start: Any = None
    ) -> Tensor:
        """Return the vectors (B, S, D) of tokens at their places; `start` as for positions."""
        x = embedding(token_ids)
        if self.config["scale_embedding"]:
            x = x * self.config["hidden_dim"] ** 0.5
        return x + self.position_embedding(padding_mask, start)

    def usual_token_ids(self):
        last = (self.config["decoder_vocabulary_size"] or self.vocabulary_size) - 1
        return {"pad_token_id": last, "eos_token_id": 0, "decoder_start_token_id": last}

    def encode(self, token_ids, padding_mask, training=None):
        x = self.embed(self.token_embedding, token_ids, padding_mask)
        hidden_states = [x]  # (B, S, D)
        x = self.dropout(x, training=training)
        context = AttentionContext(bias=self.padding_bias(padding_mask))
        for block in self.encoder_blocks:
            x, _ = block(x, context, training=training)
            hidden_states.append(x)
        return {
            "encoder_sequence_output": x,
            "encoder_hidden_states": hidden_states,
            "encoder_attention_contexts": [context] * len(self.encoder_blocks),
        }

    def decode(self, token_ids, padding_mask, cache, training=None):
        x = self.embed(self.decoder_token_embedding, token_ids, padding_mask, cache.start)
        hidden_states = [x]  # (B, T, D)
        x = self.dropout(x, training=training)
        bias = self.causal_bias(cache.padding_mask, cache.slots)
        contexts = cache.contexts(
            [bias] * len(self.decoder_blocks), self.padding_bias(cache.source_mask)
        )
        for block, context in zip(self.decoder_blocks, contexts, strict=True):
            x, kept = block(x, context, training=training)
            cache.keep(kept)
            hidden_states.append(x)
        return {
            "sequence_output": x,
            "cache": cache.state(),
            "hidden_states": hidden_states,
            "attention_contexts": contexts,
        }


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

# === Checkpoints ===

_NAMES = {
    "token_embedding": {"decoder_vocabulary_size": "encoder.embed_tokens", None: "shared"},
    "decoder_token_embedding": "decoder.embed_tokens",
    "token_head/bias": "final_logits_bias",
}
for _half in ("encoder", "decoder"):
    _ours, _theirs = f"{_half}_block_{{i}}", f"{_half}.layers.{{i}}"
    _NAMES |= {
        f"{_ours}/attention/query_key_value": tuple(
            f"{_theirs}.self_attn.{part}_proj" for part in "qkv"
        ),
        f"{_ours}/attention/output": f"{_theirs}.self_attn.out_proj",
        f"{_ours}/attention_norm": f"{_theirs}.self_attn_layer_norm",
        f"{_ours}/feedforward/intermediate": f"{_theirs}.fc1",
        f"{_ours}/feedforward/output": f"{_theirs}.fc2",
        f"{_ours}/feedforward_norm": f"{_theirs}.final_layer_norm",
    }
_CROSS = "decoder.layers.{i}.encoder_attn"
_NAMES |= {
    "decoder_block_{i}/cross_attention/query": f"{_CROSS}.q_proj",
    "decoder_block_{i}/cross_attention/key_value": (f"{_CROSS}.k_proj", f"{_CROSS}.v_proj"),
    "decoder_block_{i}/cross_attention/output": f"{_CROSS}.out_proj",
    "decoder_block_{i}/cross_attention_norm": f"{_CROSS}_layer_norm",
}


def _layout(path, array):
    return array.reshape(-1) if path == "token_head/bias" else transpose_kernels(path, array)


def _stored_layout(path, array, arguments):
    return array[np.newaxis] if path == "token_head/bias" else transpose_kernels(path, array)


def _sines(positions, hidden_dim):
    layer = SinusoidalPositionEmbedding(positions, hidden_dim, interleaved=False)
    layer.build(None)
    return keras.ops.convert_to_numpy(layer.embeddings)


def _holds_sines(array):
    # (In half precision, perhaps.)
    return array.ndim == 2 and np.allclose(array.astype("float32"), _sines(*array.shape), atol=1e-3)


_POSITIONS = [f"{half}.embed_positions.weight" for half in ("encoder", "decoder")]


NAMES = NameTable(
    _NAMES,
    leaves=PYTORCH_LEAVES,
    layout=_layout,
    stored_layout=_stored_layout,
    prefix=r"model\.",
    # Where there is one embedding, its copies may have these names; else two tables do.
    spellings={"encoder.embed_tokens.": "shared."},
    buffers=dict.fromkeys(_POSITIONS, _holds_sines),
    constants=dict.fromkeys(
        _POSITIONS,
        lambda arguments: _sines(arguments["max_sequence_length"], arguments["hidden_dim"]),
    ),
    copies={
        "decoder.embed_tokens.weight": "shared.weight",
        "lm_head.weight": ("shared.weight", "decoder.embed_tokens.weight"),
    },
)


def _check_halves(checkpoint):
    config = checkpoint.config
    for what in ("attention_heads", "ffn_dim"):
        halves = [config[f"{half}_{what}"] for half in ("encoder", "decoder")]
        if halves[0] != halves[1]:
            raise CheckpointError(
                f"{checkpoint.source}: config.json has encoder_{what}={halves[0]!r} and "
                f"decoder_{what}={halves[1]!r}, and MarianBackbone has one number for both halves."
            )


def _of_halves(what, name):
    """Return the rule of an argument that is an entry for each half."""
    keys = [f"{half}_{what}" for half in ("encoder", "decoder")]
    return Derived(
        lambda config, _: config[keys[0]], lambda arguments: dict.fromkeys(keys, arguments[name])
    )


def _decoder_layers(arguments):
    number = arguments["num_decoder_layers"]
    return {"decoder_layers": arguments["num_layers"] if number is None else number}


def _read_decoder_rows(config, tensors=None):
    if config.get("share_encoder_decoder_embeddings", True):
        return None
    return config.get("decoder_vocab_size") or config["vocab_size"]


def _write_decoder_rows(arguments):
    rows = arguments["decoder_vocabulary_size"]
    return {
        "share_encoder_decoder_embeddings": rows is None,
        "decoder_vocab_size": arguments["vocabulary_size"] if rows is None else rows,
    }


def _write_vocabulary(arguments):
    """Without a tokenizer, no token is padding; published models begin to write with the last."""
    size = arguments["vocabulary_size"]
    last = (arguments["decoder_vocabulary_size"] or size) - 1
    return {"vocab_size": size, "pad_token_id": None, "decoder_start_token_id": last}


_CONFIG = ConfigTable(
    MarianBackbone,
    "marian",
    {
        "vocabulary_size": Derived(lambda config, _: config["vocab_size"], _write_vocabulary),
        "num_layers": Key("encoder_layers"),
        "num_heads": _of_halves("attention_heads", "num_heads"),
        "hidden_dim": Key("d_model"),
        "intermediate_dim": _of_halves("ffn_dim", "intermediate_dim"),
        "num_decoder_layers": Derived(lambda config, _: config["decoder_layers"], _decoder_layers),
        "decoder_vocabulary_size": Derived(_read_decoder_rows, _write_decoder_rows),
        "scale_embedding": Key("scale_embedding", False),
        "dropout": Key("dropout", 0.1),
        "attention_dropout": Key("attention_dropout", 0.0),
        "activation": Activation("activation_function"),
        "max_sequence_length": Key("max_position_embeddings"),
        "layer_norm_epsilon": Fixed(1e-5),
    },
    Entries(
        read={
            "decoder_attention_heads",
            "decoder_ffn_dim",
            "decoder_layers",
            "decoder_vocab_size",
            "encoder_attention_heads",
            "encoder_ffn_dim",
            "share_encoder_decoder_embeddings",
            "vocab_size",
        },
        implied={"num_hidden_layers"},
        harmless={"classif_dropout", "classifier_dropout", "extra_pos_embeddings", "init_std"},
        refused={
            "is_encoder_decoder": (True,),
            # What the first files say of the network, which was BART's then.
            "add_bias_logits": (False,),
            "add_final_layer_norm": (False,),
            "do_blenderbot_90_layernorm": (False,),
            "force_bos_token_to_be_generated": (False,),
            "normalize_before": (False,),
            "normalize_embedding": (False,),
            "static_position_embeddings": (True,),
        },
    ),
    _check_halves,
    rates={
        "activation_dropout": (0.0,),
        "encoder_layerdrop": (0.0,),
        "decoder_layerdrop": (0.0,),
    },
    aliases={"hidden_size": "d_model", "num_attention_heads": "encoder_attention_heads"},
)


MarianBackbone.CONVERTERS = {
    "huggingface": Converter(
        # (By its tensors alone, it could be a BART.)
        functools.partial(match_score, model_type="marian"),
        _CONFIG,
        NAMES,
        architectures={"": "MarianModel", "seq2seq_lm": "MarianMTModel"},
        tokenizer="MarianTokenizer",
    ),
}
