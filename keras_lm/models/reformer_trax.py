"""Reformer's checkpoints of trax: arrays without names, which their order and shapes tell apart.

Shapes: D hidden, N heads, H per head.
"""

import dataclasses
import math
import re

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.converters.converter import STATED, Converter
from keras_lm.converters.names import NameTable

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
    found = re.fullmatch(MODEL, axes)
    if not found:
        raise CheckpointError(
            f"{source}: its {len(shapes)} arrays are not those of trax's ReformerLM with axial or "
            "learned positions, SelfAttention and LSHSelfAttention. Attention with biases, SRUs, "
            "sparse layers, other positions and trax's other models are not known."
        )
    tables = len(found[1])
    paths = ["token_embedding/embeddings"]
    paths += [f"position_embedding/axis_{i}" for i in range(tables)]
    if tables == 1:
        paths[1] = "position_embedding/embeddings"

    def add(layer, leaves):
        paths.extend(f"{layer}/{leaf}" for leaf in leaves)

    for i, block in enumerate(re.finditer(BLOCK, found[2])):
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


def _layout(path, array):
    if path.startswith("position_embedding/"):
        return array.reshape(-1, array.shape[-1])  # it has an axis of size 1 for each other one
    if path.endswith("attention/output/kernel"):
        return array.reshape(-1, array.shape[-1])  # (N, H, D) → (N·H, D)
    if array.ndim == 3:
        return array.swapaxes(0, 1).reshape(array.shape[1], -1)  # (N, D, H) → (D, N·H)
    return array


def sizes_of(checkpoint):
    """Return the arguments that the shapes of a checkpoint's arrays tell, a dict."""
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
    """Return the arguments that no shape tells, by a `config.gin`, a dict.

    Raises:
        CheckpointError: if there is no configuration, or it asks for what is not known.
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
            f"{checkpoint.source}: ReformerLM.ff_activation is {activation!r}, and known are "
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

    return Converter(lambda checkpoint: STATED, config, TraxNames({}, {}, layout=_layout))
