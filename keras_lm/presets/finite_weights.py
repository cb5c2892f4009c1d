"""Weights that are not numbers are not written: what training has broken would answer nonsense."""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from keras_lm import files
from keras_lm.argument_types import PathLike
from keras_lm.converters.checked_files import is_finite
from keras_lm.presets.source import stored_weights


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
                "answers mean nothing, and nothing was written. Go back to weights of before, and "
                "train with a lower learning_rate; allow_nan=True writes them, for a look at them."
            )


def save_whole(
    model: keras.Model,
    save: Callable[..., None],
    path: PathLike,
    overwrite: bool,
    allow_nan: bool,
    **options: Any,
) -> None:
    """Call a method of Keras's so that a file of before stays until the new one is complete.

    Args:
        model: a backbone or a task.
        save: its `keras.Model.save` or `save_weights`.
        path, overwrite, **options: arguments of that.
        allow_nan: bool. Whether to write weights that are NaN or infinite.

    Raises:
        ValueError: if weights are NaN or infinite, unless `allow_nan`.
    """
    check_finite(model, allow_nan)
    is_file = str(path).endswith((".keras", ".h5")) and "://" not in str(path)
    if not is_file or (files.as_path(path).exists() and not overwrite):  # Keras asks
        save(path, overwrite, **options)
        return
    path = files.as_path(path)
    with files.replacing(path) as new:
        written = new.with_name(path.name)
        save(written, True, **options)
        written.rename(new)
