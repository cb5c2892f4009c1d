"""What published files of T5 call its weights, and what their configurations say."""

import dataclasses
import functools
import re

import numpy as np

from keras_lm.converters.checked_files import CheckpointError, Entries
from keras_lm.converters.converter import (
    KERAS_HUB_LEAVES,
    PYTORCH_LEAVES,
    Activation,
    ConfigTable,
    Converter,
    Derived,
    Key,
    NameTable,
    PyTorchNames,
    Refused,
    match_score,
    own_activation,
)
from keras_lm.converters.published_labels import huggingface_labels
from keras_lm.models.t5 import T5Backbone, T5EncoderBackbone

_HALVES = {"encoder": 1, "decoder": 2}  # the number of the feed-forward network in a block
_NAMES = {"token_embedding": "shared", "token_head": "lm_head"}
for _half, _last in _HALVES.items():
    _ours, _theirs = f"{_half}_block_{{i}}", f"{_half}.block.{{i}}.layer"
    _NAMES |= {
        f"{_half}_positions": f"{_half}.block.0.layer.0.SelfAttention.relative_attention_bias",
        f"{_ours}/attention/query_key_value": tuple(
            f"{_theirs}.0.SelfAttention.{part}" for part in "qkv"
        ),
        f"{_ours}/attention/output": f"{_theirs}.0.SelfAttention.o",
        f"{_ours}/attention_norm": f"{_theirs}.0.layer_norm",
        f"{_ours}/feedforward/intermediate": {
            "gated": f"{_theirs}.{_last}.DenseReluDense.wi_0",
            None: f"{_theirs}.{_last}.DenseReluDense.wi",
        },
        f"{_ours}/feedforward/gate": f"{_theirs}.{_last}.DenseReluDense.wi_1",
        f"{_ours}/feedforward/output": f"{_theirs}.{_last}.DenseReluDense.wo",
        f"{_ours}/feedforward_norm": f"{_theirs}.{_last}.layer_norm",
        f"{_half}_norm": f"{_half}.final_layer_norm",
    }
_CROSS = "decoder.block.{i}.layer.1"
_NAMES |= {
    "decoder_block_{i}/cross_attention/query": f"{_CROSS}.EncDecAttention.q",
    "decoder_block_{i}/cross_attention/key_value": tuple(
        f"{_CROSS}.EncDecAttention.{part}" for part in "kv"
    ),
    "decoder_block_{i}/cross_attention/output": f"{_CROSS}.EncDecAttention.o",
    "decoder_block_{i}/cross_attention_norm": f"{_CROSS}.layer_norm",
}


def _written_matrix(kinds, arguments):
    """Name a copy of the table: versions of transformers before 5 scale by a tied one."""
    is_copy = arguments["tie_embeddings"] and arguments["scale_outputs"] is False
    return "lm_head.weight" if is_copy and kinds else None


NAMES = PyTorchNames(
    _NAMES | {"classifier/logits": {"token_classification": "classifier"}},
    twice={"shared.weight": _written_matrix},
    prefix=r"transformer\.",  # beside heads of classes
    begin="",
    # A table that the first release has and nobody reads.
    ignored=r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
    copies={
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
        "lm_head.weight": "shared.weight",
    },
)


class _KerasHubNames(NameTable):
    """KerasHub's names, which count the decoder's layers on from the encoder's."""

    def resolve(self, tensors):
        resolved = super().resolve(tensors)
        layers = {name.split("/")[0] for name in resolved if name.startswith("layer_")}
        reads_source = {name.split("/")[0] for name in resolved if "/cross_attention/" in name}
        first = len(layers - reads_source)  # of the decoder

        def own(name):
            match = re.match(r"layer_(\d+)/", name)
            if not match:
                return name
            number = int(match[1])
            half = f"encoder_{number}" if number < first else f"decoder_{number - first}"
            return f"{half}/{name[match.end() :]}"

        return {own(name): stored for name, stored in resolved.items()}


