"""Weights in HDF5: KerasHub's presets, one file or sharded, and ELMo's; keyed by their path."""

import functools
import pathlib

import h5py
import ml_dtypes
import numpy as np

from keras_lm.converters.checked_files import CheckpointError, Entry, require_file
from keras_lm.converters.shard_index import read_shard_index

# State of a training run that a weight file may hold beside the weights.
NOT_WEIGHTS = ("optimizer/", "seed_generator", "metrics/")
# What Keras 2.12 and 2.13 wrote for "layers"; presets of that time are still published.
OLD_LAYERS = "_layer_checkpoint_dependencies"
# Deflate makes zeros 1032 times as small; what claims more has no bytes in the file.
LARGEST_RATIO = 1100
# Weights get hardly smaller: a file may claim this many times its size, and any file a little.
LARGEST_RATIO_OF_ALL, NEGLIGIBLE = 20, 2**26


def read_hdf5(path: pathlib.Path, prefix: str = "", named_by: str = "") -> dict[str, Entry]:
    """Open an HDF5 file of weights; a tensor is keyed by `prefix` and its path in the file.

    Datasets whose values lie in other files, or nowhere, are refused; links to other files are not
    followed.
    """
    require_file(path, named_by)
    entries, claimed = {}, {}

    def visit(name, item):
        is_array = isinstance(item, h5py.Dataset) and item.shape is not None
        if is_array and not any(part in name for part in NOT_WEIGHTS):
            claimed[name] = _claimed(item, path, name)
            key = prefix + name.replace(OLD_LAYERS, "layers")
            entries[key] = (item.shape, functools.partial(_read_dataset, path, name))

    try:
        with h5py.File(path, "r") as file:
            file.visititems(visit)
    except (OSError, RuntimeError, KeyError) as error:
        raise _damaged(path, error) from error
    size, total = path.stat().st_size, sum(claimed.values())
    if total > LARGEST_RATIO_OF_ALL * size + NEGLIGIBLE:
        raise CheckpointError(
            f"{path} has {size} bytes, and its arrays claim {total}, which is more than weights "
            "can be compressed. It is damaged: copy or download it again."
        )
    return entries


def write_hdf5(path: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
    """Write a file that Keras's `load_weights` reads; tensors are keyed by their path in it."""
    with h5py.File(path, "w") as file:
        for name, array in tensors.items():
            file[name] = array


def read_hdf5_shards(index: pathlib.Path) -> dict[str, Entry]:
    """Open the shards that Keras's `model.weights.json` names."""
    entries = {}
    files: dict[str, dict[str, Entry]] = {}
    for layer, shards in read_shard_index(index).items():
        # A layer larger than what is left of a shard goes on in the next one.
        for shard in shards if isinstance(shards, list) else [shards]:
            if shard not in files:
                files[shard] = read_hdf5(index.parent / shard, named_by=str(index))
                entries.update(files[shard])
            start = layer.strip("/")
            if start and not any(name.startswith(start + "/") for name in files[shard]):
                raise CheckpointError(
                    f"{index} places {layer!r} in {shard}, which has no such tensor. The files are "
                    "of different checkpoints or versions: copy or download them together."
                )
    return entries


def _claimed(dataset: h5py.Dataset, path: pathlib.Path, name: str) -> int:
    """Return the bytes of a dataset; raise a CheckpointError if they are not in the file itself."""
    if dataset.external is not None or dataset.is_virtual:
        kind = "a virtual dataset" if dataset.is_virtual else "an external dataset"
        raise CheckpointError(
            f"{path}: {name!r} is {kind}, whose values lie in other files, which a checkpoint "
            "may not read. Copy the values into the file."
        )
    claimed = dataset.size * dataset.dtype.itemsize
    stored = dataset.id.get_storage_size()
    if claimed > LARGEST_RATIO * stored:
        raise CheckpointError(
            f"{path}: {name!r} claims the shape {dataset.shape}, which is {claimed} bytes, and "
            f"stores {stored}. The file is damaged: copy or download it again."
        )
    return claimed


def _read_dataset(path: pathlib.Path, name: str) -> np.ndarray:
    try:
        with h5py.File(path, "r") as file:
            dataset = file[name]
            value = np.asarray(dataset[()])
            # HDF5 has no bfloat16: Keras stores two opaque bytes and marks it in an attribute.
            if dataset.attrs.get("dtype") == "bfloat16" and value.dtype.itemsize == 2:
                value = value.view(ml_dtypes.bfloat16)
            return value
    except (OSError, RuntimeError, KeyError) as error:
        raise _damaged(path, error, f" at {name!r}") from error


def _damaged(path, error, where="") -> CheckpointError:
    return CheckpointError(
        f"{path} cannot be read as HDF5{where}: {error}. It is damaged, incomplete or of another "
        "format: copy or download it again."
    )
