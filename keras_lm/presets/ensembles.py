"""Presets of several tasks that answer as one: each has a preset in the folder of the ensemble."""

import keras

from keras_lm.converters import CheckpointError
from keras_lm.converters.checked_files import read_json
from keras_lm.converters.checkpoint import PRESET_CONFIG
from keras_lm.presets.saving import begin, free, sum_up, write_card
from keras_lm.utils import files
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.registry import TASKS


def load_ensemble(source, cls, load_task, **arguments):
    """Return the ensemble that a source holds.

    Args:
        source: an opened `Source`.
        cls: class of the ensemble's task, or the base class.
        load_task: `keras_lm.presets.load_task`, which loads each member with the `arguments`.

    Raises:
        ValueError: if the source holds an ensemble of other tasks, or one that is damaged.
    """
    found, checkpoint = source.task, source.checkpoint
    if found is None or (cls.__name__ in TASKS and not issubclass(found, cls)):
        raise ValueError(
            f"{source} holds several tasks that answer as one "
            f"{checkpoint.config['task']['class']}, and no {cls.__name__}."
        )
    folders = [checkpoint.folder / member_folder(i) for i in range(checkpoint.config["members"])]
    _check_links(folders)
    try:
        members = [load_task(folder, object, **arguments) for folder in folders]
    except RecursionError as error:
        raise CheckpointError(f"{folders[0]}: too many ensembles in ensembles.") from error
    return found(members)


def member_folder(number):
    """Return the name of the folder of a member, in that of its ensemble."""
    return f"member_{number}"


def _check_links(folders):
    """Raise a CheckpointError if links make more members, or deeper ones, than there are files."""
    for number, folder in enumerate(folders):
        is_ensemble = (folder / PRESET_CONFIG).is_file() and "members" in read_json(
            folder / PRESET_CONFIG
        )
        earlier = {other.resolve() for other in folders[:number]}
        if folder.is_symlink() and (is_ensemble or folder.resolve() in earlier):
            raise CheckpointError(
                f"{folder} is a link to another member or to an ensemble: copy the preset there."
            )


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
