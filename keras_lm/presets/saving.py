"""From a backbone, a task or a tokenizer to a preset folder, and to files of Keras's own."""

import json
import numbers
import re
import zipfile
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_lm.converters.checked_files import is_finite, write_safetensors
from keras_lm.converters.checkpoint import ASSETS, PRESET_CONFIG
from keras_lm.presets import cards
from keras_lm.presets.source import FORMAT_VERSION, check_unquantized, stored_weights
from keras_lm.utils import files
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.user_arguments import checks_flags
from keras_lm.version import __version__

MAX_SHARD_BYTES = 5_000_000_000
# What `save` writes into a folder; members are those of an ensemble.
OF_PRESETS = re.compile(
    rf"{re.escape(PRESET_CONFIG)}|{re.escape(cards.CARD)}|{ASSETS}|member_\d+"
    rf"|{re.escape(files.CHECKSUMS)}"
    r"|model(-\d+-of-\d+)?\.safetensors(\.index\.json)?"
)


@checks_flags
def save(
    folder: PathLike,
    backbone: keras.Model,
    task: keras.Model | None = None,
    tokenizer: Any | None = None,
    overwrite: bool | None = None,
    allow_nan: bool = False,
) -> None:
    """Write a preset atomically: a reader finds the old one, or the whole new one.

    Args:
        folder: path.
        backbone: `Backbone`; None for a tokenizer alone.
        task: `Task`, or None for the backbone alone.
        tokenizer: `Tokenizer` to save with a backbone or alone; a task has its own.
        overwrite: bool. Whether to replace a preset in `folder`; None replaces it if it has no
            other files, such as the `run.toml` of a command.
        allow_nan: bool. Whether to write weights that are NaN or infinite.

    Raises:
        FileExistsError: if `folder` is not a preset, or is not to be replaced.
        ValueError: if Keras has quantized a layer, or weights are NaN or infinite.
    """
    if backbone is not None:
        check_unquantized(backbone if task is None else task)
    folder = free(folder, overwrite)
    config = {} if backbone is None else {"backbone": _describe(backbone)}
    if task is not None:
        config["task"] = {"class": type(task).__name__, "arguments": task.get_arguments()}
        tokenizer = task.tokenizer
    if tokenizer is not None:
        config["tokenizer"] = {
            "class": type(tokenizer).__name__,
            "arguments": tokenizer.get_config(),
            "vocabulary_size": tokenizer.vocabulary_size,
        }
    with files.replacing(folder) as new:
        begin(new, config)
        if backbone is not None:
            model = backbone if task is None else task
            _save_weights(new, model, allow_nan)
            write_card(new, model)
        if tokenizer is not None:
            (new / ASSETS).mkdir()
            tokenizer.save_assets(new / ASSETS)
        sum_up(new)


def free(folder, overwrite):
    """Return the folder of a new preset, or raise the FileExistsError of `save`."""
    folder = files.as_path(folder)
    files.require_free(folder, "is not a preset", marker=PRESET_CONFIG)
    if overwrite is None and folder.is_dir():
        others = sorted(p.name for p in folder.iterdir() if not OF_PRESETS.fullmatch(p.name))
        if others:
            raise FileExistsError(
                f"{folder} is a preset with other files, {', '.join(others[:5])}: choose another "
                "folder, or pass overwrite=True to replace all of it."
            )
    elif not overwrite:
        files.require_free(folder, "is not replaced, as overwrite=False")
    return folder


def begin(folder, config):
    """Make a folder with the configuration of a preset."""
    folder.mkdir()
    versions = {"format_version": FORMAT_VERSION, "keras_lm_version": __version__}
    text = json.dumps(versions | config, indent=2, ensure_ascii=False)
    (folder / PRESET_CONFIG).write_text(f"{text}\n", encoding="utf-8")


def _describe(backbone):
    if hasattr(backbone, "backbone"):
        return {
            "class": type(backbone).__name__,
            "arguments": backbone.get_arguments(),
            "backbone": _describe(backbone.backbone),
        }
    config = backbone.get_config()
    return {"class": type(backbone).__name__, "arguments": config}


def _save_weights(folder, model, allow_nan):
    weights = stored_weights(model)
    for layer in model._flatten_layers():
        if getattr(layer, "lora_enabled", False):  # a kernel is the sum, so that it loads without
            del weights[layer.lora_kernel_a.path], weights[layer.lora_kernel_b.path]
            weights[layer._kernel.path] = layer.kernel
    arrays = {path: keras.ops.convert_to_numpy(variable) for path, variable in weights.items()}
    if not allow_nan:
        refuse_broken(model, arrays)
    write_safetensors(folder, arrays, MAX_SHARD_BYTES)


def write_card(folder, model):
    """Write the README.md of a preset into its folder."""
    (folder / cards.CARD).write_text(cards.card_of_preset(model), encoding="utf-8")


