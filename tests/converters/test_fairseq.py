"""fairseq's checkpoints: the configuration inside, tensors by name, and nothing that could run."""

import argparse
import pathlib
import pickle
import shutil
import zipfile
from importlib.util import find_spec

import numpy as np
import pytest

from keras_lm.converters import CheckpointError, open_checkpoint

DICTIONARY = "the 12\ncat 3\n"


def data(value):
    """Instructions of the pickle machine that push plain data."""
    return pickle.dumps(value, 2)[2:-1]


def tensor(shape):
    """Instructions that rebuild a tensor at the beginning of the file's one storage."""
    storage = b"(" + data("storage") + b"ctorch\nFloatStorage\n" + data("0") + data("cpu")
    storage += data(64) + b"tQ"
    strides = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    arguments = storage + data(0) + data(shape) + data(strides) + data(False) + data(None)
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR"


def write(path, shapes, **parts):
    model = b"}" + b"".join(data(name) + tensor(shape) + b"s" for name, shape in shapes.items())
    program = b"\x80\x02}" + data("model") + model + b"s"
    program += b"".join(data(name) + data(value) + b"s" for name, value in parts.items())
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", program + b".")
        archive.writestr("x/data/0", np.arange(64, dtype=np.float32).tobytes())
    (path.parent / "dict.txt").write_text(DICTIONARY)
    return path.parent


OPTIONS = {"arch": "roberta_base", "encoder_layers": 2, "dropout": 0.1, "bpe": None}


@pytest.mark.parametrize(
    "parts",
    [
        {"args": argparse.Namespace(**OPTIONS, lr=[0.1], nested={"a": 1})},
        {"args": None, "cfg": {"task": {"x": 1}, "model": {"_name": "roberta_base", **OPTIONS}}},
        {"args": None, "cfg": {"model": argparse.Namespace(**OPTIONS)}},
    ],
)
@pytest.mark.parametrize("name", ["model.pt", "checkpoint_best.pt", "checkpoint_small.pt"])
def test_configuration_and_tensors(tmp_path, parts, name):
    folder = write(tmp_path / name, {"encoder.a.weight": (2, 3), "encoder.a.bias": (2,)}, **parts)
    checkpoint = open_checkpoint(folder)
    assert checkpoint.format == "fairseq"
    assert {k: v for k, v in checkpoint.config.items() if k != "_name"} == OPTIONS
    assert set(checkpoint.tensors) == {"encoder.a.weight", "encoder.a.bias"}
    np.testing.assert_array_equal(checkpoint.tensors["encoder.a.weight"], [[0, 1, 2], [3, 4, 5]])


def test_the_architecture_of_a_new_file_is_its_name(tmp_path):
    folder = write(tmp_path / "model.pt", {"w": (2,)}, cfg={"model": {"_name": "roberta", "x": 1}})
    assert open_checkpoint(folder).config["arch"] == "roberta"


def test_fused_projections_of_old_files_are_three(tmp_path):
    shapes = {"l.0.self_attn.in_proj_weight": (6, 2), "l.0.self_attn.in_proj_bias": (6,)}
    folder = write(tmp_path / "model.pt", shapes, args=argparse.Namespace(**OPTIONS))
    tensors = open_checkpoint(folder).tensors
    for index, letter in enumerate("qkv"):
        weight, bias = (f"l.0.self_attn.{letter}_proj.{leaf}" for leaf in ("weight", "bias"))
        assert tensors.shape(weight) == (2, 2)
        np.testing.assert_array_equal(tensors[weight].ravel(), np.arange(4) + 4 * index)
        np.testing.assert_array_equal(tensors[bias], np.arange(2) + 2 * index)
    assert len(tensors) == 6


def test_several_checkpoints(tmp_path):
    for name in ("checkpoint1.pt", "checkpoint2.pt"):
        write(tmp_path / name, {"w": (2,)}, args=argparse.Namespace(arch=name))
    with pytest.raises(CheckpointError, match=r"checkpoint1.pt, checkpoint2.pt.*of their own"):
        open_checkpoint(tmp_path)
    write(tmp_path / "checkpoint_best.pt", {"w": (2,)}, args=argparse.Namespace(arch="best"))
    assert open_checkpoint(tmp_path).config == {"arch": "best"}


@pytest.mark.parametrize("parts", [{}, {"args": None}, {"cfg": [1]}, {"args": 5}])
def test_without_a_configuration(tmp_path, parts):
    folder = write(tmp_path / "model.pt", {"w": (2,)}, **parts)
    with pytest.raises(CheckpointError, match=r"model\.pt holds no configuration"):
        open_checkpoint(folder)


def test_nested_options_do_not_unfold(tmp_path):
    nested = []
    for _ in range(60):  # each the double of the last: 2^60 entries if anyone walked them
        nested = [nested, nested]
    args = argparse.Namespace(arch="roberta", deep=nested)
    folder = write(tmp_path / "model.pt", {"w": (2,)}, args=args)
    assert open_checkpoint(folder).config == {"arch": "roberta"}


@pytest.mark.parametrize("name", ["vh", "vl"])
def test_a_published_model(tmp_path, name):
    spec = find_spec("sapiens")
    if spec is None:
        pytest.skip("needs: pip install --no-deps -r requirements-weights.txt")
    folder = pathlib.Path(spec.submodule_search_locations[0]) / "models" / "v1"
    with pytest.raises(CheckpointError, match=r"checkpoint_vh\.pt, checkpoint_vl\.pt"):
        open_checkpoint(folder)
    for file in (f"checkpoint_{name}.pt", "dict.txt"):
        shutil.copy(folder / file, tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.config["encoder_layers"] == 4
    assert checkpoint.config["activation_fn"] == "gelu"
    assert len(checkpoint.tensors) == 4 + 4 * 16 + 6
    assert checkpoint.tensors["decoder.sentence_encoder.embed_tokens.weight"].shape == (25, 128)
