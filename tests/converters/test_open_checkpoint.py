"""Which folder is recognised as which format, and the errors for those that are not."""

import json
import pathlib

import h5py
import huggingface_hub
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from keras_lm import converters
from keras_lm.converters import CheckpointError, open_checkpoint

GOLDENS = pathlib.Path(__file__).parents[1] / "goldens"
TENSORS = {
    "dense.weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "dense.bias": np.array([1, 2], ml_dtypes.bfloat16),
    "scale": np.array(3, np.float16),
}
BERT = {"model_type": "bert", "hidden_size": 3}


def write(folder, **files):
    """Write JSON files: `write(folder, config={...})` makes config.json."""
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return folder


def write_shards(folder, shards, weight_map=None):
    """Write shards (file name to tensors) and an index that is right unless another is given."""
    for name, tensors in shards.items():
        save_file(tensors, folder / name)
    correct = {tensor: name for name, tensors in shards.items() for tensor in tensors}
    index = {"metadata": {}, "weight_map": weight_map or correct}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def assert_holds(checkpoint, expected):
    assert set(checkpoint.tensors) == set(expected)
    assert len(checkpoint.tensors) == len(expected)
    for name, value in expected.items():
        assert checkpoint.tensors.shape(name) == value.shape
        assert checkpoint.tensors[name].dtype == value.dtype
        np.testing.assert_array_equal(checkpoint.tensors[name], value)


@pytest.mark.parametrize(
    ("format", "files"),
    [
        ("keras_lm", {"keras_lm": {"format": 1}}),
        ("huggingface", {"config": BERT}),
        ("huggingface", {"config": {"hidden_size": 3}}),  # Folders of 2019 do not say the type.
        ("huggingface", {"bert_config": {"hidden_size": 3}, "tokenizer_config": {}}),
    ],
)
@pytest.mark.parametrize("sharded", [False, True])
def test_safetensors(tmp_path, format, files, sharded):
    write(tmp_path, **files)
    if sharded:
        names = sorted(TENSORS)
        first = {names[0]: TENSORS[names[0]]}
        rest = {name: TENSORS[name] for name in names[1:]}
        write_shards(tmp_path, {"model-1-of-2.safetensors": first, "model-2.safetensors": rest})
    else:
        save_file(TENSORS, tmp_path / "model.safetensors")
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.format == format
    assert checkpoint.config == next(iter(files.values()))
    assert checkpoint.folder == tmp_path
    assert checkpoint.source == str(tmp_path)
    assert_holds(checkpoint, TENSORS)
    assert "nothing" not in checkpoint.tensors
    with pytest.raises(KeyError):
        checkpoint.tensors["nothing"]


def test_safetensors_come_before_pickles(tmp_path):
    write(tmp_path, config=BERT)
    save_file(TENSORS, tmp_path / "model.safetensors")
    (tmp_path / "pytorch_model.bin").write_bytes(b"never opened")
    assert_holds(open_checkpoint(str(tmp_path)), TENSORS)


@pytest.mark.parametrize("preset", ["classifier", "masked_lm"])
def test_keras_hub_presets(preset):
    checkpoint = open_checkpoint(GOLDENS / "bert-keras-hub" / preset)
    assert checkpoint.format == "keras_hub"
    assert checkpoint.config["registered_name"] == "keras_hub>BertBackbone"
    query = "layers/transformer_encoder/_self_attention_layer/query_dense/vars/0"
    assert checkpoint.tensors.shape(query) == checkpoint.tensors[query].shape == (16, 2, 8)
    task = {name for name in checkpoint.tensors if name.startswith("task/")}
    assert len(task) == {"classifier": 2, "masked_lm": 5}[preset]
    assert not any("optimizer" in name for name in checkpoint.tensors)


