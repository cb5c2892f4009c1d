"""gRPC: both services by TF Serving's own stubs, their answers field by field."""

import socket
import time

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    inference_pb2,
    model_management_pb2,
    predict_pb2,
    regression_pb2,
)

from keras_lm.serving import Server
from keras_lm.serving.errors import ServingError
from keras_lm.serving.inference import with_context


def predict_request(signature="", model="kinds", **inputs):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = model
    request.model_spec.signature_name = signature
    for name, value in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(value))
    return request


def fails(code, call, request, message=""):
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=60)
    assert caught.value.code() == code, caught.value
    assert message in caught.value.details()
    return caught.value.details()


INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


def test_predict(stubs):
    response = stubs.prediction.Predict(predict_request(x=np.float32([1, 2, 5])))
    assert response.model_spec.name == "kinds"
    assert response.model_spec.signature_name == "serving_default"
    assert response.model_spec.version.value == 7
    assert list(response.outputs) == ["y"]
    # As in TF Serving, values stand where clients without TensorFlow look for them.
    assert response.outputs["y"].float_val == [2.5, 3.0, 4.5]
    assert response.outputs["y"].tensor_content == b""
    assert tf.make_ndarray(response.outputs["y"]).shape == (3,)


def test_every_type_comes_back(stubs):
    inputs = {
        "small": np.uint8([255]),
        "large": np.int64([-(2**63)]),
        "exact": np.float64([1e300]),
        "flag": np.array([True]),
    }
    outputs = stubs.prediction.Predict(predict_request("types", **inputs)).outputs
    for name in ("small", "large", "exact"):
        np.testing.assert_array_equal(tf.make_ndarray(outputs[name]), inputs[name])
    assert outputs["flag"].bool_val == [False]
    outputs = stubs.prediction.Predict(predict_request("text", text=[b"a\xff", b""])).outputs
    assert outputs["text"].string_val == [b"a\xff", b""]
    assert outputs["length"].int_val == [2, 0]
    outputs = stubs.prediction.Predict(predict_request("half", x=np.float32([0.5]))).outputs
    assert outputs["y"].dtype == tf.float16.as_datatype_enum
    assert tf.make_ndarray(outputs["y"]) == [0.5]


def test_values_may_be_fields_and_repeat(stubs):
    request = predict_request()
    tensor = request.inputs["x"]
    tensor.dtype = tf.float32.as_datatype_enum
    tensor.tensor_shape.dim.add(size=3)
    tensor.float_val.append(2.0)
    assert stubs.prediction.Predict(request).outputs["y"].float_val == [3.0] * 3


def test_empty_batch(stubs):
    output = stubs.prediction.Predict(predict_request(x=np.zeros([0], np.float32))).outputs["y"]
    assert tf.make_ndarray(output).shape == (0,)


def test_output_filter(stubs):
    request = predict_request("two", ids=np.int32([[1, 2]]), scale=np.float32([1]))
    assert set(stubs.prediction.Predict(request).outputs) == {"total", "ids"}
    request.output_filter.append("ids")
    assert set(stubs.prediction.Predict(request).outputs) == {"ids"}
    request.output_filter.append("ids")
    fails(INVALID, stubs.prediction.Predict, request, "duplicate output tensor alias: ids")
    request.output_filter[:] = ["no"]
    message = "not found in signature: no Outputs expected to be in the set {ids,total}."
    fails(INVALID, stubs.prediction.Predict, request, message)


def test_version_and_label(stubs):
    request = predict_request(x=np.float32([1]))
    request.model_spec.version.value = 7
    assert stubs.prediction.Predict(request).outputs["y"].float_val == [2.5]
    request.model_spec.version.value = 0
    fails(NOT_FOUND, stubs.prediction.Predict, request, "Specific(kinds, 0)")
    request.model_spec.version_label = "stable"
    fails(INVALID, stubs.prediction.Predict, request, "version label: stable")


