"""`tf_model.h5`: what Hugging Face's TensorFlow models saved, as the tensors of its PyTorch ones.

A tensor there is `LAYER/CLASS/bert/encoder/layer_._0/…/kernel:0`: `_._` stands for a step into a
list, `OLD___NEW` for NEW, and kernels are stored (in, out).
"""

import pathlib
import re

import numpy as np

from keras_lm.converters.checked_files import CheckpointError, Entry, read_shard_index
from keras_lm.converters.hdf5_files import read_hdf5

LEAVES = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}


def read_tf_model(path: pathlib.Path) -> dict[str, Entry]:
    """Open a `tf_model.h5`; tensors are keyed by their names in PyTorch's files."""
    # Each lies in a group for its layer, under a name that begins with the model's class.
    found = read_hdf5(path).items()
    return dict(_renamed(name.partition("/")[2] or name, entry) for name, entry in found)


def read_tf_shards(index: pathlib.Path) -> dict[str, Entry]:
    """Open the shards of a `tf_model.h5.index.json`, whose tensors lie in no group of a layer."""
    entries = {}
    for name, shard in read_shard_index(index).items():
        found = read_hdf5(index.parent / shard, named_by=str(index))
        if name not in found:
            raise CheckpointError(
                f"{index} places {name!r} in {shard}, which has no such tensor. The files are of "
                "different checkpoints or versions: copy or download them together."
            )
        entries |= [_renamed(name, found[name])]
    return entries


def _renamed(name: str, entry: Entry) -> tuple[str, Entry]:
    """Return a tensor's name and entry in the form of PyTorch's files."""
    name = re.sub(r"/[^/]*___([^/]*)/", r"/\1/", name.removesuffix(":0")).replace("_._", "/")
    parts = [part for part in name.split("/") if part]
    parts = parts[1:] or parts  # without the class of the model
    leaf = parts[-1]
    parts[-1] = LEAVES.get(leaf, leaf)
    (shape, read), is_kernel = entry, leaf == "kernel"
    if is_kernel:
        entry = shape[::-1], lambda: read().T
    elif leaf == "bias" and len(shape) == 2 and shape[0] == 1:  # of a GPT's layers
        entry = shape[1:], lambda: np.squeeze(read(), axis=0)
    return ".".join(parts), entry
