"""From a backbone or a task to a TensorFlow 1 checkpoint as google-research published them.

The tables that read such folders are turned round, see `counterparts`. The format has no word for
the names of labels: they stand in the card.
"""

from typing import Any

import keras

from keras_lm.converters.tf_checkpoint import write_tf_checkpoint
from keras_lm.presets import cards
from keras_lm.presets.finite_weights import check_finite
from keras_lm.presets.foreign_formats import (
    begin,
    check_labels,
    check_tokenizer,
    named_tensors,
    write_json,
    written_config,
)
from keras_lm.utils import files
from keras_lm.utils.argument_types import PathLike

FORMAT = "google"


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
    folder, tokenizer, converter, kinds, labels = begin(FORMAT, folder, backbone, task, tokenizer)
    check_finite(task or backbone, allow_nan)
    config = written_config(backbone, converter)
    inside, names = converter.config.inside, converter.files
    tensors = named_tensors(FORMAT, task or backbone, backbone, converter, kinds)
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
        text = _card(backbone, task, converter.architectures[kinds])
        (new / cards.CARD).write_text(text, encoding="utf-8")


def _card(backbone, task, program):
    kind = f"models.{type(backbone).__name__}" if task is None else f"tasks.{type(task).__name__}"
    code = f"# The authors' {program} takes the files of this folder, and keras_lm the folder:\n"
    code += f'import keras_lm\n\nmodel = keras_lm.{kind}.from_preset("FOLDER")'
    return cards.card(task or backbone, code)