def test_keras_hub_shards_bfloat16_and_old_names(tmp_path):
    write(tmp_path, config={"class_name": "BertBackbone", "config": {}})
    kernel, bias = np.ones((2, 3), ml_dtypes.bfloat16), np.ones(3, np.float32)
    with h5py.File(tmp_path / "model_00000.weights.h5", "w") as file:
        file["layers/dense/vars/0"] = kernel
        file["layers/dense/vars/0"].attrs["dtype"] = "bfloat16"
        file["layers/dropout/seed_generator/vars/0"] = np.zeros(2)
    with h5py.File(tmp_path / "model_00001.weights.h5", "w") as file:
        file["_layer_checkpoint_dependencies/dense_1/vars/0"] = bias
    weight_map = {
        "/layers/dense": "model_00000.weights.h5",
        "/layers/dense_1": ["model_00001.weights.h5"],
    }
    (tmp_path / "model.weights.json").write_text(json.dumps({"weight_map": weight_map}))
    expected = {"layers/dense/vars/0": kernel, "layers/dense_1/vars/0": bias}
    assert_holds(open_checkpoint(tmp_path), expected)

    weight_map["/layers/dense_2"] = "model_00000.weights.h5"
    (tmp_path / "model.weights.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(CheckpointError, match=r"'/layers/dense_2' in model_00000.* no such tensor"):
        open_checkpoint(tmp_path)


def test_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder 'bert_huge'"):
        open_checkpoint("bert_huge")
    with pytest.raises(FileNotFoundError, match=r"is a file. Give the folder"):
        open_checkpoint(write(tmp_path, config=BERT) / "config.json")


def test_unrecognised_folder_lists_its_files(tmp_path):
    (tmp_path / "weights.onnx").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"weights\.onnx.*\n(.*\n)*.*Hugging Face") as caught:
        open_checkpoint(tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("files", "accepted"),
    [
        ({"keras_lm": {}}, "model.safetensors, model.safetensors.index.json."),
        ({"config": BERT}, "model.safetensors.*pytorch_model.bin"),
        ({"config": {"class_name": "BertBackbone"}}, "model.weights.h5, model.weights.json"),
        ({"bert_config": {}}, "bert_config.json, and no weights.* NAME.index"),
    ],
)
def test_missing_weights(tmp_path, files, accepted):
    with pytest.raises(CheckpointError, match=accepted):
        open_checkpoint(write(tmp_path, **files))


@pytest.mark.parametrize("text", ["{", "[1]", "", "\udcff", "[" * 100_000])
def test_invalid_configuration(tmp_path, text):
    (tmp_path / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=r"config\.json"):
        open_checkpoint(tmp_path)