def test_wrong_predictions(stubs):
    call = stubs.prediction.Predict
    x = np.float32([1])
    fails(INVALID, call, predict_pb2.PredictRequest(), "Missing ModelSpec")
    fails(INVALID, call, predict_request(model="", signature="a"), "no name specified")
    fails(NOT_FOUND, call, predict_request(model="nobody", x=x), "Latest(nobody)")
    fails(PRECONDITION, call, predict_request("no", x=x), 'signature key "no" not found.')
    fails(INVALID, call, predict_request("__saved_model_init_op"), "not for requests")
    fails(INVALID, call, predict_request(), "Missing but required: {x}.")
    fails(INVALID, call, predict_request(x=x, z=x), "Sent extra: {z}.")
    fails(INVALID, call, predict_request(x=np.float64([1])), "float but double is provided")
    fails(INVALID, call, predict_request(x=["a"]), "to be float but string is provided")
    fails(INVALID, call, predict_request(x=[[1.0]]), "shape (None,) but (1, 1) is provided")
    fails(INVALID, call, predict_request("picky", x=-x), "only above zero")


def test_tensors_that_are_nonsense(stubs):
    for size, values in [(-1, [1.0]), (10**15, [1.0]), (1, [1.0, 2.0]), (2**62, [])]:
        request = predict_request()
        tensor = request.inputs["x"]
        tensor.dtype = tf.float32.as_datatype_enum
        tensor.tensor_shape.dim.add(size=size)
        tensor.float_val.extend(values)
        fails(INVALID, stubs.prediction.Predict, request, "tensor parsing error: x")
    for name, sizes in {"x": [2**21], "text": [2**21], "ids": [0, 2**31 - 1]}.items():
        request = predict_request()
        tensor = request.inputs[name]
        tensor.dtype = (tf.string if name == "text" else tf.float32).as_datatype_enum
        tensor.string_val.append(b"a")
        for size in sizes:
            tensor.tensor_shape.dim.add(size=size)
        details = fails(INVALID, stubs.prediction.Predict, request, f"parsing error: {name}: ")
        assert details.endswith(f"values for the shape {sizes}")
    request = predict_request()
    request.inputs["x"].dtype = 99
    fails(INVALID, stubs.prediction.Predict, request, "tensor parsing error: x")
    request = predict_request(x=np.float32([1, 2]))
    request.inputs["x"].tensor_content = b"123"
    fails(INVALID, stubs.prediction.Predict, request, "tensor parsing error: x")
    request.inputs["x"].tensor_shape.unknown_rank = True
    fails(INVALID, stubs.prediction.Predict, request, "tensor parsing error: x")


def test_long_errors_are_cut(stubs):
    details = fails(NOT_FOUND, stubs.prediction.Predict, predict_request(model="x" * 5000))
    assert details.endswith("...TRUNCATED")
    assert len(details) < 1100


def test_messages_of_any_size(stubs):
    text = b"x" * (10 * 2**20)
    outputs = stubs.prediction.Predict(predict_request("text", text=[text])).outputs
    assert outputs["raw_bytes"].string_val == [text]


def example(**features):
    message = tf.train.Example()
    for name, value in features.items():
        kind = {bytes: "bytes_list", float: "float_list", int: "int64_list"}[type(value)]
        getattr(message.features.feature[name], kind).value.append(value)
    return message


def fill(request, signature, *examples, context=None):
    request.model_spec.name = "examples"
    request.model_spec.signature_name = signature
    if context is None:
        request.input.example_list.examples.extend(examples)
    else:
        request.input.example_list_with_context.examples.extend(examples)
        request.input.example_list_with_context.context.CopyFrom(context)
    return request


def test_classify(stubs):
    request = fill(classification_pb2.ClassificationRequest(), "", example(text=b"ab"))
    response = stubs.prediction.Classify(request)
    assert response.model_spec.version.value == 1
    assert response.model_spec.signature_name == "serving_default"
    (row,) = response.result.classifications
    pairs = [(pair.label, pytest.approx(pair.score)) for pair in row.classes]
    assert pairs == [("ab", 2.0), ("AB", 0.2)]


def test_labels_that_are_no_text(stubs):
    request = fill(classification_pb2.ClassificationRequest(), "", example(text=b"a\xff"))
    (row,) = stubs.prediction.Classify(request).result.classifications
    assert row.classes[0].label == "a\ufffd"


