"""tf_model.h5 of Hugging Face's TensorFlow models: the same weights as its PyTorch files."""

import json
import re
import shutil

import h5py
import numpy as np
import pytest

from keras_lm import tasks
from keras_lm.converters import CheckpointError, open_checkpoint
from keras_lm.models import Backbone


def tf_name(name, shape):
    """The name of a tensor of PyTorch's in TensorFlow's model, without the layer's group."""
    *path, leaf = name.split(".")
    place = "/".join(path)
    is_norm = "norm" in path[-1].lower() or path[-1].startswith("ln_")
    if leaf == "weight" and is_norm:
        leaf = "gamma"
    elif leaf == "bias" and is_norm:
        leaf = "beta"
    elif leaf == "weight" and "position" in path[-1]:
        leaf = "embeddings"
    elif leaf == "weight" and not ("embeddings" in place or path[-1] in ("wte", "wpe", "shared")):
        leaf = "weight" if path[-1].startswith("c_") else "kernel"  # a GPT's are no dense layers
    place = re.sub(r"/(\d+)(/|$)", r"_._\1\2", place)
    place = re.sub(r"^cls/", "mlm___cls/", place)
    return f"tf_model_class_1/{place}/{leaf}:0", leaf == "kernel"


def write(folder, tensors, shards=1):
    """Write tensors of PyTorch's as tf_model.h5, or in shards with an index."""
    paths, weight_map = [], {}
    for i in range(shards):
        name = "tf_model.h5" if shards == 1 else f"tf_model-{i + 1:05}-of-{shards:05}.h5"
        paths.append(folder / name)
        with h5py.File(paths[-1], "w") as file:
            for key in [*tensors][i::shards]:
                stored, is_transposed = tf_name(key, tensors[key].shape)
                array = np.asarray(tensors[key])
                array = array.T if is_transposed else array
                array = array[np.newaxis] if ".c_" in key and key.endswith("bias") else array
                group = "" if shards > 1 else key.split(".")[0] + "/"
                file.create_dataset(group + stored, data=array)
                weight_map[stored] = name
    if shards > 1:
        index = {"metadata": {}, "weight_map": weight_map}
        (folder / "tf_model.h5.index.json").write_text(json.dumps(index))
    return paths


@pytest.fixture
def tf_folder(goldens, tmp_path):
    def make(name, shards=1):
        tensors = open_checkpoint(goldens(name)).tensors
        shutil.copy(goldens(name) / "config.json", tmp_path)
        return tmp_path, write(tmp_path, {key: tensors[key] for key in tensors}, shards)

    return make


@pytest.mark.filterwarnings("ignore:.*left over in the checkpoint")
@pytest.mark.parametrize(
    "name, shards",
    [("bert", 1), ("roberta", 2), ("distilbert", 1), ("albert", 1), ("gpt2", 1), ("t5", 3)],
)
def test_equal_to_the_pytorch_file(goldens, tf_folder, name, shards):
    folder, _ = tf_folder(name, shards)
    tensors, expected = open_checkpoint(folder).tensors, open_checkpoint(goldens(name)).tensors
    assert set(tensors) == set(expected)
    for key in expected:
        assert tensors.shape(key) == expected[key].shape
        np.testing.assert_array_equal(tensors[key], expected[key], err_msg=key)
    cls = {"gpt2": tasks.CausalLM, "t5": tasks.Seq2SeqLM}.get(name, Backbone)
    arguments = {} if cls is Backbone else {"tokenizer": None}
    one, other = cls.from_preset(folder, **arguments), cls.from_preset(goldens(name), **arguments)
    for a, b in zip(one.weights, other.weights, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.filterwarnings("ignore:.*left over in the checkpoint")
def test_pytorch_files_come_first(goldens, tf_folder):
    folder, (path,) = tf_folder("bert")
    shutil.copy(goldens("bert") / "model.safetensors", folder)
    path.write_bytes(b"damaged")
    Backbone.from_preset(folder)


def test_damaged_files_are_named(tf_folder):
    folder, (_, second) = tf_folder("roberta", 2)
    second.unlink()
    with pytest.raises(CheckpointError, match=second.name):
        Backbone.from_preset(folder)
    with h5py.File(second, "w"):
        pass
    with pytest.raises(CheckpointError, match=f"in {second.name}, which has no such tensor"):
        Backbone.from_preset(folder)
