"""Weights that are not numbers are not written: what training has broken would answer nonsense."""

import keras

from keras_lm import files
from keras_lm.converters.checked_files import is_finite
from keras_lm.presets.source import stored_weights


def check_finite(model: keras.Model, allow_nan: bool = False) -> None:
    """Raise a ValueError if weights of a model are NaN or infinite.

    Args:
        model: a backbone or a task.
        allow_nan: bool. Whether to let them pass.
    """
    if allow_nan:
        return
    for path, variable in stored_weights(model).items():
        if not is_finite(keras.ops.convert_to_numpy(variable)):
            raise ValueError(
                f"{type(model).__name__} has weights that are NaN or infinite, in {path}, so its "
                "answers mean nothing, and nothing was written. Go back to weights of before, and "
                "train with a lower learning_rate; allow_nan=True writes them, for a look at them."
            )


class SavedWhole:
    """A `keras.Model` whose files are written whole or not at all, and with finite weights only."""

    def save(self, filepath, overwrite=True, zipped=None, allow_nan=False, **kwargs):
        """As `keras.Model.save`; `allow_nan=True` also writes weights that are NaN or infinite."""
        check_finite(self, allow_nan)
        _replace(super().save, filepath, overwrite, zipped=zipped, **kwargs)

    def save_weights(self, filepath, overwrite=True, max_shard_size=None, allow_nan=False):
        """As `keras.Model.save_weights`; for `allow_nan` see `save`."""
        check_finite(self, allow_nan)
        options = {} if max_shard_size is None else {"max_shard_size": max_shard_size}
        _replace(super().save_weights, filepath, overwrite, **options)


def _replace(save, path, overwrite, **options):
    """Call one of Keras's methods so that a file of before stays until the new one is complete."""
    is_file = str(path).endswith((".keras", ".h5")) and "max_shard_size" not in options
    if not is_file or "://" in str(path):
        save(path, overwrite, **options)
        return
    path = files.as_path(path)
    if path.exists() and not overwrite:  # Keras asks
        save(path, overwrite, **options)
        return
    with files.replacing(path) as new:
        written = new.with_name(path.name)
        save(written, True, **options)
        written.rename(new)