def test_regress_with_context(stubs):
    request = fill(
        regression_pb2.RegressionRequest(),
        "regress",
        *(example(weights=0.5), example(count=1)),
        context=example(count=4),
    )
    result = stubs.prediction.Regress(request).result
    assert [row.value for row in result.regressions] == [4.5, 1.0]


def test_a_context_is_not_copied_without_end():
    assert with_context(b"a", [b"b"] * 2) == [b"ab"] * 2
    with pytest.raises(ServingError, match="1048576 bytes, which are copied for each of 65"):
        with_context(b"x" * 2**20, [b""] * 65)


def test_wrong_examples(stubs):
    classify, regress = stubs.prediction.Classify, stubs.prediction.Regress
    make = classification_pb2.ClassificationRequest
    fails(INVALID, classify, make(), "Missing ModelSpec")
    fails(INVALID, classify, fill(make(), ""), "Input is empty.")
    fails(INVALID, classify, fill(make(), "no", example()), "found with the name: no")
    fails(PRECONDITION, classify, fill(make(), "regress", example()), '"classes" or "scores"')
    make = regression_pb2.RegressionRequest
    fails(INVALID, regress, fill(make(), "", example()), "Expected one output Tensor.")
    fails(PRECONDITION, regress, fill(make(), "flat", example()), "No regression outputs")


def multi(*tasks):
    request = inference_pb2.MultiInferenceRequest()
    request.input.example_list.examples.append(example(text=b"ab", weights=1.5))
    for model, signature, method in tasks:
        task = request.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.name = model
        task.model_spec.signature_name = signature
    return request


def test_multi_inference(stubs):
    request = multi(("examples", "", "classify"), ("examples", "regress", "regress"))
    classified, regressed = stubs.prediction.MultiInference(request).results
    assert classified.model_spec.signature_name == "serving_default"
    assert classified.classification_result.classifications[0].classes[0].label == "ab"
    assert regressed.regression_result.regressions[0].value == 1.5
    assert regressed.model_spec.version.value == 1


def test_wrong_multi_inference(stubs):
    call = stubs.prediction.MultiInference
    fails(INVALID, call, multi(), "no name specified")
    one = ("examples", "", "classify")
    fails(INVALID, call, multi(one, one), "Duplicate evaluation of signature: serving_default")
    fails(INVALID, call, multi(one, ("kinds", "two", "classify")), "the same model name")
    fails(INVALID, call, multi(one, ("examples", "no", "classify")), "model graph: no")
    unknown = multi(("examples", "", "predict"))
    fails(grpc.StatusCode.UNIMPLEMENTED, call, unknown, "tensorflow/serving/predict")


def test_metadata(stubs):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "kinds"
    response = stubs.prediction.GetModelMetadata(request)
    assert (response.model_spec.name, response.model_spec.version.value) == ("kinds", 7)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(signatures)
    assert signatures.signature_def["two"].inputs["ids"].dtype == tf.int32.as_datatype_enum
    request.metadata_field[:] = ["weights"]
    fails(INVALID, stubs.prediction.GetModelMetadata, request, "weights is not supported")
    request.metadata_field[:] = []
    fails(INVALID, stubs.prediction.GetModelMetadata, request, "at least one metadata_field")


def status_request(model, version=None):
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = model
    if version is not None:
        request.model_spec.version.value = version
    return request


def test_status(stubs):
    call = stubs.model.GetModelStatus
    (status,) = call(status_request("kinds")).model_version_status
    assert (status.version, status.state) == (7, get_model_status_pb2.ModelVersionStatus.AVAILABLE)
    assert status.status.error_code == 0
    assert call(status_request("kinds", 7)).model_version_status[0].version == 7
    fails(NOT_FOUND, call, status_request("kinds", 8), "Could not find version 8 of model kinds")
    fails(NOT_FOUND, call, status_request("nobody"), "Could not find any versions")
    fails(INVALID, call, get_model_status_pb2.GetModelStatusRequest(), "Missing ModelSpec")