_KERAS_HUB = {
    "token_embedding": "reversible_embedding",
    "token_head/embeddings": "reversible_embedding/vars/1",
    "encoder_norm": "t5_layer_norm",
    "decoder_norm": "t5_layer_norm_1",
    "decoder_block_{i}/cross_attention/query": "decoder_{i}/cross_attention/query_projector",
    "decoder_block_{i}/cross_attention/key_value": tuple(
        f"decoder_{{i}}/cross_attention/{part}_projector" for part in ("key", "value")
    ),
    "decoder_block_{i}/cross_attention/output": "decoder_{i}/cross_attention/output_projector",
    "decoder_block_{i}/cross_attention_norm": "decoder_{i}/cross_attention_layer_norm",
}
for _half in _HALVES:
    _ours, _theirs = f"{_half}_block_{{i}}", f"{_half}_{{i}}"
    _KERAS_HUB |= {
        f"{_half}_positions": f"{_half}_0/self_attention",
        f"{_ours}/attention/query_key_value": tuple(
            f"{_theirs}/self_attention/{part}_projector" for part in ("query", "key", "value")
        ),
        f"{_ours}/attention/output": f"{_theirs}/self_attention/output_projector",
        f"{_ours}/attention_norm": f"{_theirs}/self_attention_layer_norm",
        f"{_ours}/feedforward/intermediate": f"{_theirs}/input_projector",
        f"{_ours}/feedforward/gate": f"{_theirs}/gate_projector",
        f"{_ours}/feedforward/output": f"{_theirs}/output_projector",
        f"{_ours}/feedforward_norm": f"{_theirs}/layer_norm",
    }
KERAS_HUB_NAMES = _KerasHubNames(
    _KERAS_HUB,
    leaves=KERAS_HUB_LEAVES,
    layout=lambda path, array: array.T if path == "token_head/embeddings" else array,
    prefix="layers/",
    spellings={"t5_transformer_layer/": "layer_0/", "t5_transformer_layer_": "layer_"},
)


class _MeshNames(NameTable):
    """mesh_tensorflow's names, as Hugging Face's conversion spells them."""

    def resolve(self, tensors):
        def own(name):
            name = name.replace("decoder/logits/", "lm_head/").replace("rms_norm", "layer_norm")
            name = re.sub(r"\b(block|layer)_0*(\d+)/", r"\1/\2/", name)
            name = re.sub(r"^(encoder|decoder)/layer_norm/", r"\1/final_layer_norm/", name)
            return re.sub(r"/(kernel|scale|embedding)$", "", name).replace("/", ".") + ".weight"

        theirs = {own(name): name for name in tensors}
        return {name: theirs[stored] for name, stored in super().resolve(theirs).items()}


def _mesh_layout(path, array):
    is_transposed = path == "token_head/embeddings" or path.endswith("_positions/embeddings")
    return array.T if is_transposed else array


MESH_NAMES = _MeshNames(
    _NAMES,
    leaves=PYTORCH_LEAVES,
    layout=_mesh_layout,
    ignored=r"decoder/block_\d+/layer_\d+/EncDecAttention/relative_attention_bias",
)


def _read_activation(config, tensors=None):
    stated = config.get("feed_forward_proj", "relu")
    # The gated form that is called "gelu" has always been the tanh form.
    usual = "gelu_new" if stated == "gated-gelu" else stated.rpartition("-")[2]
    return own_activation(config.get("dense_act_fn") or usual)


def _read_gated(config, tensors=None):
    usual = "-" in config.get("feed_forward_proj", "relu")
    return config.get("is_gated_act", usual)


def _write_feedforward(arguments):
    name = Activation("name").write("activation", arguments)["name"]
    if not arguments["gated"]:
        return {"feed_forward_proj": name}
    if name == "gelu":
        raise Refused("activation", "gelu", "'gelu_tanh' with gated=True")
    return {"feed_forward_proj": "gated-" + ("gelu" if name == "gelu_new" else name)}


def _check(checkpoint):
    table = "block.1.layer.0.SelfAttention.relative_attention_bias.weight"
    if any(name.endswith(table) for name in checkpoint.tensors):
        raise CheckpointError(
            f"{checkpoint.source} is umT5, with a table of relative positions in each block, and "
            "T5Backbone has one for all."
        )
    stated = checkpoint.config.get("feed_forward_proj", "relu")
    gate = stated.rpartition("-")[0] if isinstance(stated, str) else "?"
    if gate not in ("", "gated"):
        raise CheckpointError(
            f"{checkpoint.source}: config.json has feed_forward_proj={stated!r}, and T5Backbone "
            "knows 'relu', 'gated-gelu' and the like."
        )


