"""What published files of Marian call its weights, and what their configurations say."""

import functools

import keras
import numpy as np

from keras_lm.converters.checked_files import CheckpointError, Entries
from keras_lm.converters.converter import (
    Activation,
    ConfigTable,
    Converter,
    Derived,
    Fixed,
    Key,
    PyTorchNames,
    match_score,
    transpose_kernels,
)
from keras_lm.layers import SinusoidalPositionEmbedding
from keras_lm.models.marian import MarianBackbone

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


NAMES = PyTorchNames(
    _NAMES,
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