def test_several_configurations(tmp_path):
    save_file(TENSORS, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"a_config\.json, b_config\.json"):
        open_checkpoint(write(tmp_path, a_config={}, b_config={}))


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (BERT, "model.safetensors"),
        (BERT, "pytorch_model.bin"),
        ({"class_name": "BertBackbone"}, "model.weights.h5"),
    ],
)
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"garbage, and no weights at all" * 9, "ownload it again"),
    ],
)
def test_not_the_weights(tmp_path, config, name, content, message):
    (write(tmp_path, config=config) / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        open_checkpoint(tmp_path)
    assert str(tmp_path / name) in str(caught.value)


def test_truncated_safetensors(tmp_path):
    path = write(tmp_path, config=BERT) / "model.safetensors"
    save_file(TENSORS, path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read as safetensors"):
        open_checkpoint(tmp_path)


def test_truncated_hdf5(tmp_path):
    source = GOLDENS / "bert-keras-hub" / "classifier" / "model.weights.h5"
    path = write(tmp_path, config={"class_name": "BertBackbone"}) / "model.weights.h5"
    path.write_bytes(source.read_bytes()[:-4000])
    with pytest.raises(CheckpointError, match=r"model\.weights\.h5 cannot be read as HDF5"):
        open_checkpoint(tmp_path)


def test_types_that_are_no_weights(tmp_path):
    write(tmp_path, config=BERT)
    save_file({"a": np.ones(4, ml_dtypes.float8_e4m3fn)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"model\.safetensors: 'a' .* float8 of quantized"):
        open_checkpoint(tmp_path).tensors["a"]
    write(tmp_path, config={"class_name": "BertBackbone"})
    with h5py.File(tmp_path / "model.weights.h5", "w") as file:
        file["a"] = ["text"]
    with pytest.raises(CheckpointError, match="'a' holds values of the type object"):
        open_checkpoint(tmp_path).tensors["a"]


def external(file, folder):
    file.create_dataset("a", (4,), "f4", external=[(str(folder / "secret"), 0, 16)])


def virtual(file, folder):
    with h5py.File(folder / "secret.h5", "w") as secret:
        secret["a"] = np.ones(4, "f4")
    layout = h5py.VirtualLayout((4,), "f4")
    layout[:] = h5py.VirtualSource(str(folder / "secret.h5"), "a", (4,))
    file.create_virtual_dataset("a", layout)


def without_bytes(file, folder):
    file.create_dataset("a", (2**40,), "f4", chunks=(1024,))


def with_few_bytes(file, folder):
    file.create_dataset("a", (2**40,), "f4", chunks=(1024,), compression="gzip")[:1024] = 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (external, "'a' is an external dataset, whose values lie in other files"),
        (virtual, "'a' is a virtual dataset, whose values lie in other files"),
        (without_bytes, r"'a' claims the shape \(1099511627776,\).* and stores 0\."),
        (with_few_bytes, "'a' claims the shape"),
    ],
)
@pytest.mark.parametrize("kind", ["keras_hub", "allennlp"])
def test_hdf5_holds_its_values_itself(tmp_path, make, message, kind):
    (tmp_path / "secret").write_bytes(b"secret")
    hub = kind == "keras_hub"
    write(tmp_path, **{"config" if hub else "options": {"class_name": "BertBackbone", "lstm": {}}})
    with h5py.File(tmp_path / ("model.weights.h5" if hub else "weights.hdf5"), "w") as file:
        make(file, tmp_path)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(tmp_path)


def test_hdf5_does_not_unfold_without_end(tmp_path):
    write(tmp_path, config={"class_name": "BertBackbone"})
    with h5py.File(tmp_path / "model.weights.h5", "w") as file:
        dataset = file.create_dataset("a", (2**25,), "f4", chunks=(2**24,), compression="gzip")
        dataset[:] = np.zeros(2**25, "f4")
    with pytest.raises(CheckpointError, match="its arrays claim 134217728, which is more"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("shape", [(1,) * 17, (0, 2**45)])
def test_shapes_that_no_tensor_has(tmp_path, shape):
    write(tmp_path, config=BERT)
    save_file({"a": np.zeros([min(axis, 1) for axis in shape])}, tmp_path / "model.safetensors")
    path = tmp_path / "model.safetensors"
    if 0 in shape:
        content = path.read_bytes()
        results, new = b"[0,1]", str(list(shape)).replace(" ", "").encode()
        size = int.from_bytes(content[:8], "little") + len(new) - len(results)
        path.write_bytes(size.to_bytes(8, "little") + content[8:].replace(results, new))
    with pytest.raises(CheckpointError, match=r"'a' has .* axes and begins with"):
        open_checkpoint(tmp_path)


def test_more_tensors_than_a_model_has(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_lm.converters.checked_files.MOST_TENSORS", 2)
    write(tmp_path, config=BERT)
    save_file(TENSORS, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="holds 3 tensors"):
        open_checkpoint(tmp_path)


def test_a_json_file_that_is_no_configuration(tmp_path):
    with (tmp_path / "keras_lm.json").open("wb") as file:
        file.truncate(2**28)
    with pytest.raises(CheckpointError, match=r"keras_lm\.json has 268435456 bytes"):
        open_checkpoint(tmp_path)


def test_messages_quote_no_more_than_can_be_read():
    error = CheckpointError("model.bin: " + "x" * 10_000 + " Copy it again.")
    assert len(str(error)) < 1500
    assert str(error).startswith("model.bin: x")
    assert str(error).endswith("x Copy it again.")


def test_hdf5_follows_no_links_and_reads_compressed_zeros(tmp_path):
    write(tmp_path, config={"class_name": "BertBackbone"})
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["a"] = np.ones(4, "f4")
    with h5py.File(tmp_path / "model.weights.h5", "w") as file:
        file["external"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "a")
        file["nothing"] = h5py.Empty("f4")
        file.create_dataset("zeros", data=np.zeros((1000, 1000), "f4"), compression="gzip")
    assert_holds(open_checkpoint(tmp_path), {"zeros": np.zeros((1000, 1000), "f4")})


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"a": "b.safetensors"}, r"b\.safetensors, named by .*index\.json, is missing"),
        ({"lost": "a.safetensors"}, r"'lost' in a\.safetensors, which has no such tensor"),
        ({"a": "../a.safetensors"}, "not a file name"),
        ({"a": "..\\a.safetensors"}, "not a file name"),
        ({"a": 3}, "not a file name"),
        ([], "weight_map"),
    ],
)
def test_wrong_index(tmp_path, weight_map, message):
    write(tmp_path, config=BERT)
    write_shards(tmp_path, {"a.safetensors": {"a": np.zeros(2)}}, weight_map or {"": None})
    if not weight_map:
        write(tmp_path, **{"model.safetensors.index": {"weight_map": []}})
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(tmp_path)


