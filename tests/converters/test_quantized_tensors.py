"""Weights that other libraries quantized: bitsandbytes' own numbers again, a refusal for others."""

import json
import shutil

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from keras_lm import models
from keras_lm.converters import CheckpointError, open_checkpoint
from keras_lm.converters.checked_files import read_safetensors
from keras_lm.converters.quantized_tensors import ENTRIES, OTHERS, plain_tensors

pytestmark = pytest.mark.eager

# What transformers 5.24 and 4.57.6 write for bitsandbytes.
WRITTEN = [
    "bnb_4bit_compute_dtype",
    "bnb_4bit_quant_storage",
    "bnb_4bit_quant_type",
    "bnb_4bit_use_double_quant",
    "llm_int8_enable_fp32_cpu_offload",
    "llm_int8_has_fp16_weight",
    "llm_int8_skip_modules",
    "llm_int8_threshold",
    "load_in_4bit",
    "load_in_8bit",
    "quant_method",
]
METHODS = [
    "gptq",
    "awq",
    "aqlm",
    "vptq",
    "quanto",
    "eetq",
    "higgs",
    "hqq",
    "compressed-tensors",
    "fbgemm_fp8",
    "torchao",
    "gguf",
    "bitnet",
    "spqr",
    "fp8",
    "quark",
    "fp_quant",
    "auto-round",
    "mxfp4",
    "nvfp4",
    "mxfp8",
    "metal",
    "fouroversix",
    "sinq",
    "gemma",
]


def copy(source, folder, config=(), tensors=None):
    """Copy a golden checkpoint with other entries in its configuration, and other tensors."""
    shutil.copytree(source, folder)
    stated = json.loads((folder / "config.json").read_text()) | dict(config)
    (folder / "config.json").write_text(json.dumps(stated))
    if tensors is not None:
        save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("name", ["int8", "nf4", "fp4", "nested", "stored"])
@pytest.mark.parametrize("model_type", ["bert", "gpt2"])
def test_numbers_of_bitsandbytes(goldens, tmp_path, name, model_type):
    tensors = load_file(goldens("bitsandbytes") / f"{name}.safetensors")
    expected = tensors.pop("expected")
    layer = "h.0.attn.c_attn" if model_type == "gpt2" else "layer"
    named = {key.replace("layer", layer, 1): value for key, value in tensors.items()}
    save_file(named, tmp_path / "model.safetensors")
    entries = read_safetensors(tmp_path / "model.safetensors")
    actual = plain_tensors(tmp_path, {"model_type": model_type}, entries)
    assert list(actual) == [f"{layer}.weight"]
    shape, read = actual[f"{layer}.weight"]
    expected = expected.T if model_type == "gpt2" else expected  # transformers turns it round
    assert shape == expected.shape
    np.testing.assert_allclose(read(), expected, rtol=1e-3 if name == "int8" else 1e-6)


def test_a_model_in_8_bits(goldens, tmp_path):
    tensors = load_file(goldens("bert") / "model.safetensors")
    plain = dict(tensors)
    for name, value in list(tensors.items()):
        if name.startswith("cls."):
            del tensors[name], plain[name]
        elif "encoder.layer" in name and value.ndim == 2:
            scale = np.abs(value).max(1, keepdims=True)
            tensors[name] = np.rint(value * (127 / scale)).astype("int8")
            plain[name] = tensors[name] * (scale / 127)
            tensors[f"{name.removesuffix('.weight')}.SCB"] = scale[:, 0]
            tensors[f"{name}_format"] = np.array(0, "uint8")
    settings = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}}
    folder = copy(goldens("bert"), tmp_path / "int8", settings, tensors)
    ids = {"token_ids": np.array([[5, 6, 7]])}
    actual = models.BertBackbone.from_preset(folder)(ids)["sequence_output"]
    (tmp_path / "int8" / "model.safetensors").unlink()
    save_file(plain, folder / "model.safetensors")
    expected = models.BertBackbone.from_preset(folder)(ids)["sequence_output"]
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_every_entry_has_a_word():
    assert not ENTRIES.unknown(dict.fromkeys(WRITTEN, 1))


@pytest.mark.parametrize("method", METHODS)
def test_other_methods_are_refused_by_name(goldens, tmp_path, method):
    folder = copy(
        goldens("bert"), tmp_path / "it", {"quantization_config": {"quant_method": method}}
    )
    with pytest.raises(CheckpointError, match=f"quant_method='{method}'"):
        open_checkpoint(folder)


def test_an_older_name_of_the_entry(goldens, tmp_path):
    settings = {"compression_config": {"quant_method": "compressed-tensors"}}
    with pytest.raises(CheckpointError, match="quant_method='compressed-tensors'"):
        open_checkpoint(copy(goldens("bert"), tmp_path / "it", settings))


def test_an_unknown_entry_is_named(goldens, tmp_path):
    settings = {"load_in_8bit": True, "row_order": "odd"}
    folder = copy(goldens("bert"), tmp_path / "it", {"quantization_config": settings})
    with pytest.warns(UserWarning, match="row_order"):
        open_checkpoint(folder)


@pytest.mark.parametrize("ending", OTHERS)
def test_their_tensors_are_refused_without_a_configuration_too(goldens, tmp_path, ending):
    tensors = load_file(goldens("bert") / "model.safetensors")
    name = f"bert.encoder.layer.0.output.dense.{ending}"
    tensors[name] = np.zeros((2, 2), "int32")
    folder = copy(goldens("bert"), tmp_path / "it", tensors=tensors)
    with pytest.raises(CheckpointError, match=name):
        open_checkpoint(folder)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "bool"])
def test_integers_without_a_scale_are_refused(goldens, tmp_path, dtype):
    tensors = load_file(goldens("bert") / "model.safetensors")
    name = "bert.encoder.layer.0.output.dense.weight"
    tensors[name] = tensors[name].astype(dtype)
    folder = copy(goldens("bert"), tmp_path / "it", tensors=tensors)
    with pytest.raises(CheckpointError, match=f"{name} holds integers"):
        models.BertBackbone.from_preset(folder)


def test_another_layout_or_a_missing_part_is_named(goldens, tmp_path):
    tensors = load_file(goldens("bitsandbytes") / "int8.safetensors")
    tensors["layer.weight_format"] = np.array(2, "uint8")
    for damaged, message in [(tensors, "weight_format' is 2"), ({"a.SCB": np.ones(2)}, "a.weight")]:
        save_file(damaged, tmp_path / "model.safetensors")
        entries = read_safetensors(tmp_path / "model.safetensors")
        with pytest.raises(CheckpointError, match=message):
            plain_tensors(tmp_path, {}, entries)


def test_presets_of_keras_hub_with_quantized_layers(goldens, tmp_path):
    policy = keras.saving.serialize_keras_object(keras.dtype_policies.get("int8_from_float32"))
    folder = tmp_path / "it"
    shutil.copytree(goldens("bert-keras-hub") / "classifier", folder)
    config = json.loads((folder / "config.json").read_text())
    config["config"]["dtype"] = policy
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="QuantizedDTypePolicy"):
        open_checkpoint(folder)
