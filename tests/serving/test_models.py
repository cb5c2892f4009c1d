"""Versions: they appear, take over, fail, are mended and go, and no request notices."""

import gc
import shutil
import threading
import time
import weakref

import numpy as np
import pytest
import requests
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from keras_lm.serving import Server
from keras_lm.serving.errors import ServingError
from keras_lm.serving.models import ModelConfig, Models


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def states(models, name="numbers"):
    return {number: state for number, state, _ in models.status(name)}


def answer(models, version=None):
    with models.lease("numbers", version) as saved_model:
        outputs = saved_model.run("serving_default", {"x": np.float32([0])})
    return outputs["y"][0]


@pytest.fixture
def folder(tmp_path, numbers):
    """A folder `numbers` with version 1."""
    path = tmp_path / "numbers"
    path.mkdir()
    numbers(path, 1)
    return path


@pytest.fixture
def models(folder):
    served = Models()
    served.configure([ModelConfig("numbers", folder)])
    yield served
    served.close()


def test_newest_is_served(models, folder, numbers):
    assert answer(models) == 1
    numbers(folder, 3)
    numbers(folder, 2)
    (folder / "notes").mkdir()
    (folder / "4").write_text("no folder")
    (folder / str(10**20)).mkdir()
    models.poll()
    assert answer(models) == 3
    assert states(models) == {3: "AVAILABLE", 1: "END"}


def test_removed_version_gives_way_to_an_older_one(models, folder, numbers):
    numbers(folder, 2)
    models.poll()
    shutil.rmtree(folder / "2")
    models.poll()
    assert answer(models) == 1
    assert states(models) == {2: "END", 1: "AVAILABLE"}


def test_last_version_serves_on_without_its_files(models, folder, caplog):
    shutil.rmtree(folder / "1")
    models.poll()
    models.poll()
    assert answer(models) == 1
    assert caplog.text.count("No versions of numbers") == 1
    shutil.rmtree(folder)
    models.poll()
    assert answer(models) == 1


def test_old_version_stays_for_its_requests_and_no_longer(models, folder, numbers):
    with models.lease("numbers") as saved_model:
        memory = weakref.ref(saved_model._loaded)
        numbers(folder, 2)
        models.poll()
        assert states(models) == {2: "AVAILABLE", 1: "UNLOADING"}
        assert saved_model.run("serving_default", {"x": np.float32([0])})["y"] == [1]
        assert answer(models) == 2
        with pytest.raises(ServingError, match="Specific"):
            answer(models, version=1)
    del saved_model
    assert states(models) == {2: "AVAILABLE", 1: "END"}
    models.poll()
    assert memory() is None


def test_broken_version_is_reported_and_tried_again_once_it_changes(
    models, folder, numbers, caplog
):
    broken = numbers(folder, 2) / "saved_model.pb"
    whole = broken.read_bytes()
    broken.write_bytes(b"nonsense")
    models.poll()
    assert answer(models) == 1
    (newest, oldest) = models.status("numbers")
    assert newest[:2] == (2, "END")
    assert "Can't parse" in newest[2].message
    assert oldest == (1, "AVAILABLE", None)
    models.poll()
    assert caplog.text.count("Version 2 of numbers cannot be served") == 1
    broken.write_bytes(whole)
    models.poll()
    assert answer(models) == 2
    assert states(models) == {2: "AVAILABLE", 1: "END"}


def test_version_that_is_being_copied(models, folder, saved_models):
    source = saved_models / "numbers" / "2"
    (folder / "2").mkdir()
    models.poll()
    told = models.status("numbers", 2)[0][2].message  # to any client, and so without the folder
    assert told == "Could not find SavedModel .pb at supplied export path: numbers/2"
    shutil.copy(source / "saved_model.pb", folder / "2")
    models.poll()
    assert states(models)[2] == "END"
    shutil.copytree(source, folder / "2", dirs_exist_ok=True)
    models.poll()
    assert answer(models) == 2


def edit(version, change):
    """Change the SavedModel message of a version."""
    path = version / "saved_model.pb"
    message = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    change(message.meta_graphs[0])
    path.write_bytes(message.SerializeToString())


def test_unknown_operation_is_named(models, folder, numbers):
    def rename(meta_graph):
        for function in meta_graph.graph_def.library.function:
            for node in function.node_def:
                if node.op == "Mul":
                    node.op = "OpOfAnotherWorld"

    edit(numbers(folder, 2), rename)
    models.poll()
    assert "OpOfAnotherWorld" in models.status("numbers", 2)[0][2].message
    assert answer(models) == 1


def test_model_for_something_else_than_serving(models, folder, numbers):
    def retag(meta_graph):
        meta_graph.meta_info_def.tags[:] = ["train"]

    edit(numbers(folder, 2), retag)
    models.poll()
    assert "matching supplied tags: { serve }" in models.status("numbers", 2)[0][2].message


def test_input_with_a_default_may_be_left_out(models, folder, numbers):
    def add_default(meta_graph):
        default = meta_graph.signature_def["serving_default"].defaults["x"]
        default.CopyFrom(tf.make_tensor_proto([0.0, 1.0]))

    edit(numbers(folder, 2), add_default)
    models.poll()
    with models.lease("numbers") as saved_model:
        assert saved_model.run("serving_default", {})["y"].tolist() == [2, 2]