def sum_up(folder):
    """Write the checksums of a preset into its folder.

    Weights have theirs in them, and a card is there to be changed.
    """
    paths = [folder / PRESET_CONFIG, *folder.glob("*.index.json"), *folder.glob(f"{ASSETS}/**/*")]
    files.write_sums(
        folder, [path.relative_to(folder).as_posix() for path in paths if path.is_file()]
    )


# === Ensembles ===


@checks_flags
def save_ensemble(
    folder: PathLike, task: keras.Model, overwrite: bool | None = None, allow_nan: bool = False
) -> None:
    """Write a preset of several tasks that answer as one: a preset for each, as `save` does it.

    Args:
        folder, overwrite, allow_nan: see `save`.
        task: a `Task` with `members`.

    Raises:
        FileExistsError: see `save`.
    """
    with files.replacing(free(folder, overwrite)) as new:
        described = {"class": type(task).__name__, "arguments": {}}
        begin(new, {"task": described, "members": len(task.members)})
        for number, member in enumerate(task.members):
            member.save_to_preset(new / member_folder(number), allow_nan=allow_nan)
        write_card(new, task)
        sum_up(new)


def member_folder(number):
    """Return the name of the folder of a member, in that of its ensemble."""
    return f"member_{number}"


# === Weights that are not finite are not written: answers of such a model would mean nothing ===


def check_finite(model: keras.Model, allow_nan: bool = False) -> None:
    """Raise a ValueError if weights of a model are NaN or infinite.

    Args:
        model: a backbone or a task.
        allow_nan: bool. Whether to let them pass.

    Raises:
        ValueError: unless `allow_nan`; it names the first of them.
    """
    if not allow_nan:
        weights = stored_weights(model)
        # (One at a time, as reading may copy.)
        for path, variable in weights.items():
            refuse_broken(model, {path: keras.ops.convert_to_numpy(variable)})


def refuse_broken(model: keras.Model, arrays: Mapping[str, np.ndarray]) -> None:
    """Raise a ValueError if arrays of a model's weights, by their paths, are not finite."""
    for path, array in arrays.items():
        if not is_finite(array):
            raise ValueError(
                f"{type(model).__name__} has weights that are NaN or infinite, in {path}, so its "
                "answers mean nothing, and nothing was written. Go back to earlier weights, and "
                "train with a lower learning_rate; allow_nan=True writes them, for a look at them."
            )


class SavedWhole:
    """The methods of a backbone or a task that write files of Keras's, whole, and read weights."""

    @checks_flags
    def save(
        self,
        filepath: PathLike,
        overwrite: bool = True,
        zipped: bool | None = None,
        allow_nan: bool = False,
        **kwargs: Any,
    ) -> None:
        """As `keras.Model.save`, whole or not at all; `allow_nan` as in `save_to_preset`."""
        check_finite(self, allow_nan)
        _save_whole(super().save, filepath, overwrite, zipped=zipped, **kwargs)

    @checks_flags
    def save_weights(
        self,
        filepath: PathLike,
        overwrite: bool = True,
        max_shard_size: float | None = None,
        allow_nan: bool = False,
    ) -> None:
        """As `keras.Model.save_weights`, whole or not at all; `allow_nan` as in `save_to_preset`.

        Of shards, each is written by itself.
        """
        check_finite(self, allow_nan)
        if max_shard_size is not None and not (
            isinstance(max_shard_size, numbers.Real) and max_shard_size > 0
        ):
            raise ValueError(f"max_shard_size={max_shard_size!r}: pass a number of GB above 0.")
        options = {} if max_shard_size is None else {"max_shard_size": max_shard_size}
        if max_shard_size is not None:
            filepath = str(filepath).removesuffix(".h5").removesuffix(".json") + ".json"
        _save_whole(super().save_weights, filepath, overwrite, **options)

    def load_weights(self, filepath: PathLike, skip_mismatch: bool = False, **kwargs: Any) -> None:
        """As `keras.Model.load_weights`.

        Raises:
            ValueError: if the file is damaged, or of another model.
        """
        try:
            super().load_weights(str(filepath), skip_mismatch=skip_mismatch, **kwargs)
        except FileNotFoundError:
            raise
        except (OSError, KeyError, zipfile.BadZipFile) as error:  # of h5py and zipfile
            raise ValueError(
                f"filepath={str(filepath)!r} cannot be read as a file of weights: "
                f"{' '.join(str(error).split())}. It is damaged, cut off or of another format: "
                "take another copy, or save it again."
            ) from error


def _save_whole(save, path, overwrite, **options):
    """Call a method of Keras's so that the old file stays until the new one is complete."""
    is_file = str(path).endswith((".keras", ".h5")) and "://" not in str(path)
    if not is_file or (files.as_path(path).exists() and not overwrite):  # Keras asks
        save(path, overwrite, **options)
        return
    path = files.as_path(path)
    with files.replacing(path) as new:
        written = new.with_name(path.name)
        save(written, True, **options)
        written.rename(new)
