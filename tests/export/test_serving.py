"""What TF Serving reads beside a SavedModel is complete, valid, and fits the signatures."""

import re

import pytest
import tensorflow as tf
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,  # noqa: F401 - its messages are part of the pool
)
from tensorflow.python.saved_model import fingerprinting_utils
from tensorflow_serving.config import model_server_config_pb2

from keras_lm import tasks
from keras_lm.export import saved_model

CASES = ["classifier of pairs", "regressor of pairs on a scalar mix", "fill mask"]


@pytest.fixture(scope="module", params=CASES)
def exported(request, exported_as):
    return exported_as(request.param)


@pytest.fixture(scope="module")
def regressor(make_backbone, tokenizer):
    return tasks.TextRegressor(make_backbone(), tokenizer=tokenizer)


# === Warm-up ===


def test_warmup_runs_through_the_signatures(exported, requests_of):
    task, folder, signatures = exported
    rows, lengths, used = set(), set(), set()
    for signature, name, inputs in requests_of(folder):
        assert name == "film critic"
        answer = signatures[signature](**inputs)
        (number,) = {len(value) for value in inputs.values()}
        assert all(len(value) == number for value in answer.values())
        assert answer.get("tokens", tf.zeros([1, 1])).shape[1] > 0  # MaskedLM has what to fill in
        used.add(signature)
        if signature == "serving_default":
            rows.add(number)
            lengths.add(len(inputs["text"][0].numpy().split()))
    assert used == set(signatures) - {"tokens"}
    assert rows == set(saved_model.WARMUP_SIZES)
    assert min(lengths) == 1
    assert max(lengths) > task.packing["sequence_length"]


def test_warmup_is_small(exported, requests_of):
    assert 10 <= len(list(requests_of(exported.folder))) <= 100


# === Batching ===


def batching_parameters():
    """TF Serving's message BatchingParameters, which its Python package does not hold."""
    file = descriptor_pb2.FileDescriptorProto(name="batching.proto", package="t", syntax="proto3")
    file.dependency.append("google/protobuf/wrappers.proto")
    message = file.message_type.add(name="BatchingParameters")
    names = ["max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads"]
    for number, name in enumerate(names, start=1):
        message.field.add(
            name=name, number=number, label=1, type=11, type_name=".google.protobuf.Int64Value"
        )
    message.field.add(name="allowed_batch_sizes", number=6, label=3, type=3)
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.BatchingParameters"))()


def test_a_card_shows_how_to_ask(exported):
    card = (exported.folder / "README.md").read_text()
    code = re.search(r"```python\n(.*?)```", card, re.S)[1].replace("FOLDER", str(exported.folder))
    exec(code, {})
    assert "| Task | `" in card


def test_batching_parameters(exported):
    text = (exported.folder / "batching_params.pbtxt").read_text()
    parameters = text_format.Parse(text, batching_parameters())
    sizes = list(parameters.allowed_batch_sizes)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == parameters.max_batch_size.value
    assert {field.name for field, _ in parameters.ListFields()} == {
        field.name for field in parameters.DESCRIPTOR.fields
    }


# === Models ===


def test_models_config(regressor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = 'a "good" ñame {x}'
    regressor.export(name)
    path = tmp_path / name / "models.config"
    config = text_format.Parse(path.read_text("utf-8"), model_server_config_pb2.ModelServerConfig())
    (model,) = config.model_config_list.config
    assert model.name == name
    assert model.base_path == str(tmp_path / name)
    assert model.model_platform == "tensorflow"
    assert f"/models/{name}" in path.read_text("utf-8")
    assert sorted(p.name for p in path.parent.iterdir()) == ["1", "models.config"]


def test_models_config_is_the_users(tmp_path):
    (tmp_path / "models.config").write_text("mine")
    saved_model.write_models_config(tmp_path, "critic")
    assert (tmp_path / "models.config").read_text() == "mine"


@pytest.mark.parametrize("name", ["film:critic", "film\ncritic", "film\udcffcritic"])
def test_names_that_no_model_can_have(name, regressor, tmp_path):
    with pytest.raises(ValueError, match="TF Serving names a model after its folder"):
        regressor.export(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="TF Serving names a model after its folder"):
        saved_model.model_name("/")


# === The version as a whole ===


@pytest.mark.parametrize(
    "function", [pytest.param("write_warmup", marks=pytest.mark.thorough), "write_batching"]
)
def test_failure_leaves_nothing_behind(function, regressor, tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError("no space left")

    monkeypatch.setattr(saved_model, function, fail)
    with pytest.raises(OSError, match="no space left"):
        regressor.export(tmp_path / "new" / "models")
    assert list(tmp_path.iterdir()) == []


def test_fingerprint_is_that_of_the_saved_model(exported):
    folder = str(exported.folder)
    assert fingerprinting_utils.singleprint_from_fingerprint_proto(
        folder
    ) == fingerprinting_utils.singleprint_from_saved_model_proto(folder)