def _has_own_matrix(config, tensors):
    """Whether the output matrix is another than the token embedding.

    Transformers 5 states `tie_word_embeddings` of all T5s, so the tensors say it.
    """
    names = NAMES.resolve(tensors)
    table, matrix = names.get("shared.weight"), names.get("lm_head.weight")
    if matrix is None or matrix == table:
        return False
    # (Versions before 5, which have no entry for the scale, say it rightly.)
    if config.get("tie_word_embeddings") is False and "scale_decoder_outputs" not in config:
        return True
    return not np.array_equal(tensors[table], tensors[matrix])


def _scales_states(config, tensors=None):
    # Version 4 of transformers scales by mT5's tied table, too; 5 states one and does not.
    version = str(config.get("transformers_version", "5"))
    if config.get("model_type") == "mt5" and not version.startswith("4."):
        return False
    return config.get("scale_decoder_outputs", config.get("tie_word_embeddings") is not False)


def _write_scale(arguments):
    """Write both entries, as versions before 5 of transformers read the first alone."""
    is_tied, scales = arguments["tie_embeddings"], arguments["scale_outputs"]
    scales = is_tied if scales is None else scales
    if scales and not is_tied:
        raise Refused("scale_outputs", True, "False with tie_embeddings=False")
    return {"tie_word_embeddings": scales, "scale_decoder_outputs": scales}