def test_reload_config(saved_models, grpc_of):
    with Server({"one": saved_models / "kinds", "other": saved_models / "numbers"}) as server:
        stubs = grpc_of(server)
        reload = stubs.model.HandleReloadConfigRequest

        def config(labels=(), versions=(1, 3), **changes):
            request = model_management_pb2.ReloadConfigRequest()
            entry = request.config.model_config_list.config.add(
                name="two",
                base_path=str(saved_models / "numbers"),
                model_platform="tensorflow",
            )
            entry.model_version_policy.specific.versions.extend(versions)
            entry.version_labels.update(labels)
            for name, value in changes.items():
                setattr(entry, name, value)
            return request

        def ask(**choice):
            request = predict_request(model="two", x=np.float32([0]))
            for name, value in choice.items():
                setattr(request.model_spec, name, value)
            return stubs.prediction.Predict(request).outputs["y"].float_val[0]

        fails(INVALID, reload, model_management_pb2.ReloadConfigRequest(), "Only ModelConfigList")
        fails(INVALID, reload, config(model_platform=""), "Illegal setting neither")
        fails(INVALID, reload, config(model_platform="caffe"), "unsupported platform caffe")
        fails(INVALID, reload, config(base_path="numbers"), "absolute path")
        fails(INVALID, reload, config(base_path="/a\0b"), "is not a path: embedded null byte")
        none = model_management_pb2.ReloadConfigRequest()
        none.config.model_config_list.SetInParent()
        fails(INVALID, reload, none, "is empty: list the models to serve")
        fails(INVALID, reload, config(versions=[2**60] * 10_000), "more than the 65536")
        for path in ("/", saved_models / "examples", saved_models / "numbers" / "1"):
            denied = fails(grpc.StatusCode.PERMISSION_DENIED, reload, config(base_path=str(path)))
            assert "only serves the folders that it was started with" in denied
        fails(INVALID, reload, config(name="a/b"), "without /, : and control")
        twice = config()
        twice.config.model_config_list.config.append(twice.config.model_config_list.config[0])
        fails(INVALID, reload, twice, "multiple times")
        # A label stands for what is available already.
        fails(PRECONDITION, reload, config({"stable": 1}), "not currently available")
        assert server.model_names == ["one", "other"]

        assert reload(config()).status.error_code == 0
        assert server.model_names == ["two"]
        fails(NOT_FOUND, stubs.prediction.Predict, predict_request(model="one", x=[1.0]), "one")
        versions = stubs.model.GetModelStatus(status_request("two")).model_version_status
        assert [version.version for version in versions] == [3, 1]
        reload(config({"stable": 1, "new": 3}))
        assert ask() == 3
        assert ask(version_label="stable") == 1
        assert ask(version_label="new") == 3

        many = config()
        for number in range(60):
            copied = many.config.model_config_list.config.add()
            copied.CopyFrom(many.config.model_config_list.config[0])
            copied.name = f"name-{number}"
        reload(many)
        models = server._models._models.values()
        assert len(models) == 61  # and the files in memory once
        assert len({id(model.versions[3].served) for model in models}) == 1

        newest = config()
        policy = newest.config.model_config_list.config[0].model_version_policy
        policy.latest.num_versions = 2
        reload(newest)
        assert ask() == 4
        policy.all.SetInParent()
        reload(newest)
        states = stubs.model.GetModelStatus(status_request("two")).model_version_status
        available = get_model_status_pb2.ModelVersionStatus.AVAILABLE
        assert [s.version for s in states if s.state == available] == [4, 3, 2, 1]
        fails(grpc.StatusCode.UNKNOWN, reload, config(name="new", versions=[9]), "did not become")
        stubs.channel.close()


