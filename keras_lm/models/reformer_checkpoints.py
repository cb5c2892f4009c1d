"""What published files of Reformer call its weights, and what their configurations say.

Shapes: D hidden, N heads, H per head.
"""

import dataclasses
import functools
import math
import re

from keras_lm.converters.checked_files import CLASSIFIER_RATE, CheckpointError, Entries
from keras_lm.converters.converter import (
    STATED,
    Activation,
    ConfigTable,
    Converter,
    Derived,
    Key,
    NameTable,
    PyTorchNames,
    match_score,
    transpose_kernels,
)
from keras_lm.converters.published_labels import huggingface_labels
from keras_lm.models.reformer import ReformerBackbone

# How many axes the arrays of a `ReformerLM` have: tokens; tables of positions; in each block a
# norm, the attention, a norm and two dense layers; a norm and the logits.
BLOCK = r"11(3{3,4})112121"
MODEL = rf"2([2-9]+)((?:{BLOCK})+)1121"
NORM, DENSE = ("gamma", "beta"), ("kernel", "bias")
ATTENTION = {
    3: ("query_key", "value", "output"),
    4: ("query", "key", "value", "output"),
}
ACTIVATIONS = {"Relu": "relu", "FastGelu": "gelu_tanh", "Gelu": "gelu", "Swish": "silu"}


def paths_of(shapes, source):
    """Return our path for each of the arrays of these shapes; `query`, `key` and `value` apart.

    Raises:
        CheckpointError: if they are not those of a `ReformerLM`.
    """
    axes = "".join(str(min(len(shape), 9)) for shape in shapes)
    match = re.fullmatch(MODEL, axes)
    if not match:
        raise CheckpointError(
            f"{source}: its {len(shapes)} arrays are not those of trax's ReformerLM with axial or "
            "learned positions, SelfAttention and LSHSelfAttention. Attention with biases, SRUs, "
            "sparse layers, other positions and trax's other models are not supported."
        )
    tables = len(match[1])
    paths = ["token_embedding/embeddings"]
    paths += [f"position_embedding/axis_{i}" for i in range(tables)]
    if tables == 1:
        paths[1] = "position_embedding/embeddings"

    def add(layer, leaves):
        paths.extend(f"{layer}/{leaf}" for leaf in leaves)

    for i, block in enumerate(re.finditer(BLOCK, match[2])):
        add(f"block_{i}/attention_norm", NORM)
        add(f"block_{i}/attention", [f"{name}/kernel" for name in ATTENTION[len(block[1])]])
        add(f"block_{i}/feedforward_norm", NORM)
        add(f"block_{i}/intermediate", DENSE)
        add(f"block_{i}/output", DENSE)
    add("final_norm", NORM)
    add("token_head/logits", DENSE)
    return paths


@dataclasses.dataclass(frozen=True)
class TraxNames(NameTable):
    """Our own paths, in place of names that there are not."""

    def alternatives(self, path):
        layer = path.removesuffix("/query_key_value/kernel")
        parts = [f"{layer}/{name}/kernel" for name in ("query", "key", "value")]
        return {None: (path,) if layer == path else tuple(parts)}

    def resolve(self, tensors):
        numbers = sorted(tensors, key=int)
        return dict(zip(paths_of([tensors.shape(n) for n in numbers], "it"), numbers, strict=True))

    def load(self, variables, tensors):
        missing, unused = super().load(variables, tensors)
        return missing, [path for path, n in self.resolve(tensors).items() if n in unused]


def _trax_layout(path, array):
    if path.startswith("position_embedding/"):
        return array.reshape(-1, array.shape[-1])  # it has an axis of size 1 for each other one
    if path.endswith("attention/output/kernel"):
        return array.reshape(-1, array.shape[-1])  # (N, H, D) → (N·H, D)
    if array.ndim == 3:
        return array.swapaxes(0, 1).reshape(array.shape[1], -1)  # (N, D, H) → (D, N·H)
    return array


