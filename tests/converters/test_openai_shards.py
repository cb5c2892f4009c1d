"""GPT's nameless shards: split to shapes, and errors for damaged ones."""

import json
import shutil

import numpy as np
import pytest

from keras_lm.converters import CheckpointError, open_checkpoint
from keras_lm.converters.formats import OPENAI_BLOCK, OPENAI_SHAPES


@pytest.fixture
def folder(goldens, tmp_path):
    return shutil.copytree(goldens("tf1-gpt1"), tmp_path / "gpt")


def test_arrays_are_cut_from_the_shards_in_order(folder):
    checkpoint = open_checkpoint(folder)
    assert checkpoint.format == "openai"
    assert checkpoint.config == {
        "n_vocab": 110,
        "n_ctx": 12,
        "n_embd": 40,
        "n_head": 4,
        "n_layer": 3,
    }
    whole = np.concatenate([np.load(folder / f"params_{i}.npy") for i in range(10)])
    read = [checkpoint.tensors[name] for name in checkpoint.tensors]
    assert len(read) == 2 + 3 * len(OPENAI_BLOCK)
    np.testing.assert_array_equal(np.concatenate([array.ravel() for array in read]), whole)
    assert checkpoint.tensors["h2/mlp/c_fc/w"].shape == (1, 40, 160)
    assert checkpoint.tensors.shape("tokens") == (110, 40)


def test_shards_of_other_numbers_and_lengths(folder):
    whole = np.concatenate([np.load(folder / f"params_{i}.npy") for i in range(10)])
    expected = open_checkpoint(folder).tensors["h1/attn/c_attn/w"]
    for i in range(10):
        (folder / f"params_{i}.npy").unlink()
    for i, part in enumerate(np.split(whole, [10, 10, 5000])):
        np.save(folder / f"params_{i}.npy", part)
    np.testing.assert_array_equal(open_checkpoint(folder).tensors["h1/attn/c_attn/w"], expected)


def write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def without(name):
    return lambda folder: (folder / name).unlink()


def pickled(folder):
    np.save(folder / "params_3.npy", np.array([{"any": "code"}]), allow_pickle=True)


def zipped(folder):
    with (folder / "params_3.npy").open("wb") as file:
        np.savez(file, a=np.zeros(3))


def of_negative_length(folder):
    path = folder / "params_3.npy"
    path.write_bytes(path.read_bytes().replace(b"(", b"(-", 1))


def fewer_shapes(folder):
    shapes = json.loads((folder / OPENAI_SHAPES).read_text())
    (folder / OPENAI_SHAPES).write_text(json.dumps(shapes[:-1]))


@pytest.mark.parametrize(
    "damage, message",
    [
        (without("params_4.npy"), r"params_4\.npy, named by .*params_shapes\.json, is missing"),
        (without("params_9.npy"), "9 shards with 57636 numbers, but params_shapes.json asks for"),
        (write("params_2.npy", b"no array"), r"params_2\.npy cannot be read as an array"),
        (write("params_2.npy", b""), r"params_2\.npy is empty"),
        (write(OPENAI_SHAPES, b"[[1, "), "is not a list of shapes"),
        (write(OPENAI_SHAPES, b"[[1, 2], null]"), "is not a list of shapes"),
        (
            write(OPENAI_SHAPES, b"[[1, 2], [-4, -4]]"),
            r"is not a list of shapes \(-4 is not a size",
        ),
        (
            write(OPENAI_SHAPES, b"[[1, 2], [1e400]]"),
            r"is not a list of shapes \(inf is not a size",
        ),
        (write(OPENAI_SHAPES, b"[[1, 2], [4.7]]"), r"is not a list of shapes \(4\.7 is not a size"),
        (zipped, r"params_3\.npy cannot be read as an array"),
        (of_negative_length, r"params_3\.npy cannot be read as an array"),
        (fewer_shapes, "lists 37 shapes. GPT's are 2 of embeddings and 12 a block"),
        (pickled, r"params_3\.npy cannot be read as an array: .*Python objects"),
    ],
)
def test_damage_is_named(folder, damage, message):
    damage(folder)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(folder)
