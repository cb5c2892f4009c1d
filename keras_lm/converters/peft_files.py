"""Adapters of the library peft: LoRA's small matrices become part of the weights of their model.

`adapter_config.json` says what kind of adapter it is and of which model. The file of tensors has
the matrices A (R, in) and B (out, R) of each layer that it changes, by which its weight becomes
W + alpha / R · B A, and the weights that were trained as a whole, such as a classifier's.
"""

import functools
import numbers
import pathlib
import re

import numpy as np

from keras_lm.converters.checked_files import (
    CheckpointError,
    Entries,
    LazyTensors,
    read_first,
    read_json,
    read_safetensors,
)
from keras_lm.converters.quantized_tensors import is_turned
from keras_lm.converters.torch_pickle import read_torch

CONFIG = "adapter_config.json"
WEIGHTS = {"adapter_model.safetensors": read_safetensors, "adapter_model.bin": read_torch}
LORA = "LORA"
NOTHING = (False, {}, [])
ENTRIES = Entries(
    read={
        "alpha_pattern",
        "auto_mapping",
        "base_model_name_or_path",
        "lora_alpha",
        "peft_type",
        "r",
        "rank_pattern",
        "revision",
        "task_type",
        "use_dora",
        "use_rslora",
    },
    # The tensors show which layers it has, and the network how it keeps their weights.
    implied={
        "bias",
        "exclude_modules",
        "fan_in_fan_out",
        "layers_pattern",
        "layers_to_transform",
        "lora_bias",
        "modules_to_save",
        "target_modules",
    },
    # Of training.
    harmless={
        "eva_config",
        "inference_mode",
        "lora_dropout",
        "megatron_config",
        "megatron_core",
        "peft_version",
        "qalora_group_size",
        "runtime_config",
        "velora_config",
    },
    refused={
        "alora_invocation_tokens": NOTHING,
        "arrow_config": NOTHING,
        "corda_config": NOTHING,
        "ensure_weight_tying": NOTHING,
        # The others begin by changing the weights of the model.
        "init_lora_weights": (True, False, "gaussian", "orthogonal", "eva"),
        "kasa_config": NOTHING,
        "layer_replication": NOTHING,
        "loftq_config": NOTHING,
        "lora_ga_config": NOTHING,
        "monteclora_config": NOTHING,
        "target_parameters": NOTHING,
        "trainable_token_indices": NOTHING,
        "use_bdlora": NOTHING,
        "use_qalora": NOTHING,
    },
)
# The task that an adapter is of → how Hugging Face's class for it ends.
ENDINGS = {
    "SEQ_CLS": "ForSequenceClassification",
    "TOKEN_CLS": "ForTokenClassification",
    "QUESTION_ANS": "ForQuestionAnswering",
    "CAUSAL_LM": "ForCausalLM",
    "SEQ_2_SEQ_LM": "ForConditionalGeneration",
    "FEATURE_EXTRACTION": "Model",
}
PREDICTS_TOKENS = re.compile(r"LMHead|CausalLM|MaskedLM|PreTraining|ConditionalGeneration|DoubleHe")
OUTPUT = ("lm_head.weight", "decoder.weight", "vocab_projector.weight")
BEFORE = re.compile(r"^base_model\.(model\.)?")
WITHIN = re.compile(r"\.(base_layer|modules_to_save)(\.default)?(?=\.)")
REPLACED = ".original_module."  # what a layer was before it was trained as a whole
PART = re.compile(
    r"(?P<layer>.+)\.lora_(?P<part>A|B|embedding_A|embedding_B|magnitude_vector)"
    r"(\.default)?(\.(?P<leaf>weight|bias))?"
)
NAME_OF_LAYERS = re.compile(r"\^?[\w.\\]+")


def read_adapter(folder: pathlib.Path) -> dict:
    """Return the `adapter_config.json` of a folder.

    Raises:
        CheckpointError: if it is another adapter than LoRA, or states what is not done.
    """
    path = folder / CONFIG
    config = read_json(path)
    kind = config.get("peft_type")
    if kind != LORA:
        raise CheckpointError(
            f"{path} has peft_type={kind!r}, an adapter that is not supported: only {LORA} is. "
            "Merge it into the model with peft (merge_and_unload, if it has that) and save that."
        )
    ENTRIES.check(config, str(path), "keras_lm")
    is_number = isinstance(config.get("lora_alpha"), numbers.Real)
    if type(config.get("r")) is not int or config["r"] < 1 or not is_number:
        raise CheckpointError(
            f"{path} has r={config.get('r')!r} and lora_alpha={config.get('lora_alpha')!r}, which "
            "must be an int of 1 or more and a number. Copy or download it again."
        )
    return config


def adapted_config(config: dict, adapter: dict) -> dict:
    """Return the `config.json` of a model with an adapter, whose head may be another."""
    cls = (adapter.get("auto_mapping") or {}).get("base_model_class")
    ending = ENDINGS.get(adapter.get("task_type"))
    if cls is None and ending is not None:
        known = (config.get("architectures") or [""])[0]
        cls = re.sub(r"(For|LMHead|Model|DoubleHeads).*", "", known) + ending
    return config if cls is None else config | {"architectures": [cls]}


