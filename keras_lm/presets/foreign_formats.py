"""What another library has of a model: the parts that all writers of its formats share.

The tables that read a format are reversed: `ConfigTable` for the configuration, `NameTable` for
the weights. What the library has no counterpart for is refused by name, before anything is written.
Google-research's TensorFlow 1 checkpoints need no more than these parts. That format cannot
store the names of labels: they are in the card.
"""

import json
from typing import Any

import keras

from keras_lm.converters import CheckpointError, open_checkpoint
from keras_lm.converters.converter import ConfigTable, Refused, published_tensors
from keras_lm.converters.tf_checkpoint import write_tf_checkpoint
from keras_lm.presets import saving
from keras_lm.presets.saving import check_finite
from keras_lm.presets.source import check_unquantized, innermost_backbone, stored_weights
from keras_lm.utils import files
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.processes import array_of
from keras_lm.utils.user_arguments import checks_flags

# The `pre_tokenizer` of its byte-level BPE.
KERAS_HUB = [{"type": "KerasHub"}]

# A format → whose code reads it.
LIBRARIES = {
    "huggingface": "transformers",
    "google": "google-research's code",
    "keras_hub": "KerasHub",
}


def begin(format, folder, backbone, task, tokenizer):
    """Return the folder to write, the tokenizer to write there, and what `counterpart` returns.

    Raises:
        FileExistsError: if the folder is not empty.
        ValueError: see `counterpart`.
    """
    folder = files.as_path(folder)
    files.require_free(folder, "is not empty")
    tokenizer = tokenizer if task is None else task.tokenizer
    return folder, tokenizer, *counterpart(format, backbone, task)


def counterpart(format, backbone, task):
    """Return the converter, the kinds of heads, and the labels, of what another library has too.

    Raises:
        ValueError: if it has no such model, or not with this head, or Keras has quantized a layer.
    """
    check_unquantized(backbone if task is None else task)
    library = LIBRARIES[format]
    name = type(backbone).__name__
    # (A class that inherits them, such as an encoder alone, may be another network.)
    converter = vars(type(backbone)).get("CONVERTERS", {}).get(format)
    if converter is None or not isinstance(converter.config, ConfigTable):
        what = f"has no counterpart in {library}, so it cannot be saved for it"
        if converter is not None:
            what = f"is read from the files of {library}, which are not written"
        raise ValueError(f"{name} {what}: save_to_preset writes it for keras_lm.")
    labels = None if task is None else task.published_labels()
    activation = getattr(labels, "activation", None)
    if format != "huggingface" and activation not in (None, "linear"):
        raise ValueError(
            f"{type(task).__name__} has activation={activation!r}, and regressors of {library} "
            "have none: only activation=None can be saved for it."
        )
    kinds = [] if task is None else sorted(set(task.head_kinds))
    # Beside another head, that of the language model only has a part in the loss.
    kinds = [kind for kind in kinds if kind != "causal_lm" or len(kinds) == 1]
    kinds = " ".join(kinds)
    if task is not None and not kinds and format != "huggingface":
        raise ValueError(
            f"{type(task).__name__} has no head, and what it does with the vectors has no "
            f"counterpart in {library}. Its backbone alone can be saved."
        )
    if kinds not in converter.architectures:
        known = ", ".join(filter(None, converter.architectures))
        raise ValueError(
            f"{type(task).__name__} over {name} has the head {kinds!r}, which {library} "
            f"lacks; for this model it has {known or 'none'}. The backbone alone can be saved."
        )
    return converter, kinds, labels


def written_config(backbone, converter):
    """Return the backbone's configuration in the library's words, a dict.

    Raises:
        ValueError: if its code cannot do what an argument says.
    """
    if backbone.adapter_dim is not None:
        raise ValueError(
            f"The backbone has adapters of {backbone.adapter_dim} units, which other libraries "
            "do not have: it can be saved as a preset."
        )
    try:
        return converter.config.write(backbone.config)
    except Refused as error:
        raise ValueError(f"{type(backbone).__name__} has {error}.") from error


def named_tensors(format, model, backbone, converter, kinds):
    """Return a dict of the library's names → arrays.

    Raises:
        ValueError: if the model has weights that the library has no place for, or LoRA.
    """
    for layer in model._flatten_layers():
        if getattr(layer, "lora_enabled", False):
            raise ValueError(
                "The task has LoRA, which other libraries know as a file beside the model: save "
                "a preset, which has the sums, and save what from_preset loads from that."
            )
    network = innermost_backbone(backbone)
    apart = getattr(model, "WRITTEN_APART", ())
    stored = {p: v for p, v in stored_weights(model).items() if not p.startswith(apart)}
    arrays = {path: array_of(variable) for path, variable in stored.items()}
    heads = {head.name for head in network.HEADS.values()}
    tensors, nameless = published_tensors(converter.names, arrays, heads, kinds, network.config)
    if nameless:
        raise ValueError(
            f"{type(model).__name__} has weights that {LIBRARIES[format]} has no place for: "
            f"{', '.join(nameless[:3])}{' and others' if len(nameless) > 3 else ''}."
        )
    return tensors


