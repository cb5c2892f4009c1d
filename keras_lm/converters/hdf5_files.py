"""Weights in HDF5, keyed by their path: KerasHub's presets, ELMo's, and `tf_model.h5`.

The last are what Hugging Face's TensorFlow models saved, read as the tensors of its PyTorch ones. A
weight there is named `CLASS/bert/encoder/layer_._0/…/kernel:0`: `_._` stands for a step into a
list, `OLD___NEW` for NEW, and kernels are stored (in, out). `tf_model.h5` has it in a group for its
layer; shards and safetensors leave out the class.
"""

import functools
import pathlib
import re

import h5py
import ml_dtypes
import numpy as np

from keras_lm.converters.checked_files import (
    CheckpointError,
    Entry,
    read_shard_index,
    read_shards,
    require_file,
)

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


# === Hugging Face's TensorFlow models ===

LEAVES = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}
MATRICES = ("emb_projs", "out_projs")  # lists of Transformer-XL's, stored like kernels
TENSORFLOW = ":0"  # how names of TensorFlow's weights end


def read_tf_model(path: pathlib.Path) -> dict[str, Entry]:
    """Open a `tf_model.h5`; tensors are keyed by their names in PyTorch's files."""
    entries = {}
    for name, entry in read_hdf5(path).items():
        entries[without_class(name.partition("/")[2] or name)] = entry
    return dict(_renamed(name, entry) for name, entry in entries.items())


def read_tf_shards(index: pathlib.Path) -> dict[str, Entry]:
    """Open the shards of a `tf_model.h5.index.json`; the same keys."""
    return dict(_renamed(*item) for item in read_shards(index, read_hdf5, without_class).items())


def with_pytorch_names(entries: dict[str, Entry]) -> dict[str, Entry]:
    """Return the entries of safetensors that Hugging Face's TensorFlow models saved."""
    return dict(_renamed(name, entry) for name, entry in entries.items())


def without_class(name: str) -> str:
    """Return the name under which a shard has the weight of a name, PyTorch's as they are."""
    is_whole = "model." in name or not name.endswith(TENSORFLOW)
    return name if is_whole else name.partition("/")[2] or name


def _renamed(name: str, entry: Entry) -> tuple[str, Entry]:
    """Return a tensor's name and entry in the form of PyTorch's files."""
    path = "/" + name.removesuffix(TENSORFLOW)
    path = re.sub(r"/[^/]*___([^/]*)/", r"/\1/", path).replace("_._", "/")
    parts = [part for part in path.split("/") if part]
    if "model." in name:  # which has its class still
        parts = parts[1:] or parts
    leaf = parts[-1]
    parts[-1] = LEAVES.get(leaf, leaf)
    shape, read = entry
    if leaf == "kernel" or any(part in MATRICES for part in parts):
        entry = shape[::-1], lambda: read().T
    elif leaf == "bias" and len(shape) == 2 and shape[0] == 1:  # of a GPT's layers
        entry = shape[1:], lambda: np.squeeze(read(), axis=0)
    return ".".join(parts), entry