def adapted_tensors(
    folder: pathlib.Path, adapter: dict, config: dict, tensors: LazyTensors
) -> LazyTensors:
    """Return the tensors of a model with those of an adapter added.

    Args:
        folder, adapter: the folder with the adapter, and its configuration.
        config, tensors: those of the model.

    Raises:
        CheckpointError: if the adapter is not one of this model, or is not supported.
    """
    entries = {
        name: (tensors.shape(name), functools.partial(tensors.__getitem__, name))
        for name in tensors
    }
    layers = {}
    for stored, entry in read_first(folder, WEIGHTS).items():
        if REPLACED in stored:
            continue
        name = WITHIN.sub("", BEFORE.sub("", stored))
        match = PART.fullmatch(name)
        if (match is None and "lora_" in name) or name.endswith("trainable_tokens_delta"):
            raise CheckpointError(f"{folder} has the unknown tensor {stored!r}.")
        if match is None:  # trained as a whole
            entries[_named(name, tensors) or name] = entry
        else:
            part = f"{match['part']}.{match['leaf'] or 'weight'}"
            layers.setdefault(match["layer"], {})[part] = entry
    for layer, parts in layers.items():
        _add(folder, adapter, config, entries, layer, parts)
    return LazyTensors(entries)


def untied(folder: pathlib.Path, config: dict, tensors: LazyTensors, model: LazyTensors) -> dict:
    """Return the configuration, which says so if an adapter brings an output matrix of its own.

    Args:
        folder, config: see `adapted_tensors`.
        tensors, model: the tensors with the adapter's, and those of the model alone.

    Raises:
        CheckpointError: if it changes an embedding that is the output matrix, too.
    """
    has_embedding = any("lora_embedding_" in name for name in read_first(folder, WEIGHTS))
    architecture = (config.get("architectures") or [""])[0]
    is_tied = config.get("tie_word_embeddings", True) and PREDICTS_TOKENS.search(architecture)
    if has_embedding and (is_tied or config.get("is_encoder_decoder")):
        raise CheckpointError(
            f"{folder} is an adapter of the embedding of a {architecture}, whose output matrix is "
            "the same one and stays as it is: this is not supported. Merge it into the model with "
            "peft."
        )
    is_own = is_tied and any(name.endswith(OUTPUT) for name in set(tensors) - set(model))
    return config | ({"tie_word_embeddings": False} if is_own else {})


def _named(name, names):
    """Return the model's name of a tensor, which may lack what it begins with; None for none."""
    while name not in names and "." in name:
        longer = [other for other in names if other.endswith(f".{name}")]
        if len(longer) == 1:
            return longer[0]
        if longer:
            return None
        name = name.partition(".")[2]
    return name if name in names else None


def _add(folder, adapter, config, entries, layer, parts):
    """Replace the weight of a layer in `entries` by its sum with the adapter's update."""
    name = _named(f"{layer}.weight", entries)
    is_embedding = "embedding_A.weight" in parts
    a, b = (parts.get(f"{'embedding_' * is_embedding}{part}.weight") for part in "AB")
    if name is None or a is None or b is None:
        what = "matrices A and B" if name else "such a layer in its model"
        raise CheckpointError(
            f"{folder} has an adapter of {layer!r} without {what}: it is damaged, or another "
            "model's."
        )
    turned = is_embedding or is_turned(config.get("model_type"), layer)
    shape, read = entries[name]
    update = (b[0][0], a[0][-1]) if len(a[0]) == len(b[0]) == 2 and a[0][0] == b[0][1] else None
    if update is None or (update[::-1] if turned else update) != shape:
        raise CheckpointError(
            f"{folder} has matrices of {a[0]} and {b[0]} for {layer!r}, whose weight is {shape}: "
            "it is of another model, or of a kind of layer that is not supported."
        )
    magnitude = parts.get("magnitude_vector.weight")
    if magnitude is not None and is_embedding:
        raise CheckpointError(
            f"{folder} has use_dora=True for the embedding {layer!r}, which is not supported."
        )
    scale = _scale(folder, adapter, layer)

    def numbers():
        weight, update = read().astype("float32"), scale * (_float(b) @ _float(a))
        weight = (weight.T if turned else weight) + update
        if magnitude is not None:  # DoRA's: the length of each row is learnt by itself
            length = np.linalg.norm(weight, axis=1, keepdims=True)
            weight = weight * (_float(magnitude).reshape(-1, 1) / length)
        return weight.T if turned else weight

    entries[name] = (shape, numbers)
    if "B.bias" in parts:
        bias = name.removesuffix("weight") + "bias"
        if bias not in entries:
            raise CheckpointError(f"{folder} has a bias for {layer!r}, which has none itself.")
        size, read_bias = entries[bias]
        entries[bias] = (size, lambda: read_bias() + scale * _float(parts["B.bias"]))


def _float(entry):
    return entry[1]().astype("float32")


def _scale(folder, adapter, layer):
    """Return what a layer's update is multiplied by."""
    rank = _by_pattern(folder, adapter, "rank_pattern", layer, adapter["r"])
    alpha = _by_pattern(folder, adapter, "alpha_pattern", layer, adapter["lora_alpha"])
    return np.float32(alpha / (rank**0.5 if adapter.get("use_rslora") else rank))


def _by_pattern(folder, adapter, entry, layer, usual):
    """Return the number of the first name, in a dict of names of layers, that is a layer's."""
    for pattern, value in (adapter.get(entry) or {}).items():
        # (They are regular expressions, which a file could make slow.)
        is_number = isinstance(value, numbers.Real) and value > 0
        if not NAME_OF_LAYERS.fullmatch(pattern) or not is_number:
            raise CheckpointError(
                f"{folder / CONFIG} has {entry}={{{pattern!r}: {value!r}}}: it must map names "
                "of layers to numbers."
            )
        name = pattern.replace("\\", "").removeprefix("^")
        if layer == name or (not pattern.startswith("^") and layer.endswith(f".{name}")):
            return value
    return usual
