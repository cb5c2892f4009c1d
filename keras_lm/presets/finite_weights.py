"""Weights that are not numbers are not written: what training has broken would answer nonsense."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_lm.converters.checked_files import is_finite
from keras_lm.presets.source import stored_weights
from keras_lm.utils import files
from keras_lm.utils.argument_types import PathLike


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


class SavedWhole:
    """The methods of a backbone or a task that write files of Keras's, whole or not at all."""

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
        options = {} if max_shard_size is None else {"max_shard_size": max_shard_size}
        if max_shard_size is not None:
            filepath = str(filepath).removesuffix(".h5").removesuffix(".json") + ".json"
        _save_whole(super().save_weights, filepath, overwrite, **options)


def _save_whole(save, path, overwrite, **options):
    """Call a method of Keras's so that a file of before stays until the new one is complete."""
    is_file = str(path).endswith((".keras", ".h5")) and "://" not in str(path)
    if not is_file or (files.as_path(path).exists() and not overwrite):  # Keras asks
        save(path, overwrite, **options)
        return
    path = files.as_path(path)
    with files.replacing(path) as new:
        written = new.with_name(path.name)
        save(written, True, **options)
        written.rename(new)
