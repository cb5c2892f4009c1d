"""From a backbone or a task to a folder that Hugging Face's transformers loads.

The tables that read such folders are reversed: `ConfigTable` for config.json, `NameTable` for
the weights. What transformers has no counterpart for is refused by name, before anything is
written.
"""

from typing import Any

import keras

from keras_lm.converters.checked_files import write_safetensors
from keras_lm.converters.published_labels import labels_config
from keras_lm.converters.sentence_transformers import MODULES
from keras_lm.presets import saving
from keras_lm.presets.foreign_formats import (
    begin,
    check_reading,
    check_tokenizer,
    named_tensors,
    write_json,
    written_config,
)
from keras_lm.presets.saving import MAX_SHARD_BYTES, check_finite
from keras_lm.presets.source import innermost_backbone
from keras_lm.utils import files
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.user_arguments import check_whole, checks_flags, warn

FORMAT = "huggingface"
WRITING = ("causal_lm", "seq2seq_lm")  # heads of models that write texts


@checks_flags
def save_to_huggingface(
    folder: PathLike,
    backbone: keras.Model,
    task: keras.Model | None = None,
    tokenizer: Any | None = None,
    max_shard_bytes: int | None = None,
    allow_nan: bool = False,
) -> None:
    """Write a folder in Hugging Face's format, whole or not at all.

    Args:
        folder: path of a new or empty folder.
        backbone: `Backbone`.
        task: `Task` over it, or None for the bare model.
        tokenizer: `Tokenizer` to write beside a bare model; a task has its own.
        max_shard_bytes: int, the size of a file of weights; None for 5 GB.
        allow_nan: bool. Whether to write weights that are NaN or infinite.

    Raises:
        FileExistsError: if `folder` is not empty.
        ImportError: if there is a tokenizer, and the package `tokenizers` is not installed.
        ValueError: if weights are NaN or infinite, or something has no counterpart in transformers.
    """
    if max_shard_bytes is not None:
        check_whole("max_shard_bytes", max_shard_bytes, 1)
    folder, tokenizer, converter, kinds, labels = begin(FORMAT, folder, backbone, task, tokenizer)
    has_config = converter.config.model_type is not None
    if task is None and not has_config:
        raise ValueError(
            f"{type(backbone).__name__} is not a model of transformers': save a SentenceEncoder or "
            "a FeatureExtractor over it, for sentence-transformers."
        )
    check_finite(task or backbone, allow_nan)
    config = _config(backbone, task, tokenizer, converter, kinds, labels)
    # (A task without a head may have layers of its own, which have files of their own.)
    tensors = named_tensors(FORMAT, task if kinds else backbone, backbone, converter, kinds)
    with files.replacing(folder) as new:
        new.mkdir()
        if has_config:
            write_json(new / "config.json", config)
        write_safetensors(new, tensors, max_shard_bytes or MAX_SHARD_BYTES, {"format": "pt"})
        check_reading(new, folder, converter)
        if tokenizer is not None:
            template = _template(backbone, task, tokenizer)
            length, side = _limits(backbone, task)
            tokenizer.save_huggingface(
                new, template, converter.tokenizer, length, _reads_segments(backbone), side
            )
            check_tokenizer(new, tokenizer, backbone, converter)
        if task is not None:
            task.write_modules(new)
        is_sentence_transformer = (new / MODULES).is_file()
        text = _card(task or backbone, config, kinds, is_sentence_transformer, converter.versions)
        (new / saving.CARD).write_text(text, encoding="utf-8")
        if kinds in WRITING:
            write_json(new / "generation_config.json", task.published_generation(config))


def _card(model, config, kinds, is_sentence_transformer, versions):
    # (Transformers has the classes of pretraining for several heads.)
    architecture = config["architectures"][0]
    tag, cls = saving.HUB_TASKS.get(kinds, (None, architecture))
    library, code = "transformers", f"from transformers import {cls}\n\n{cls}"
    code += '.from_pretrained("FOLDER")'
    if is_sentence_transformer:
        tag, library = "sentence-similarity", "sentence-transformers"
        cls = model.published_class
        code = f"from sentence_transformers import {cls}\n\n"
        code += f'{cls}("FOLDER").encode(["a text"])'
    facts = [("Architecture", f"`{architecture}`"), ("Versions of transformers", versions)]
    return saving.card(model, code, facts, tag, library)


def _config(backbone, task, tokenizer, converter, kinds, labels):
    config = written_config(backbone, converter)
    config = {"architectures": [converter.architectures[kinds]]} | config
    config |= {} if labels is None else labels_config(labels)
    if tokenizer is not None:
        config |= _token_ids(config, tokenizer, kinds, task)
    else:
        stated = task.published_tokens() if kinds in WRITING else {}
        config |= _usual_ids(innermost_backbone(backbone), stated)
    if kinds in WRITING:
        config |= task.published_tokens()
    return config | {"dtype": backbone.dtype_policy.variable_dtype}


def _usual_ids(backbone, stated):
    """Return the ids of special tokens where no tokenizer says them, and warn of those assumed."""
    ids = backbone.stated_token_ids or backbone.usual_token_ids()
    if backbone.stated_token_ids is None and (assumed := ids.keys() - stated.keys()):
        said = ", ".join(f"{name}={ids[name]}" for name in ids if name in assumed)
        warn(
            f"There is no tokenizer, so config.json states {said}, as published ones of "
            f"{type(backbone).__name__}: correct it if yours differ, or pass tokenizer=…."
        )
    return ids


def _token_ids(config, tokenizer, kinds, task):
    special = tokenizer.special_tokens
    ids = {f"{r}_token_id": tokenizer.special_id(r) for r in ("pad", "bos", "eos") if r in special}
    if kinds in ("classification", "multiple_choice") and task.backbone.is_causal:
        ids.setdefault("pad_token_id", task.packer.pad_id)  # by which it finds a text's last token
    padding = config.get("pad_token_id")
    if padding is not None and ids.get("pad_token_id") != padding:
        raise ValueError(
            f"The tokenizer has pad_token={special.get('pad')!r}, and transformers counts "
            f"positions without the id {padding}, as first_position of the backbone says: give "
            "the pad_token that id, or make the backbone with its id + 1 as first_position."
        )
    return ids


def _template(backbone, task, tokenizer):
    """Return the special tokens around texts: those of prompts for a language model."""
    if not _is_bare(task):
        return task.template
    template = backbone.template_for(tokenizer)
    if task is not None and getattr(task, "begins_prompts", False):
        return task.prompt_template(template)
    return template


def _is_bare(task):
    # (Classifiers over GPT have the language model's head beside theirs.)
    return task is None or {*task.head_kinds} == {"causal_lm"}


def _limits(backbone, task):
    """Return the most tokens of a text, or None, and the side on which more are cut off."""
    length = backbone.max_sequence_length if _is_bare(task) else task.packing["sequence_length"]
    return length, "right" if task is None else task.packing["truncation_side"]


def _reads_segments(backbone):
    return "segment_ids" in backbone.input_fields and backbone.config.get("num_segments", 2) > 1