def sizes_of(checkpoint):
    """Return the arguments that follow from the shapes of a checkpoint's arrays, a dict."""
    numbers = sorted(checkpoint.tensors, key=int)
    shapes = [checkpoint.tensors.shape(n) for n in numbers]
    paths = paths_of(shapes, checkpoint.source)
    shape = dict(zip(paths, shapes, strict=True))
    tables = [size for path, size in shape.items() if path.startswith("position_embedding/")]
    vocabulary_size, hidden_dim = shape["token_embedding/embeddings"]
    num_layers = sum(path.endswith("/attention_norm/gamma") for path in paths)
    kinds = ["lsh" if f"block_{i}/attention/query_key/kernel" in shape else "local"
             for i in range(num_layers)]  # fmt: skip
    num_heads, head_dim, _ = shape["block_0/attention/output/kernel"]
    grid = [math.prod(size[:-1]) for size in tables]
    is_axial = len(tables) > 1
    return {
        "vocabulary_size": vocabulary_size,
        "num_layers": num_layers,
        "num_heads": num_heads,
        "hidden_dim": hidden_dim,
        "intermediate_dim": shape["block_0/intermediate/kernel"][1],
        "head_dim": head_dim,
        "attention_layers": kinds,
        "causal": True,
        "axial_shape": grid if is_axial else None,
        "axial_dims": [size[-1] for size in tables] if is_axial else None,
        "max_sequence_length": math.prod(grid),
    }


def settings_of(checkpoint):
    """Return the arguments that no shape shows, from a `config.gin`, a dict.

    Raises:
        CheckpointError: if there is no configuration, or it asks for what is not supported.
    """
    bound = {}
    for name, value in checkpoint.config.items():
        bound[".".join(name.rpartition("/")[2].split(".")[-2:])] = value
    if not any(name.startswith("ReformerLM.") for name in bound):
        raise CheckpointError(
            f"{checkpoint.source} has no configuration: its arrays do not tell the lengths of "
            "chunks and the number of buckets. Put the config.gin that trax wrote with it beside "
            "it, or a config.json with the settings of Hugging Face's ReformerConfig."
        )
    if bound.get("SelfAttention.share_qk") is True:
        raise CheckpointError(
            f"{checkpoint.source}: SelfAttention.share_qk is True, and only attention by hashing "
            "may share queries and keys here."
        )
    activation = str(bound.get("ReformerLM.ff_activation", "@FastGelu")).rpartition(".")[2]
    activation = activation.removeprefix("@")
    if activation not in ACTIVATIONS:
        raise CheckpointError(
            f"{checkpoint.source}: ReformerLM.ff_activation is {activation!r}; supported: "
            f"{', '.join(ACTIVATIONS)}."
        )
    positions = sizes_of(checkpoint)["max_sequence_length"]
    # The defaults are those of trax.
    return {
        "local_chunk_length": bound.get("SelfAttention.chunk_len") or positions,
        "num_local_chunks_before": bound.get("SelfAttention.n_chunks_before", 0),
        "num_local_chunks_after": bound.get("SelfAttention.n_chunks_after", 0),
        "lsh_chunk_length": bound.get("LSHSelfAttention.chunk_len", 128),
        "num_lsh_chunks_before": bound.get("LSHSelfAttention.n_chunks_before", 1),
        "num_lsh_chunks_after": bound.get("LSHSelfAttention.n_chunks_after", 0),
        "num_buckets": bound.get("LSHSelfAttention.n_buckets"),
        "num_hashes": bound.get("LSHSelfAttention.n_hashes", 1),
        "dropout": bound.get("ReformerLM.dropout", 0.1),
        "local_attention_dropout": bound.get("SelfAttention.attention_dropout", 0.0),
        "lsh_attention_dropout": bound.get("LSHSelfAttention.attention_dropout", 0.0),
        "activation": ACTIVATIONS[activation],
        "layer_norm_epsilon": 1e-6,
    }


def trax_converter(huggingface_config):
    """Return the `Converter` of trax's checkpoints.

    Args:
        huggingface_config: callable `(checkpoint)` that reads a `config.json` of Hugging Face's.
    """

    def config(checkpoint):
        stated = settings_of if "model_type" not in checkpoint.config else huggingface_config
        return stated(checkpoint) | sizes_of(checkpoint)

    return Converter(lambda checkpoint: STATED, config, TraxNames({}, {}, layout=_trax_layout))


def _layout(path, array):
    """The table of an axis has an axis of size 1 for each other one."""
    if "/axis_" in path:
        return array.reshape(-1, array.shape[-1])
    return transpose_kernels(path, array)