def check_reading(new, folder, converter):
    """Raise a ValueError if the folder would be refused here: its head does something else."""
    try:
        converter.config(open_checkpoint(new))
    except CheckpointError as error:
        raise ValueError(str(error).replace(str(new), str(folder))) from error


def check_labels(new, folder, converter, labels):
    """Raise a ValueError if the folder's head would be taken for another here."""
    if labels is None:
        return
    stored = converter.labels(open_checkpoint(new))
    for name in ("problem_type", "num_classes"):
        one, other = getattr(labels, name), getattr(stored, name, None)
        if one != other:
            raise ValueError(
                f"The head has {name}={one!r}, and {folder} would say {other!r}, as the format "
                "cannot store it: save a preset, or for Hugging Face."
            )


def check_tokenizer(folder, tokenizer, backbone, converter):
    """Raise a ValueError if the tokenizer that a folder has is not the one that was written."""
    usual = type(backbone).tokenizer_class
    cls = usual.class_for(folder)
    stored = cls.from_files(folder, **(converter.vocabulary if cls is usual else {}))
    ours, theirs = (
        side.get_config() | {"vocabulary": side.vocabulary} for side in (tokenizer, stored)
    )
    for settings in (ours, theirs):
        # KerasHub splits text in a way of its own, which no other library has; see docs/sources.md.
        settings.pop("keras_hub", None)
        if settings.get("pre_tokenizer") == KERAS_HUB:
            settings["pre_tokenizer"] = None
    for name in ours.keys() - {"template"}:
        one, other = (
            sorted(value) if isinstance(value, list) and name != "vocabulary" else value
            for value in (ours[name], theirs.get(name))
        )
        if one != other:
            raise ValueError(
                f"{type(tokenizer).__name__} has {name}={str(one)[:200]}, and the files would "
                f"say {str(other)[:200]}."
            )


def write_json(path, value):
    """Write a value as an indented JSON file with a line end."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")


# === google-research ===

GOOGLE = "google"


@checks_flags
def save_to_google(
    folder: PathLike,
    backbone: keras.Model,
    task: keras.Model | None = None,
    tokenizer: Any | None = None,
    allow_nan: bool = False,
) -> None:
    """Write a folder in google-research's format, whole or not at all.

    Args:
        folder: path of a new or empty folder.
        backbone: `Backbone`.
        task: `Task` over it, or None for the bare model.
        tokenizer: `Tokenizer` to write beside a bare model; a task has its own.
        allow_nan: bool. Whether to write weights that are NaN or infinite.

    Raises:
        FileExistsError: if `folder` is not empty.
        ValueError: if weights are NaN or infinite, or something has no counterpart in
            google-research's code.
    """
    folder, tokenizer, converter, kinds, labels = begin(GOOGLE, folder, backbone, task, tokenizer)
    check_finite(task or backbone, allow_nan)
    config = written_config(backbone, converter)
    inside, names = converter.config.inside, converter.files
    tensors = named_tensors(GOOGLE, task or backbone, backbone, converter, kinds)
    tensors = {name: array.astype("float32") for name, array in tensors.items()}
    with files.replacing(folder) as new:
        new.mkdir()
        write_json(new / names["config"], config if inside is None else {inside: config})
        write_tf_checkpoint(new, names["checkpoint"], tensors)
        check_labels(new, folder, converter, labels)
        if tokenizer is not None:
            tokenizer.save_assets(new)
            for ours, theirs in names.items():
                if (new / ours).is_file():
                    (new / ours).rename(new / theirs)
            check_tokenizer(new, tokenizer, backbone, converter)
        text = _google_card(backbone, task, converter.architectures[kinds])
        (new / saving.CARD).write_text(text, encoding="utf-8")


def _google_card(backbone, task, program):
    kind = f"models.{type(backbone).__name__}" if task is None else f"tasks.{type(task).__name__}"
    code = f"# The authors' {program} takes the files of this folder, and keras_lm the folder:\n"
    code += f'import keras_lm\n\nmodel = keras_lm.{kind}.from_preset("FOLDER")'
    return saving.card(task or backbone, code)
