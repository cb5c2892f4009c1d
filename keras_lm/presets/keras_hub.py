"""From a backbone or a task to a preset that KerasHub loads.

This reverses the tables that read presets, see `foreign_formats.py`. The format cannot store
the names of labels: they are in the card.
"""

import pathlib
import re
from typing import Any

import keras

from keras_lm.converters.hdf5_files import write_hdf5
from keras_lm.presets import saving
from keras_lm.presets.foreign_formats import (
    begin,
    check_labels,
    check_tokenizer,
    named_tensors,
    write_json,
    written_config,
)
from keras_lm.presets.saving import check_finite
from keras_lm.utils import files
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.user_arguments import checks_flags

FORMAT = "keras_hub"
# The version whose loading was tried.
VERSION = "0.32.0"
ASSETS = pathlib.Path("assets", "tokenizer")
# The files of our tokenizers → KerasHub's.
VOCABULARIES = {
    "vocab.txt": "vocabulary.txt",
    "vocab.json": "vocabulary.json",
    "merges.txt": "merges.txt",
    "spiece.model": "vocabulary.spm",
}


@checks_flags
def save_to_keras_hub(
    folder: PathLike,
    backbone: keras.Model,
    task: keras.Model | None = None,
    tokenizer: Any | None = None,
    allow_nan: bool = False,
) -> None:
    """Write a preset of KerasHub's, whole or not at all.

    Args:
        folder: path of a new or empty folder.
        backbone: `Backbone`.
        task: `Task` over it, or None for the bare model.
        tokenizer: `Tokenizer` to write beside a bare model; a task has its own.
        allow_nan: bool. Whether to write weights that are NaN or infinite.

    Raises:
        FileExistsError: if `folder` is not empty.
        ValueError: if weights are NaN or infinite, or something has no counterpart in KerasHub.
    """
    folder, tokenizer, converter, kinds, labels = begin(FORMAT, folder, backbone, task, tokenizer)
    check_finite(task or backbone, allow_nan)
    config = written_config(backbone, converter)
    tensors = named_tensors(FORMAT, task or backbone, backbone, converter, kinds)
    of_head, of_network = {}, {}
    for name, array in tensors.items():
        name = re.sub(r"^(layers/[a-z_]+)_0/", r"\1/", name)  # Keras does not count the first
        part = of_head if name.startswith("task/") else of_network
        part[name.removeprefix("task/")] = array.astype("float32")

    cls = converter.architectures[kinds]
    config = _object(converter.architectures[""], config)
    with files.replacing(folder) as new:
        new.mkdir()
        write_json(new / "config.json", config)
        write_hdf5(new / "model.weights.h5", of_network)
        if of_head:
            write_hdf5(new / "task.weights.h5", of_head)
        write_json(new / "metadata.json", _metadata(of_network, kinds, cls, backbone))
        preprocessor = None
        if tokenizer is not None:
            written = _write_tokenizer(new, tokenizer, converter)
            check_tokenizer(new, tokenizer, backbone, converter)
            preprocessor = _preprocessor(f"{cls}Preprocessor", written, task) if task else None
        if task is not None:
            if preprocessor is not None:
                write_json(new / "preprocessor.json", preprocessor)
            parts = {"backbone": config, "preprocessor": preprocessor}
            write_json(new / "task.json", _object(cls, parts | _head(backbone, labels)))
        check_labels(new, folder, converter, labels)
        kind = f"{cls}.from_preset" if task else "Backbone.from_preset"
        code = f'import keras_hub\n\nmodel = keras_hub.models.{kind}("FOLDER")'
        text = saving.card(task or backbone, code, library="keras-hub")
        (new / saving.CARD).write_text(text, encoding="utf-8")


def _object(cls, config):
    """Return the JSON object for an object of one of KerasHub's classes."""
    name = f"keras_hub>{cls}"
    return {
        "module": "keras_hub.models",
        "class_name": cls,
        "config": config,
        "registered_name": name,
    }


def _write_tokenizer(folder, tokenizer, converter):
    kind = type(tokenizer).__name__
    if kind not in _TOKENIZERS:
        raise ValueError(
            f"{kind} has no counterpart in KerasHub: those of {', '.join(sorted(_TOKENIZERS))} are "
            "written. With tokenizer=None, the model is written without one."
        )
    described = _object(converter.tokenizer, _TOKENIZERS[kind](tokenizer.get_config(), tokenizer))
    write_json(folder / "tokenizer.json", described)
    (folder / ASSETS).mkdir(parents=True)
    tokenizer.save_assets(folder / ASSETS)
    for ours, theirs in VOCABULARIES.items():
        if (folder / ASSETS / ours).is_file():
            (folder / ASSETS / ours).rename(folder / ASSETS / theirs)
    return described


def _word_pieces(config, tokenizer):
    return {
        "vocabulary": None,
        "lowercase": config["lowercase"],
        "strip_accents": config["strip_accents"],
        "oov_token": config["unknown_token"],
    }


def _byte_pairs(config, tokenizer):
    return {
        "add_prefix_space": config["add_prefix_space"],
        "unsplittable_tokens": list(tokenizer.all_special_tokens),
    }


def _pieces(config, tokenizer):
    return {"proto": None}


_TOKENIZERS = {
    "WordPieceTokenizer": _word_pieces,
    "BytePairTokenizer": _byte_pairs,
    "SentencePieceTokenizer": _pieces,
}


def _preprocessor(cls, tokenizer, task):
    options = {"sequence_length": task.packing["sequence_length"]}
    return _object(cls, {"tokenizer": tokenizer, "config_file": "preprocessor.json"} | options)


def _head(backbone, labels):
    if labels is None:
        return {}
    given = backbone.config
    dropout = given.get("classifier_dropout")
    dropout = given["dropout"] if dropout is None else dropout
    return {"num_classes": labels.num_classes, "activation": "linear", "dropout": dropout}


def _metadata(tensors, kinds, cls, backbone):
    prefix = type(backbone).__name__.removesuffix("Backbone")
    return {
        "keras_version": keras.__version__,
        "keras_hub_version": VERSION,
        "parameter_count": sum(array.size for array in tensors.values()),
        "tasks": [cls.removeprefix(prefix)] if kinds else [],
    }