def test_policies(folder, numbers):
    numbers(folder, 2)
    numbers(folder, 3)
    for config, expected in [
        (ModelConfig("numbers", folder), {3}),
        (ModelConfig("numbers", folder, latest=2), {2, 3}),
        (ModelConfig("numbers", folder, latest=None), {1, 2, 3}),
        (ModelConfig("numbers", folder, versions=(1, 3)), {1, 3}),
    ]:
        assert set(config.wanted([3, 1, 2])) == expected


# Warm-up


def write_warmup(version, *records):
    extra = version / "assets.extra"
    extra.mkdir()
    with tf.io.TFRecordWriter(str(extra / "tf_serving_warmup_requests")) as writer:
        for record in records:
            writer.write(record)


def warmup_record(**inputs):
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return log.SerializeToString()


def test_warmup_runs_before_a_version_is_available(folder, monkeypatch):
    ran = []
    models = Models()

    def predict(saved_model, request):
        ran.append((states(models), tf.make_ndarray(request.inputs["x"]).tolist()))
        return predict_pb2.PredictResponse()

    monkeypatch.setattr("keras_lm.serving.models.WARMUP_ANSWERS", {"predict_log": predict})
    empty = prediction_log_pb2.PredictionLog().SerializeToString()
    write_warmup(folder / "1", warmup_record(x=[1.0]), empty, warmup_record(x=[2.0, 3.0]))
    models.configure([ModelConfig("numbers", folder)])
    assert ran == [({1: "LOADING"}, [1.0]), ({1: "LOADING"}, [2.0, 3.0])]
    assert states(models) == {1: "AVAILABLE"}
    models.close()


def test_warmup_may_have_more_rows_than_requests(folder):
    write_warmup(folder / "1", warmup_record(x=[1.0, 2.0, 3.0]))
    models = Models(max_rows=2)
    models.configure([ModelConfig("numbers", folder)])
    assert states(models) == {1: "AVAILABLE"}
    with models.lease("numbers") as served, pytest.raises(ServingError, match="at most 2"):
        served.check_rows(3)
    models.close()


@pytest.mark.parametrize(
    "records, message",
    [
        ([warmup_record(x=[1.0]), warmup_record(z=[1.0])], "Sent extra: {z}"),
        ([b"\xff" * 20], "Failed to parse warmup record"),
        ([warmup_record(x=[1.0])] * 1001, "exceeds the maximum (1000)"),
        (
            [
                prediction_log_pb2.PredictionLog(
                    session_run_log=prediction_log_pb2.SessionRunLog()
                ).SerializeToString()
            ],
            "Unsupported log_type for warmup",
        ),
    ],
)
def test_bad_warmup_keeps_a_version_from_being_served(
    models, folder, numbers, caplog, records, message
):
    version = numbers(folder, 2)
    write_warmup(version, *records)
    models.poll()
    assert message in models.status("numbers", 2)[0][2].message
    assert message in caplog.text
    assert answer(models) == 1


def test_warmup_file_that_is_none(models, folder, numbers):
    version = numbers(folder, 2)
    write_warmup(version)
    (version / "assets.extra" / "tf_serving_warmup_requests").write_bytes(b"x" * 100)
    models.poll()
    assert "TFRecord format" in models.status("numbers", 2)[0][2].message


# Under load


def test_no_request_fails_while_versions_change(folder, numbers, grpc_of):
    failures, seen = [], {"rest": set(), "grpc": set()}
    counts = {"rest": 0, "grpc": 0}
    done = threading.Event()

    with Server(folder, poll_seconds=0.05) as server:
        url = f"{server.rest_url}/v1/models/numbers:predict"
        stubs = grpc_of(server)
        message = predict_pb2.PredictRequest()
        message.model_spec.name = "numbers"
        message.inputs["x"].CopyFrom(tf.make_tensor_proto([0.0]))

        def over_rest(session):
            response = session.post(url, json={"instances": [0]}, timeout=60)
            assert response.status_code == 200, response.text
            return response.json()["predictions"][0]

        def over_grpc(session):
            return stubs.prediction.Predict(message, timeout=60).outputs["y"].float_val[0]

        def ask_all_the_time(protocol, ask):
            with requests.Session() as session:
                while not done.is_set():
                    try:
                        seen[protocol].add(ask(session))
                        counts[protocol] += 1
                    except Exception as error:
                        failures.append(repr(error))

        threads = [
            threading.Thread(target=ask_all_the_time, args=arguments)
            for arguments in [("rest", over_rest), ("grpc", over_grpc)] * 3
        ]
        for thread in threads:
            thread.start()
        try:
            for number in (1, 2, 3):
                if number > 1:
                    numbers(folder, number)
                wait_until(lambda number=number: all(number in s for s in seen.values()))
        finally:
            done.set()
            for thread in threads:
                thread.join()
        stubs.channel.close()
        assert states(server._models) == {3: "AVAILABLE", 2: "END", 1: "END"}
    assert failures == []
    assert seen == {"rest": {1.0, 2.0, 3.0}, "grpc": {1.0, 2.0, 3.0}}
    assert min(counts.values()) > 20


def test_memory_is_given_back(models, folder, numbers):
    kept = []
    for number in (2, 3):
        with models.lease("numbers") as saved_model:
            kept.append(weakref.ref(saved_model))
            del saved_model
        numbers(folder, number, source=1)
        models.poll()
    gc.collect()
    assert [memory() for memory in kept] == [None] * 2