def fake_hub(monkeypatch, tmp_path, files):
    """Let snapshot_download copy from `files` (name to content) what its patterns admit."""
    calls = []

    def snapshot_download(name, revision, allow_patterns, ignore_patterns):
        calls.append((name, revision))
        admitted = huggingface_hub.utils.filter_repo_objects(
            files, allow_patterns=allow_patterns, ignore_patterns=ignore_patterns
        )
        for file in admitted:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_bytes(files[file])
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return calls


def test_hub_fetches_only_what_is_needed(monkeypatch, tmp_path):
    save_file(TENSORS, tmp_path / "made")
    weights = (tmp_path / "made").read_bytes()
    (tmp_path / "made").unlink()
    files = {
        "config.json": json.dumps(BERT).encode(),
        "vocab.txt": b"[PAD]",
        "source.spm": b"",
        "model.safetensors": weights,
        "model.fp16.safetensors": b"another precision",
        "pytorch_model.bin": b"the same again",
        "tf_model.h5": b"and again",
        "onnx/config.json": b"{}",
    }
    calls = fake_hub(monkeypatch, tmp_path, files)
    checkpoint = open_checkpoint("hf://someone/bert@v1")
    assert calls == [("someone/bert", "v1")]
    assert checkpoint.source == "hf://someone/bert@v1"
    assert_holds(checkpoint, TENSORS)
    there = {path.name for path in tmp_path.iterdir()}
    assert there == {"config.json", "vocab.txt", "source.spm", "model.safetensors"}


def test_hub_falls_back_to_pickles(monkeypatch, tmp_path):
    files = {
        "config.json": json.dumps(BERT).encode(),
        "pytorch_model.bin": (GOLDENS / "torch-formats" / "zip.bin").read_bytes(),
    }
    calls = fake_hub(monkeypatch, tmp_path, files)
    assert "dense.weight" in open_checkpoint("hf://someone/bert").tensors
    assert calls[-1] == ("someone/bert", None)


@pytest.mark.parametrize("layout", ["", "0_Transformer/"])
def test_hub_fetches_the_modules_of_sentence_transformers(monkeypatch, tmp_path, layout):
    weights = (GOLDENS / "torch-formats" / "zip.bin").read_bytes()
    types = {layout: "Transformer", "2_Dense": "Dense"}
    types = {path: f"sentence_transformers.models.{kind}" for path, kind in types.items()}
    modules = [{"type": kind, "path": path} for path, kind in types.items()]
    files = {
        "config.json": json.dumps({"__version__": "0.4.1"}).encode(),
        "modules.json": json.dumps(modules).encode(),
        f"{layout}config.json": json.dumps(BERT).encode(),
        f"{layout}pytorch_model.bin": weights,
        "2_Dense/config.json": b"{}",
        "2_Dense/pytorch_model.bin": weights,
    }
    fake_hub(monkeypatch, tmp_path, files)
    checkpoint = open_checkpoint("hf://someone/sentences")
    assert (checkpoint.root, checkpoint.folder) == (tmp_path, tmp_path / layout)
    assert "dense.weight" in checkpoint.tensors
    assert checkpoint.config == BERT
    assert all((tmp_path / name).is_file() for name in files)


def test_hub_errors(monkeypatch):
    def snapshot_download(*args, **kwargs):
        raise huggingface_hub.errors.LocalEntryNotFoundError("no network\nand a long story")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    with pytest.raises(
        CheckpointError, match=r"hf://someone/bert could not .* no network.*HF_TOKEN"
    ):
        open_checkpoint("hf://someone/bert")
    monkeypatch.undo()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="could not be fetched"):
        open_checkpoint("hf://not a name")


@pytest.mark.parametrize(
    "name",
    [
        "../../x",
        "a/../b",
        "/etc",
        "a/b/c",
        "",
        "a/b\0",
        "a/b@../../x",
        "a/b@refs/../../x",
        "a/b@/x",
    ],
)
def test_names_that_lead_elsewhere(monkeypatch, name):
    """huggingface_hub would look up a revision as a file of its cache, wherever that is."""
    monkeypatch.setattr(huggingface_hub, "snapshot_download", None)
    with pytest.raises(CheckpointError, match="is not the name of a repository"):
        open_checkpoint(f"hf://{name}")


def test_public_names():
    assert set(converters.__all__) >= {"Checkpoint", "CheckpointError", "open_checkpoint"}
    assert issubclass(CheckpointError, ValueError)