def frame(kind, flags, stream, payload):
    """Return a frame of HTTP/2."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def begin_call(address, method, size):
    """Return a connection with a call whose message of `size` bytes has only begun."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/tensorflow.serving.PredictionService/{method}",
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
    }
    pairs = [text.encode() for pair in headers.items() for text in pair]
    packed = b"".join(
        b"\0" * (i % 2 == 0) + bytes([len(text)]) + text for i, text in enumerate(pairs)
    )
    host, port = address.split(":")
    client = socket.create_connection((host, int(port)), timeout=60)
    client.sendall(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + frame(4, 0, 0, b"")  # settings
        + frame(1, 4, 1, packed)  # headers, all of them
        + frame(0, 0, 1, b"\0" + size.to_bytes(4) + b"\x0a")  # data
    )
    return client


@pytest.mark.slow
def test_messages_that_never_arrive(saved_models, monkeypatch, grpc_of):
    """They would hold all threads as long as their clients want."""
    monkeypatch.setattr("keras_lm.serving.server.GRPC_THREADS", 2)
    with Server(saved_models / "kinds", request_timeout=0.5, poll_seconds=0.1) as server:
        slow = [begin_call(server.grpc_address, "Predict", 10_000) for _ in range(4)]
        stubs = grpc_of(server)
        request = predict_request(x=np.float32([1]))
        assert stubs.prediction.Predict(request, timeout=60).outputs["y"].float_val == [2.5]
        until = time.monotonic() + 30
        while server._arrivals._begun and time.monotonic() < until:
            time.sleep(0.1)
        assert not server._arrivals._begun
        for client in slow:
            client.close()


def test_messages_arrive_one_after_the_other(saved_models, monkeypatch, grpc_of):
    """A message may be as large as the largest until it is there, so few arrive at a time."""
    monkeypatch.setattr("keras_lm.serving.grpc_services.PATIENCE", 0.2)
    limits = {"max_request_bytes": 2**22, "max_total_bytes": 2**23}
    with Server(saved_models / "kinds", **limits) as server:
        slow = [begin_call(server.grpc_address, "Predict", 2**22 - 9) for _ in range(6)]
        for client in slow:
            client.sendall(frame(0, 0, 1, bytes(2**14)) * 3)  # the first window
        most, held = 0, begin_call(server.grpc_address, "Predict", 10_000)
        for _ in range(20):
            most = max(most, len(server._arrivals._begun))
            time.sleep(0.02)
        assert most == 2
        stubs = grpc_of(server)  # they give way to others before their 60 seconds are over
        request = predict_request(x=np.float32([1]))
        assert stubs.prediction.Predict(request, timeout=30).outputs["y"].float_val == [2.5]
        for client in (*slow, held):
            client.close()


@pytest.mark.slow
def test_calls_that_wait_too_long_for_their_turn(saved_models, monkeypatch, grpc_of):
    monkeypatch.setattr("keras_lm.serving.grpc_services.PATIENCE", 4)
    with Server(saved_models / "kinds", max_total_bytes=2**26, request_timeout=0.5) as server:
        monkeypatch.setattr(server._arrivals, "end_late", lambda *_: None)
        held = begin_call(server.grpc_address, "Predict", 10_000)
        while not server._arrivals._begun:
            time.sleep(0.01)
        quick = predict_request(x=np.float32([1]))
        stubs = grpc_of(server)
        fails(grpc.StatusCode.RESOURCE_EXHAUSTED, stubs.prediction.Predict, quick, "are arriving")
        held.close()


def test_calls_at_a_time(saved_models, grpc_of):
    with Server(saved_models / "kinds", max_connections=2) as server:
        stubs = grpc_of(server)
        slow = predict_request("slow", seconds=np.float64(0.6))
        running = [stubs.prediction.Predict.future(slow, timeout=60) for _ in range(2)]
        time.sleep(0.2)
        quick = predict_request(x=np.float32([1]))
        fails(grpc.StatusCode.RESOURCE_EXHAUSTED, stubs.prediction.Predict, quick, "limit exceeded")
        assert all(call.result() for call in running)
        assert stubs.prediction.Predict(quick, timeout=60)


def test_call_without_a_message(stubs):
    call = stubs.channel.stream_unary("/tensorflow.serving.PredictionService/Predict")
    with pytest.raises(grpc.RpcError) as caught:
        call(iter([]), timeout=60)
    assert caught.value.code() == INVALID
    assert "has no message" in caught.value.details()
