"""What Hugging Face's TensorFlow models saved, as the tensors of its PyTorch ones.

A weight there is named `CLASS/bert/encoder/layer_._0/…/kernel:0`: `_._` stands for a step into a
list, `OLD___NEW` for NEW, and kernels are stored (in, out). `tf_model.h5` has it in a group for its
layer; shards and safetensors leave out the class.
"""

import pathlib
import re

import numpy as np

from keras_lm.converters.checked_files import Entry
from keras_lm.converters.hdf5_files import read_hdf5
from keras_lm.converters.shard_index import read_shards

LEAVES = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}
MATRICES = ("emb_projs", "out_projs")  # lists of Transformer-XL's, stored like kernels
TENSORFLOW = ":0"  # how names of TensorFlow's weights end


def read_tf_model(path: pathlib.Path) -> dict[str, Entry]:
    """Open a `tf_model.h5`; tensors are keyed by their names in PyTorch's files."""
    found = {}
    for name, entry in read_hdf5(path).items():
        found[without_class(name.partition("/")[2] or name)] = entry
    return dict(_renamed(name, entry) for name, entry in found.items())


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
