"""What trax saves of a model: its weights in the order of its layers, without names."""

import pathlib

import ml_dtypes
import numpy as np

from keras_lm.converters.checked_files import CheckpointError, Entry, read_config
from keras_lm.converters.gin_files import read_gin
from keras_lm.converters.numpy_pickle import Array, load_arrays, load_npy

CONFIG = "config.gin"
MOST_PARTS = 100_000  # of nested weights, of which each may be named many times


def find_trax(folder: pathlib.Path) -> pathlib.Path | None:
    """Return the checkpoint `model.pkl.gz` or `model.pkl` of a folder, or its only `model*.pkl`.

    Raises:
        CheckpointError: if there are several, of which none has that name.
    """
    found = sorted([*folder.glob("model*.pkl.gz"), *folder.glob("model*.pkl")])
    usual = [path for path in found if path.name in ("model.pkl.gz", "model.pkl")]
    if len(found) > 1 and not usual:
        raise CheckpointError(
            f"{folder} has several models: {', '.join(path.name for path in found)}. Move all but "
            "one into folders of their own."
        )
    return next(iter(usual or found), None)


def read_trax(folder: pathlib.Path) -> tuple[dict, dict[str, Entry]] | None:
    """Return the configuration of a checkpoint of trax, and its arrays by their numbers: `"0"`, ….

    The configuration is what `config.gin` binds, which trax writes beside it, or `config.json`.
    None for a folder without such a checkpoint.

    Source: google/trax, `supervised/training.py`, `supervised/trainer_lib.py` and
    `layers/base.py`, of which the oldest save nested weights, later ones a list, and the last the
    list in a file of its own.
    """
    path = find_trax(folder)
    saved = None if path is None else load_arrays(path)
    if not isinstance(saved, dict) or not saved.keys() & {"weights", "flat_weights"}:
        return None
    weights = saved.get("flat_weights", saved.get("weights"))
    if isinstance(weights, int):
        name = path.name.removesuffix(".gz").removesuffix(".pkl")
        arrays = load_npy(folder / f"{name}.weights.npy.gz")
    else:
        arrays = _flat(weights, path)
    gin = folder / CONFIG
    config = read_gin(gin) if gin.is_file() else read_config(folder, "config.json")
    return config, {str(i): _entry(array) for i, array in enumerate(arrays)}


def _flat(weights, path):
    """Return the arrays of nested weights, in their order."""
    found, left, parts = [], [weights], 0
    while left:
        part = left.pop()
        parts += 1
        if isinstance(part, (list, tuple)) and parts + len(part) <= MOST_PARTS:
            left += reversed(part)
        elif isinstance(part, (list, tuple)):
            raise CheckpointError(f"{path} has more than {MOST_PARTS} parts: it is damaged.")
        elif isinstance(part, Array) and part.value is not None:
            found.append(part.value)
    return found


def _entry(array):
    def read():
        # bfloat16 is saved as its bits.
        is_bits = array.dtype == np.uint16
        return array.view(ml_dtypes.bfloat16).astype("float32") if is_bits else array

    return array.shape, read
