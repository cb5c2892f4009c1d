"""A flipped byte in a file of ours is refused, or changes nothing."""

import numpy as np
import pytest
import safetensors
from safetensors.numpy import save_file

from keras_lm.converters import CheckpointError
from keras_lm.converters.checked_files import (
    read_checked,
    read_safetensors,
    save_checked,
    write_safetensors,
)


@pytest.fixture
def arrays():
    rng = np.random.default_rng(0)
    return {
        "a/kernel": rng.normal(size=(8, 4)).astype("float32"),
        "a/bias": np.zeros(4, "float16"),
        "steps": np.array(3, "int64"),
    }


def flipped(content, seed):
    rng = np.random.default_rng(seed)
    changed = bytearray(content)
    changed[rng.integers(len(changed))] ^= int(rng.integers(1, 256))
    return bytes(changed)


@pytest.mark.parametrize("reader", ["whole", "lazy"])
def test_no_flipped_byte_loads_with_other_values(reader, arrays, tmp_path):
    path = tmp_path / "model.safetensors"
    metadata = {"settings": '{"rank": 4, "alpha": 16.0}'}
    save_checked(arrays, path, metadata)
    content, refused = path.read_bytes(), 0
    for seed in range(300):
        path.write_bytes(flipped(content, seed))
        try:
            if reader == "whole":
                stated, results = read_checked(path)
                assert stated["settings"] == metadata["settings"]
            else:
                results = {name: read() for name, (_, read) in read_safetensors(path).items()}
        except (CheckpointError, safetensors.SafetensorError):
            refused += 1
            continue
        assert results.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(results[name], array)
            assert results[name].dtype == array.dtype
    assert refused > 250


def test_the_file_and_the_tensor_are_named(arrays, tmp_path):
    write_safetensors(tmp_path, arrays, 2**30)
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content.replace(arrays["a/kernel"].tobytes(), bytes(128)))
    with pytest.raises(CheckpointError, match=r"model\.safetensors is damaged at 'a/kernel'"):
        read_safetensors(path)["a/kernel"][1]()


def test_files_without_checksums_load(arrays, tmp_path):
    save_file(arrays, tmp_path / "older.safetensors", {"settings": "{}"})
    metadata, actual = read_checked(tmp_path / "older.safetensors")
    assert metadata == {"settings": "{}"}
    np.testing.assert_array_equal(actual["a/kernel"], arrays["a/kernel"])


def test_shards_are_checked(arrays, tmp_path):
    write_safetensors(tmp_path, arrays, 100)
    for path in tmp_path.glob("model-*.safetensors"):
        path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))
        with pytest.raises(CheckpointError, match="damaged"):
            for _, read in read_safetensors(path).values():
                read()
