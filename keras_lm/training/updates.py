"""What a policy lets a task learn over a frozen backbone, and the small file that holds it."""

import hashlib
import json

import numpy as np
import safetensors

from keras_lm.converters import CheckpointError
from keras_lm.converters.checked_files import read_checked, save_checked
from keras_lm.presets.source import stored_weights
from keras_lm.utils import files
from keras_lm.utils.user_arguments import is_finite


def freeze(task, call):
    """Freeze a task's backbone, for a policy that `call` enables.

    Raises:
        ValueError: if the task's optimizer has state already.
    """
    if task.optimizer is not None and task.optimizer.built:
        raise ValueError(
            f"The task's optimizer has state for other weights: call {call} before fit, or "
            "task.compile() before it."
        )
    for variable in task.backbone.trainable_variables:
        variable.trainable = False
    task.forget_graphs()  # they compute without the policy


def head(task):
    """Return a task's trainable variables that are not its backbone's, by their paths."""
    below = {id(variable) for variable in task.backbone.weights}
    learnt = {id(variable) for variable in task.trainable_variables} - below
    return {path: v for path, v in stored_weights(task).items() if id(v) in learnt}


def of_backbone(task, is_learnt):
    """Return the variables of a task's backbone that a policy trains, by their paths."""
    return {v.path: v for v in task.backbone.weights if is_learnt(v.path)}


def digest(task, is_learnt):
    """Return the SHA-256 of the weights of a task's backbone that a policy leaves as they are."""
    checksum = hashlib.sha256()
    for variable in sorted(task.backbone.weights, key=lambda v: v.path):
        if not is_learnt(variable.path) and "seed_generator" not in variable.path:
            checksum.update(f"{variable.path} {variable.dtype} {tuple(variable.shape)}\n".encode())
            checksum.update(np.ascontiguousarray(variable.numpy()).view(np.uint8).data)
    return checksum.hexdigest()


def save(task, path, format, settings, is_learnt):
    """Write what a task has learnt, with the settings that `load` returns, atomically."""
    settings = settings | {"task": type(task).__name__, "backbone": digest(task, is_learnt)}
    learnt = head(task) | of_backbone(task, is_learnt)
    arrays = {name: np.array(variable.numpy()) for name, variable in learnt.items()}
    for name in [name for name, array in arrays.items() if not is_finite(array)]:
        raise ValueError(
            f"{name} is NaN or infinite, so nothing was written: train again from an earlier "
            "state, with a lower learning_rate."
        )
    with files.replacing(path) as new:
        metadata = {"format": format, "settings": json.dumps(settings)}
        save_checked(arrays, new, metadata)


def load(task, path, format, call, is_learnt, shapes):
    """Return the settings and arrays of a file by `save`, checked against a task.

    Args:
        task, path, format, is_learnt: see `save`.
        call: str, the function that writes such files.
        shapes: maps settings to the path → shape of the backbone's variables in the file.

    Raises:
        FileNotFoundError: if there is no such file.
        CheckpointError: if the file is damaged or of another format.
        ValueError: if it belongs to another backbone, or to a task of other shapes.
    """
    path = files.as_path(path)
    settings, arrays = _read(path, format, call)
    try:
        backbone, expected = settings["backbone"], shapes(settings)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} is damaged: its settings are {str(settings)[:200]} ({error}). Copy it again."
        ) from error
    if backbone != digest(task, is_learnt):
        raise ValueError(
            f"{path} was trained over a backbone with other weights: load it into a task from the "
            "preset or checkpoint that the training began with."
        )
    expected |= {name: tuple(variable.shape) for name, variable in head(task).items()}
    stored = {name: array.shape for name, array in arrays.items()}
    if stored != expected:
        wrong = next(n for n in [*expected, *stored] if stored.get(n) != expected.get(n))
        raise ValueError(
            f"{path} is of a {settings.get('task')} in which {wrong!r} is {stored.get(wrong)}, and "
            f"in this {type(task).__name__} it is {expected.get(wrong)}: make the task as it was."
        )
    for name, array in arrays.items():
        if array.dtype.kind not in "fV" or not is_finite(array):
            raise CheckpointError(
                f"{path}: {name!r} holds {array.dtype} that are not all finite numbers: the file "
                "is damaged, or the training failed. Copy it again."
            )
    return settings, arrays


def assign(task, arrays, is_learnt):
    """Assign the arrays of `load` to a task whose policy is enabled."""
    for name, variable in (head(task) | of_backbone(task, is_learnt)).items():
        variable.assign(arrays[name])


def _read(path, format, call):
    call = f"keras_lm.training.{call}"
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: pass a file by {call}.")
    try:
        with files.reading(path) as local:
            metadata, arrays = read_checked(local)
        if metadata.get("format") == format:
            return json.loads(metadata["settings"]), arrays
    except CheckpointError:
        raise
    except (safetensors.SafetensorError, OSError, KeyError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is damaged or incomplete: {error}. Copy it again."
        ) from error
    raise CheckpointError(f"{path} was not written by {call}: pass one that was.")
