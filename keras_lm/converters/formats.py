"""The formats of checkpoints, each recognised by the files in a folder.

A function that `recognises` a format takes a folder and returns None, or the format's name, its
configuration, its tensors' entries, and for Model Garden the names of variables.
"""

import pathlib
from collections.abc import Callable

from keras_lm.converters.checked_files import CheckpointError, read_json
from keras_lm.converters.fairseq_files import find_fairseq, read_fairseq
from keras_lm.converters.gin_files import GIN, read_gin
from keras_lm.converters.hdf5_files import read_hdf5, read_hdf5_shards
from keras_lm.converters.openai_shards import SHAPES, read_openai_shards
from keras_lm.converters.safetensors_files import read_safetensors
from keras_lm.converters.tensors import Entry, read_shards
from keras_lm.converters.tf_checkpoint import (
    choose_checkpoint,
    find_checkpoints,
    read_tf_checkpoint,
)
from keras_lm.converters.tf_h5_files import read_tf_model, read_tf_shards
from keras_lm.converters.torch_pickle import is_torch, read_torch
from keras_lm.converters.word_vector_files import find_word_vectors, open_word_vectors

PRESET_CONFIG = "keras_lm.json"
MOST_PARTS = 8
MOST_MEMBERS = 1000
# Files named like a model's configuration, but of another tool.
NOT_OF_A_MODEL = {
    "adapter_config.json",
    "config.json",
    "generation_config.json",
    "peft_config.json",
    "preprocessor_config.json",
    "sentence_bert_config.json",
    "special_tokens_config.json",
    "tokenizer_config.json",
}
# A file name to its reader, in the order of preference within a folder.
Readers = dict[str, Callable[[pathlib.Path], dict[str, Entry]]]
SAFETENSORS: Readers = {
    "model.safetensors": read_safetensors,
    "model.safetensors.index.json": lambda path: read_shards(path, read_safetensors),
}
TORCH: Readers = {
    "pytorch_model.bin": read_torch,
    "pytorch_model.bin.index.json": lambda path: read_shards(path, read_torch),
}
TF_H5: Readers = {
    "tf_model.h5": read_tf_model,
    "tf_model.h5.index.json": read_tf_shards,
}
KERAS_HUB: Readers = {
    "model.weights.h5": read_hdf5,
    "model.weights.json": read_hdf5_shards,
}
# (What a folder of the format holds, its function), in the order in which a folder is tried.
FORMATS: list[tuple[str, Callable]] = []


def recognises(contents: str):
    """Register a function for a format; `contents` is its line in the list of known formats."""

    def register(function):
        FORMATS.append((contents, function))
        return function

    return register


@recognises("a keras_lm preset: keras_lm.json with model.safetensors (or its shards and index)")
def _keras_lm(folder: pathlib.Path):
    if (folder / PRESET_CONFIG).is_file():
        config = read_json(folder / PRESET_CONFIG)
        check_preset(folder / PRESET_CONFIG, config)
        has_weights = "members" not in config  # else each of them is a preset of its own
        return "keras_lm", config, read_first(folder, SAFETENSORS) if has_weights else {}


def check_preset(path: pathlib.Path, config: dict):
    """Raise a CheckpointError if a `keras_lm.json` is not formed as ours are."""
    members = config.get("members", 2)
    if (
        type(members) is not int
        or not 2 <= members <= MOST_MEMBERS
        or ("members" in config and config.get("task") is None)
    ):
        raise CheckpointError(
            f"{path}: 'members' is {str(members)[:200]}, and it is the number of those of an "
            f"ensemble, 2 to {MOST_MEMBERS}. Save the preset again, or copy it again."
        )
    names = [name for name in ("backbone", "task", "tokenizer") if config.get(name) is not None]
    parts = [(name, config[name]) for name in names]
    for part, entry in parts:
        found = entry if isinstance(entry, dict) else {}
        if not (isinstance(found.get("class"), str) and isinstance(found.get("arguments"), dict)):
            raise CheckpointError(
                f"{path}: {part!r} must have 'class' and 'arguments', a string and an object, and "
                f"is {str(entry)[:200]}. Save the preset again, or copy it again."
            )
        # A feature extractor has a backbone of its own; nothing else is nested.
        if "backbone" in entry and part == "backbone" and len(parts) < MOST_PARTS:
            parts.append((part, entry["backbone"]))
        elif "backbone" in entry:
            raise CheckpointError(
                f"{path}: {part!r} has a 'backbone' of its own, which stands beside it, or one too "
                "many. Save the preset again, or copy it again."
            )


@recognises("KerasHub: its config.json with model.weights.h5 (or shards and model.weights.json)")
def _keras_hub(folder: pathlib.Path):
    config = _read_config(folder, "config.json")
    if "registered_name" not in config and "class_name" not in config:
        return None
    entries = read_first(folder, KERAS_HUB)
    if (folder / "task.weights.h5").is_file():
        entries |= read_hdf5(folder / "task.weights.h5", prefix="task/")
    return "keras_hub", config, entries


@recognises("OpenAI's GPT: params_shapes.json with params_N.npy")
def _openai(folder: pathlib.Path):
    if (folder / SHAPES).is_file():
        hparams = _read_config(folder, "hparams.json")
        return "openai", *read_openai_shards(folder, hparams)


