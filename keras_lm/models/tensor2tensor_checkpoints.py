"""What published files of Tensor2Tensor call its weights, and what their configurations say."""

import re

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.converters.converter import Converter, NameTable, require_only
from keras_lm.models.tensor2tensor import Tensor2TensorBackbone, Tensor2TensorEncoderBackbone

_NAMES = {
    # Of the shards of a table, one tensor was made: see `converters/tf_checkpoint.py`.
    "token_embedding/embeddings": "symbols/shared/weights",
    "decoder_token_embedding/embeddings": "symbols/target_emb/weights",
    "token_head/embeddings": "symbols/softmax/weights",
    "target_space_embedding/embeddings": "body/target_space_embedding/kernel",
}
_NORM = "layer_prepostprocess/layer_norm"
for _half in ("encoder", "decoder"):
    _ours, _theirs = f"{_half}_block_{{i}}", f"body/{_half}/layer_{{i}}"
    _attention = f"{_theirs}/self_attention/multihead_attention"
    _NAMES |= {
        f"{_ours}/attention/query_key_value": tuple(f"{_attention}/{part}" for part in "qkv"),
        f"{_ours}/attention/output": f"{_attention}/output_transform",
        f"{_ours}/attention_norm": f"{_theirs}/self_attention/{_NORM}",
        f"{_ours}/feedforward/intermediate": f"{_theirs}/ffn/conv1",
        f"{_ours}/feedforward/output": f"{_theirs}/ffn/conv2",
        f"{_ours}/feedforward_norm": f"{_theirs}/ffn/{_NORM}",
        f"{_half}_norm": f"body/{_half}/{_NORM}",
    }
_CROSS = "body/decoder/layer_{i}/encdec_attention"
_NAMES |= {
    "decoder_block_{i}/cross_attention/query": f"{_CROSS}/multihead_attention/q",
    "decoder_block_{i}/cross_attention/key_value": tuple(
        f"{_CROSS}/multihead_attention/{part}" for part in "kv"
    ),
    "decoder_block_{i}/cross_attention/output": f"{_CROSS}/multihead_attention/output_transform",
    "decoder_block_{i}/cross_attention_norm": f"{_CROSS}/{_NORM}",
}


class _Names(NameTable):
    """tensor2tensor's names, without what versions put before them and the sizes of tables."""

    def resolve(self, tensors):
        theirs = {re.sub(r"symbol_modality_\d+_\d+/", "symbols/", name): name for name in tensors}
        return {name: theirs[stored] for name, stored in super().resolve(theirs).items()}


NAMES = _Names(
    _NAMES,
    leaves={
        "kernel": "/kernel",
        "bias": "/bias",
        "gamma": "/layer_norm_scale",
        "beta": "/layer_norm_bias",
    },
    # The first versions convolved, over one place.
    layout=lambda path, array: array.reshape(array.shape[-2:]) if array.ndim > 2 else array,
    prefix=r".*/(?=body/|symbols/)",
    spellings={"/layer_postprocess/": "/layer_prepostprocess/", "/input_emb/": "/shared/"},
)
_SIGN = "body/encoder/layer_0/self_attention/multihead_attention/q/kernel"


def _config(checkpoint):
    """Return the arguments: sizes by the tensors, and what these do not say by `hparams.json`."""
    require_only(
        checkpoint,
        Tensor2TensorBackbone,
        {
            "pos": "timing",
            "self_attention_type": "dot_product",
            "norm_type": "layer",
            "multiply_embedding_mode": "sqrt_depth",
            "proximity_bias": False,
            "unidirectional_encoder": False,
            "causal_decoder_self_attention": True,
        },
    )
    tensors, stated = checkpoint.tensors, checkpoint.config
    names = NAMES.resolve(tensors)
    tables = [name for name in tensors if name.endswith("/shared/weights")]
    if len(tables) > 1:
        raise CheckpointError(
            f"{checkpoint.source} has {' and '.join(tables)}, and does not say which is the "
            "source's."
        )

    def shape(name):
        return tensors.shape(names[name])

    def blocks(half):
        matches = [re.match(rf"body/{half}/layer_(\d+)/", name) for name in names]
        return 1 + max((int(match[1]) for match in matches if match), default=-1)

    target = names.get("symbols/target_emb/weights")
    vocabulary_size, hidden_dim = shape("symbols/shared/weights")
    return {
        "vocabulary_size": vocabulary_size,
        "num_layers": blocks("encoder"),
        "num_heads": stated.get("num_heads") or max(hidden_dim // 64, 1),
        "hidden_dim": hidden_dim,
        "intermediate_dim": shape("body/encoder/layer_0/ffn/conv2/kernel")[-2],
        "num_decoder_layers": blocks("decoder"),
        "decoder_vocabulary_size": None if target is None else tensors.shape(target)[0],
        "tie_embeddings": "symbols/softmax/weights" not in names,
        "pre_norm": "body/encoder/layer_prepostprocess/layer_norm/layer_norm_scale" in names,
        "target_space": 0 if "body/target_space_embedding/kernel" in names else None,
        "dropout": stated.get("layer_prepostprocess_dropout", 0.1),
        "attention_dropout": stated.get("attention_dropout", 0.1),
        "layer_norm_epsilon": stated.get("norm_epsilon", 1e-6),
    }


_CONVERTERS = {
    "google": Converter(
        lambda checkpoint: any(name.endswith(_SIGN) for name in checkpoint.tensors),
        _config,
        NAMES,
    ),
}
Tensor2TensorBackbone.CONVERTERS = _CONVERTERS
Tensor2TensorEncoderBackbone.CONVERTERS = dict(_CONVERTERS)