def _stored_layout(path, array, arguments):
    if "/axis_" not in path:
        return transpose_kernels(path, array)
    shape = [1] * len(arguments["axial_shape"])
    shape[int(path.rpartition("_")[2])] = -1
    return array.reshape(*shape, array.shape[-1])


_LAYER, _SELF = "encoder.layers.{i}", "encoder.layers.{i}.attention.self_attention"
HUGGINGFACE_NAMES = PyTorchNames(
    {
        "token_embedding": "embeddings.word_embeddings",
        "position_embedding": "embeddings.position_embeddings.embedding",
        **{
            f"position_embedding/axis_{i}": f"embeddings.position_embeddings.weights.{i}"
            for i in range(8)
        },
        "block_{i}/attention_norm": f"{_LAYER}.attention.layer_norm",
        "block_{i}/attention/query_key": f"{_SELF}.query_key",
        "block_{i}/attention/value": f"{_SELF}.value",
        "block_{i}/attention/query_key_value": tuple(
            f"{_SELF}.{part}" for part in ("query", "key", "value")
        ),
        "block_{i}/attention/output": f"{_LAYER}.attention.output.dense",
        "block_{i}/feedforward_norm": f"{_LAYER}.feed_forward.layer_norm",
        "block_{i}/intermediate": f"{_LAYER}.feed_forward.dense.dense",
        "block_{i}/output": f"{_LAYER}.feed_forward.output.dense",
        "final_norm": "encoder.layer_norm",
        "token_head/logits/kernel": "lm_head.decoder.weight",
        # transformers 5 adds the first, and trains no other; up to 4 they are one.
        "token_head/logits/bias": {"version 5": "lm_head.decoder.bias", None: "lm_head.bias"},
        "classifier/dense": "classifier.dense",
        "classifier/logits": "classifier.out_proj",
        "span_head/logits": "qa_outputs",
    },
    layout=_layout,
    stored_layout=_stored_layout,
    prefix=r"reformer\.",
    twice={"lm_head.bias": "lm_head.decoder.bias"},
    ignored=r"encoder\.layers\.\d+\.attention\.self_attention\.(self_)?mask_value_float(16|32)"
    r"|lm_head\.bias",
)


def _check_classifier(checkpoint):
    if checkpoint.config.get("is_decoder") and "classifier.out_proj.weight" in checkpoint.tensors:
        raise CheckpointError(
            f"{checkpoint.source}: its classifier reads the first token of a causal network "
            "(is_decoder=True), which sees no other. Load its folder without classifier.* to train "
            "a classifier that reads the last."
        )


def _of(name, key, default):
    """Return the rule of a number of one kind of attention, null in networks without it."""
    return Derived(
        lambda config, _: default if config.get(key) is None else config[key],
        lambda arguments: {key: arguments[name]},
    )


def _is_axial(config):
    return config.get("axial_pos_embds", True)


def _grid(config, tensors=None):
    return config.get("axial_pos_shape", [64, 64]) if _is_axial(config) else None


def _length(config, tensors=None):
    positions = config.get("max_position_embeddings", 4096)
    return min(positions, math.prod(_grid(config))) if _is_axial(config) else positions


def _kinds(config, tensors=None):
    """Return the kind of attention of each layer: one for all of them, or each as it is named."""
    kinds = config.get("attn_layers", ["local", "lsh"] * 3)
    number = config.get("num_hidden_layers") or len(kinds)
    kinds = kinds * number if len(set(kinds)) == 1 else kinds
    if number > len(kinds):
        raise CheckpointError(
            f"config.json has num_hidden_layers={number}, and attn_layers={kinds} names the "
            f"attention of {len(kinds)}: name that of each layer."
        )
    return kinds[:number]


def _write_kinds(arguments):
    kinds = arguments["attention_layers"]
    return {"attn_layers": [kinds[i % len(kinds)] for i in range(arguments["num_layers"])]}


def _write_grid(arguments):
    if arguments["axial_shape"] is None:
        return {"axial_pos_embds": False}
    return {"axial_pos_embds": True, "axial_pos_shape": list(arguments["axial_shape"])}