@recognises("AllenNLP's ELMo: options.json (or NAME_options.json) with weights in HDF5")
def _allennlp(folder: pathlib.Path):
    options = [path for path in folder.glob("*options.json") if "lstm" in read_json(path)]
    if len(options) > 1:
        raise CheckpointError(
            f"{folder} has several models: {', '.join(sorted(path.name for path in options))}. "
            "Move all but one, and their weights, into folders of their own."
        )
    if options:
        # Other arrays may lie there, so the name of the weights counts first.
        weights = sorted(folder.glob("*weights.hdf5")) or sorted(folder.glob("*.hdf5"))
        if len(weights) != 1:
            found = ", ".join(path.name for path in weights) or "none"
            raise CheckpointError(
                f"{options[0]} needs one file of weights beside it, NAME_weights.hdf5, and there "
                f"is: {found}."
            )
        return "allennlp", read_json(options[0]), read_hdf5(weights[0])


@recognises(
    "Hugging Face: config.json with model.safetensors, pytorch_model.bin or tf_model.h5 (or shards "
    "and index)"
)
def _hugging_face(folder: pathlib.Path):
    weights = SAFETENSORS | TORCH | TF_H5
    config = _read_config(folder, "config.json")
    if not any((folder / name).is_file() for name in weights):
        # Without any weights, Hugging Face's own keys show that the folder was meant to be one.
        if find_checkpoints(folder) or not config.keys() & {"model_type", "architectures"}:
            return None
    elif not config:
        config = _read_config(folder, _name_of_config(folder))
    return "huggingface", config, read_first(folder, weights)


@recognises(
    "fastai's ULMFiT: one .pth (or fastai 0.7's .h5), alone or with config.json, and its itos*.pkl"
)
def _fastai(folder: pathlib.Path):
    paths = [*folder.glob("*.pth"), *filter(is_torch, folder.glob("*.h5"))]  # as version 0.7 ended
    found = {path.name: read_torch(path) for path in sorted(paths)}
    if any(".linear.weight_raw" in tensor for entries in found.values() for tensor in entries):
        raise CheckpointError(
            f"{folder} holds a QRNN of fastai's, and only its LSTMs are known: take a model of "
            "AWD_LSTM."
        )
    # Every version marks the recurrent weights that it drops of by this ending.
    found = {
        name: entries
        for name, entries in found.items()
        if any(tensor.endswith("weight_hh_l0_raw") for tensor in entries)
    }
    if len(found) > 1:
        raise CheckpointError(
            f"{folder} has several models: {', '.join(found)}. Move all but one into folders of "
            "their own."
        )
    for entries in found.values():
        return "fastai", _read_config(folder, "config.json"), entries


@recognises(
    "TensorFlow: bert_config.json or the like, GPT-2's hparams.json, or T5's operative_config.gin, "
    "with NAME.index and NAME.data-*"
)
def _tensorflow(folder: pathlib.Path):
    name = _name_of_config(folder)
    if find_checkpoints(folder):
        gin = folder / GIN
        config = read_gin(gin) if gin.is_file() else _read_config(folder, name)
        format, entries, variable_names = read_tf_checkpoint(folder, choose_checkpoint(folder))
        return format, config, entries, variable_names
    if name != "hparams.json" and (folder / name).is_file():
        raise CheckpointError(
            f"{folder} has a configuration, {name}, and no weights. Put NAME.index and "
            f"NAME.data-00000-of-00001 beside it, or one of {', '.join(SAFETENSORS | TORCH)}."
        )


@recognises("fairseq: model.pt or checkpoint*.pt, with the configuration inside, and its dict.txt")
def _fairseq(folder: pathlib.Path):
    path = find_fairseq(folder)
    return None if path is None else ("fairseq", *read_fairseq(path))


@recognises("CoVe: wmtlstm-*.pth, alone or with the file of word vectors that it reads")
def _cove(folder: pathlib.Path):
    for path in sorted(folder.glob("*.pth")):
        entries = read_torch(path)
        if any(name.removeprefix("rnn.") == "weight_ih_l0" for name in entries):
            return "cove", {}, _vectors(folder) | entries


@recognises(
    "word vectors: a file of word2vec (text or binary), GloVe or fastText (.vec), gzipped or not"
)
def _word_vectors(folder: pathlib.Path):
    entries = _vectors(folder)
    return ("word_vectors", {}, entries) if entries else None


def _vectors(folder: pathlib.Path) -> dict[str, Entry]:
    path = find_word_vectors(folder)
    if path is None:
        return {}
    file = open_word_vectors(path)
    words = file.words()
    return {"vectors.weight": ((len(words), file.embedding_dim), lambda: file.vectors(words))}


def _read_config(folder: pathlib.Path, name: str) -> dict:
    return read_json(folder / name) if (folder / name).is_file() else {}


def _name_of_config(folder: pathlib.Path) -> str:
    """`bert_config.json` or the like; otherwise another known name."""
    names = sorted(path.name for path in folder.glob("*_config.json"))
    names = [name for name in names if name not in NOT_OF_A_MODEL]
    if len(names) > 1:
        raise CheckpointError(
            f"{folder} has several configurations: {', '.join(names)}. Keep the one that its "
            "weights were trained with, and move the others away."
        )
    fallback = "hparams.json" if (folder / "hparams.json").is_file() else "config.json"
    return names[0] if names else fallback


def read_first(folder: pathlib.Path, readers: Readers) -> dict[str, Entry]:
    """Read the first of the files that exists; raise a CheckpointError if none does."""
    for name, read in readers.items():
        if (folder / name).is_file():
            return read(folder / name)
    raise CheckpointError(
        f"{folder} has a configuration and no weights that go with it. Put one of these beside it: "
        f"{', '.join(readers)}."
    )