def _head_dim(arguments):
    return {"d_kv": arguments["head_dim"] or arguments["hidden_dim"] // arguments["num_heads"]}


def _decoder_layers(arguments):
    number = arguments["num_decoder_layers"]
    return {"num_decoder_layers": arguments["num_layers"] if number is None else number}


_CONFIG = ConfigTable(
    T5Backbone,
    "t5",
    {
        "vocabulary_size": Key("vocab_size"),
        "num_layers": Key("num_layers"),
        "num_heads": Key("num_heads"),
        "hidden_dim": Key("d_model"),
        "intermediate_dim": Key("d_ff"),
        "head_dim": Derived(lambda config, _: config["d_kv"], _head_dim, ("d_kv",)),
        "num_decoder_layers": Derived(
            lambda config, _: config.get("num_decoder_layers"),
            _decoder_layers,
            ("num_decoder_layers",),
        ),
        "dropout": Key("dropout_rate", 0.1),
        "activation": Derived(_read_activation, keys=("feed_forward_proj", "dense_act_fn")),
        "gated": Derived(_read_gated, _write_feedforward, ("is_gated_act",)),
        "tie_embeddings": Derived(lambda config, tensors: not _has_own_matrix(config, tensors)),
        "scale_outputs": Derived(
            _scales_states,
            _write_scale,
            ("tie_word_embeddings", "scale_decoder_outputs", "transformers_version"),
        ),
        "num_buckets": Key("relative_attention_num_buckets", 32),
        "max_distance": Key("relative_attention_max_distance", 128),
        "layer_norm_epsilon": Key("layer_norm_epsilon", 1e-6),
    },
    Entries(
        implied={"n_positions"},
        harmless={"initializer_factor"},
        refused={"is_encoder_decoder": (True,)},
    ),
    _check,
    rates={"classifier_dropout": (0.0, "dropout_rate")},
    aliases={
        "head_dim": "d_kv",
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
    },
)
_ENCODER_CONFIG = dataclasses.replace(
    _CONFIG,
    model=T5EncoderBackbone,
    entries=_CONFIG.entries | Entries(harmless={"is_encoder_decoder"}),
)


def _keras_hub_config(checkpoint):
    config = checkpoint.config["config"]
    shared = ("vocabulary_size", "num_layers", "num_heads", "hidden_dim", "intermediate_dim")
    activation = config["activation"]
    if isinstance(activation, dict):  # a function of KerasHub's own
        is_tanh = "gelu" in str(activation["config"]) and "approx" in str(activation["config"])
        activation = "gelu_tanh" if is_tanh else activation["config"]
    return {key: config[key] for key in (*shared, "dropout", "layer_norm_epsilon")} | {
        "head_dim": config["key_value_dim"],
        "activation": activation,
        "gated": config["use_gated_activation"],
        "tie_embeddings": config["tie_embedding_weights"],
    }


def _is_keras_hub(checkpoint):
    return checkpoint.config.get("class_name") == "T5Backbone"


_MESH = "encoder/block_000/layer_000/SelfAttention"
# The names of functions in mesh_tensorflow → ours.
_MESH_ACTIVATIONS = {"gelu": "gelu_tanh", "swish": "silu"}


def _mesh_config(checkpoint):
    """Return the arguments: sizes by the tensors, and what these do not say by gin's file."""
    tensors = checkpoint.tensors

    def stated(name):
        values = [value for key, value in checkpoint.config.items() if key.endswith(name)]
        return next((value for value in values if value is not None), None)

    def blocks(half):
        matches = [re.match(rf"{half}/block_(\d+)/", name) for name in tensors]
        return 1 + max((int(match[1]) for match in matches if match), default=-1)

    if f"{_MESH.replace('block_000', 'block_001')}/relative_attention_bias" in tensors:
        raise CheckpointError(
            f"{checkpoint.source}: each block has a table of relative positions, and T5Backbone "
            "knows one for all blocks of a half."
        )
    vocabulary_size, hidden_dim = tensors.shape("shared/embedding")
    num_heads, num_buckets = tensors.shape(f"{_MESH}/relative_attention_bias")
    feedforward = "encoder/block_000/layer_001/DenseReluDense"
    gated = f"{feedforward}/wi_1/kernel" in tensors
    activation = stated("DenseReluDense.activation") or ("gelu" if gated else "relu")
    if gated and isinstance(activation, list) and activation[1:] == ["linear"]:
        activation = activation[0]
    return {
        "vocabulary_size": vocabulary_size,
        "num_layers": blocks("encoder"),
        "num_heads": num_heads,
        "hidden_dim": hidden_dim,
        "intermediate_dim": tensors.shape(f"{feedforward}/wo/kernel")[0],
        "head_dim": tensors.shape(f"{_MESH}/q")[1] // num_heads,
        "num_decoder_layers": blocks("decoder"),
        # None in T5 1.1's pretraining, whose authors want it back for all that follows.
        "dropout": stated("dropout_rate") or 0.1,
        "activation": own_activation(activation, _MESH_ACTIVATIONS),
        "gated": gated,
        "tie_embeddings": "decoder/logits/kernel" not in tensors,
        "num_buckets": num_buckets,
        "layer_norm_epsilon": stated("rms_norm.epsilon") or 1e-6,
    }


def _is_mesh(checkpoint):
    names = ("shared/embedding", f"{_MESH}/q", f"{_MESH}/relative_attention_bias")
    return all(name in checkpoint.tensors for name in names)


_TYPES = ("t5", "mt5")
_SIGNS = [
    "shared.weight",
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
]
_SIGN_OF_DECODER = "decoder.block.0.layer.1.EncDecAttention.q.weight"


def _without_decoder(checkpoint, score):
    """One more than the whole model's for what Hugging Face calls a `T5EncoderModel`."""
    names = (_SIGN_OF_DECODER, f"transformer.{_SIGN_OF_DECODER}")
    return score + all(name not in checkpoint.tensors for name in names)


T5Backbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(match_score, model_type=_TYPES, tensors=[*_SIGNS, _SIGN_OF_DECODER]),
        _CONFIG,
        NAMES,
        architectures={"": "T5Model", "seq2seq_lm": "T5ForConditionalGeneration"},
    ),
    "google": Converter(_is_mesh, _mesh_config, MESH_NAMES, vocabulary={"usual_family": "t5"}),
    "keras_hub": Converter(_is_keras_hub, _keras_hub_config, KERAS_HUB_NAMES),
}
T5EncoderBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(match_score, model_type=_TYPES, tensors=_SIGNS, refine=_without_decoder),
        _ENCODER_CONFIG,
        NAMES,
        lambda checkpoint: huggingface_labels(checkpoint, "classifier.weight"),
        architectures={"": "T5EncoderModel"},
    ),
    "google": Converter(_is_mesh, _mesh_config, MESH_NAMES, vocabulary={"usual_family": "t5"}),
    "keras_hub": Converter(
        _is_keras_hub,
        _keras_hub_config,
        # What is left over there is the decoder's; what is missing is an error all the same.
        dataclasses.replace(
            KERAS_HUB_NAMES, ignored=r"(layer_\d+|t5_layer_norm_1|reversible_emb\w*)/.*"
        ),
    ),
}
