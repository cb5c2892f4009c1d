"""Weights are copied once, whatever their layout and type, and no memory is shared."""

import json

import keras
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

from keras_lm.converters.checked_files import (
    CheckpointError,
    in_parts,
    read_safetensors,
    save_checked,
    write_safetensors,
)
from keras_lm.converters.checkpoint import assign, is_read_by_keras, replaced_weights
from keras_lm.layers.basic import truncated_normal
from keras_lm.utils.processes import array_of, zeros

RNG = np.random.default_rng(0)
LAYOUTS = {
    "rows": RNG.normal(size=(700, 800)).astype("float32"),
    "transposed": RNG.normal(size=(800, 700)).astype("float32").T,
    "neither": RNG.normal(size=(700, 1600)).astype("float32")[:, ::2],
    "narrow": RNG.normal(size=(700, 800)).astype("float16"),
    "bfloat16": RNG.normal(size=(700, 800)).astype(ml_dtypes.bfloat16),
    "three axes": RNG.normal(size=(7, 100, 800)).astype("float32").transpose(1, 0, 2),
    "vector": RNG.normal(size=800).astype("float32"),
    "number": np.array(3, "float32"),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_assigned_values(name, dtype):
    array = LAYOUTS[name].copy(order="K")
    variable = keras.Variable(np.zeros(array.shape), dtype=dtype)
    assert assign(variable, array)
    expected = array.astype(dtype).astype("float32")
    array[...] = 7
    np.testing.assert_array_equal(array_of(variable).astype("float32"), expected)
    variable.assign(variable + 1)  # into memory of its own
    assert (array == 7).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["rows", "transposed", "bfloat16", "number"])
def test_numbers_that_are_not_finite_are_not_assigned(name, wrong):
    array = LAYOUTS[name].copy(order="K")
    array[(-1,) * array.ndim] = wrong
    variable = keras.Variable(np.ones(array.shape, "float32"))
    assert not assign(variable, array)
    assert (array_of(variable) == 1).all()


def test_zeros_are_of_each_variable_alone():
    first, second = (keras.Variable(zeros, shape=(300, 40), dtype="float32") for _ in range(2))
    first.assign_add(np.ones((300, 40), "float32"))
    assert array_of(first).min() == 1 and not array_of(second).any()
    assert not keras.ops.convert_to_numpy(zeros((3,), "int32")).any()


def test_new_weights_are_random_unless_they_are_replaced():
    make = truncated_normal()
    with replaced_weights():
        assert not keras.ops.convert_to_numpy(make((20, 30), "float32")).any()
    assert keras.ops.convert_to_numpy(make((20, 30), "float32")).all()
    assert not is_read_by_keras()


def test_a_written_file_is_what_the_package_reads(tmp_path):
    arrays = {name: LAYOUTS[name] for name in ("rows", "transposed", "narrow", "vector", "number")}
    arrays |= {"ids": np.arange(5), "é": np.zeros((0, 3), "float32"), "flags": np.eye(3) > 0}
    write_safetensors(tmp_path, arrays, 2**40)
    read = load_file(tmp_path / "model.safetensors")
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype
        np.testing.assert_array_equal(read[name], array)
    ours = read_safetensors(tmp_path / "model.safetensors")
    for name, (shape, read_one) in ours.items():
        assert shape == arrays[name].shape
        np.testing.assert_array_equal(read_one(), arrays[name])


def test_values_are_those_of_the_file_and_stay_so(tmp_path):
    array = RNG.normal(size=(3000, 700)).astype("float32")
    save_checked({"a": array}, tmp_path / "model.safetensors")
    mapped = read_safetensors(tmp_path / "model.safetensors")["a"][1]()
    assert not mapped.flags.writeable
    parts = [part.copy() for _, part in in_parts(mapped)]
    assert len(parts) > 1
    np.testing.assert_array_equal(np.concatenate(parts), array)
    np.testing.assert_array_equal(mapped, array)  # though what was read was forgotten


def test_a_type_that_is_not_read_is_named(tmp_path):
    header = {"a": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    with pytest.raises(CheckpointError, match=r"'a' has a type .* \(F8_E4M3\)"):
        read_safetensors(path)["a"][1]()