def _write_axial_dims(arguments):
    dims = arguments["axial_dims"]
    return {} if dims is None else {"axial_pos_embds_dim": list(dims)}


def _head_dim(arguments):
    usual = arguments["hidden_dim"] // arguments["num_heads"]
    return {"attention_head_size": arguments["head_dim"] or usual}


_CONFIG = ConfigTable(
    ReformerBackbone,
    "reformer",
    {
        "vocabulary_size": Key("vocab_size", 320),
        "num_layers": Derived(lambda config, _: len(_kinds(config))),
        "num_heads": Key("num_attention_heads", 12),
        "hidden_dim": Key("hidden_size", 256),
        "intermediate_dim": Key("feed_forward_size", 512),
        "head_dim": Derived(Key("attention_head_size", 64).read, _head_dim),
        "attention_layers": Derived(_kinds, _write_kinds),
        "causal": Derived(
            lambda config, _: bool(config.get("is_decoder", False)),
            lambda arguments: {"is_decoder": arguments["causal"]},
        ),
        "local_chunk_length": _of("local_chunk_length", "local_attn_chunk_length", 64),
        "num_local_chunks_before": _of("num_local_chunks_before", "local_num_chunks_before", 1),
        "num_local_chunks_after": _of("num_local_chunks_after", "local_num_chunks_after", 0),
        "lsh_chunk_length": _of("lsh_chunk_length", "lsh_attn_chunk_length", 64),
        "num_lsh_chunks_before": _of("num_lsh_chunks_before", "lsh_num_chunks_before", 1),
        "num_lsh_chunks_after": _of("num_lsh_chunks_after", "lsh_num_chunks_after", 0),
        "num_buckets": Key("num_buckets", None),
        "num_hashes": Key("num_hashes", 1),
        "hash_seed": Derived(
            lambda config, _: (config.get("hash_seed") or 0) % 2**20,
            lambda arguments: {"hash_seed": arguments["hash_seed"]},
        ),
        "axial_shape": Derived(_grid, _write_grid),
        "axial_dims": Derived(
            lambda config, _: (
                config.get("axial_pos_embds_dim", [64, 192]) if _is_axial(config) else None
            ),
            _write_axial_dims,
        ),
        "dropout": Key("hidden_dropout_prob", 0.05),
        "local_attention_dropout": _of(
            "local_attention_dropout", "local_attention_probs_dropout_prob", 0.05
        ),
        "lsh_attention_dropout": _of(
            "lsh_attention_dropout", "lsh_attention_probs_dropout_prob", 0.0
        ),
        "activation": Activation("hidden_act", "relu"),
        "max_sequence_length": Derived(
            _length,
            lambda arguments: {"max_position_embeddings": arguments["max_sequence_length"]},
        ),
        "layer_norm_epsilon": Key("layer_norm_eps", 1e-12),
    },
    Entries(
        read={
            "attention_head_size",
            "attn_layers",
            "axial_pos_embds",
            "axial_pos_embds_dim",
            "axial_pos_shape",
            "hash_seed",
            "is_decoder",
            "local_attention_probs_dropout_prob",
            "local_attn_chunk_length",
            "local_num_chunks_after",
            "local_num_chunks_before",
            "lsh_attention_probs_dropout_prob",
            "lsh_attn_chunk_length",
            "lsh_num_chunks_after",
            "lsh_num_chunks_before",
            "max_position_embeddings",
            "num_hidden_layers",
        },
        harmless={"axial_norm_std", "chunk_size_lm_head"},
        refused={"sinusoidal_pos_embds": (False,)},
    ),
    _check_classifier,
    rates=CLASSIFIER_RATE,
)


ReformerBackbone.CONVERTERS = {
    "huggingface": Converter(
        functools.partial(match_score, model_type="reformer"),
        _CONFIG,
        HUGGINGFACE_NAMES,
        lambda checkpoint: huggingface_labels(checkpoint, "classifier.out_proj.weight"),
        architectures={
            "": "ReformerModel",
            "causal_lm": "ReformerModelWithLMHead",
            "token": "ReformerForMaskedLM",
            "classification": "ReformerForSequenceClassification",
            "question_answering": "ReformerForQuestionAnswering",
        },
    ),
    "trax": trax_converter(_CONFIG),
}
