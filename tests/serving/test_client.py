"""The client reads what TF Serving writes, over both protocols, and its errors say what to do."""

import collections
import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import numpy as np
import pandas
import pytest
import tensorflow as tf
from google.protobuf.json_format import Parse, ParseDict
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from keras_lm.serving.client import Client, ServerError, rows_of


def column(dtype, *sizes):
    dims = [{"size": str(size), "name": ""} for size in sizes]
    return {"dtype": dtype, "tensor_shape": {"dim": dims, "unknown_rank": False}, "name": "x:0"}


SIGNATURES = {
    "serving_default": {
        "inputs": {"text": column("DT_STRING", -1)},
        "outputs": {
            "labels": column("DT_STRING", -1),
            "scores": column("DT_FLOAT", -1, 2),
            "raw_bytes": column("DT_STRING", -1),
        },
        "method_name": "tensorflow/serving/predict",
    },
    "one": {  # a single output has no name in REST's answer
        "inputs": {"x": column("DT_INT64", -1)},
        "outputs": {"y": column("DT_INT32", -1)},
        "method_name": "tensorflow/serving/predict",
    },
    "step": {
        "inputs": {"x": column("DT_INT64", -1), "cache": column("DT_FLOAT", -1, 2)},
        "outputs": {"y": column("DT_INT32", -1)},
        "defaults": {
            "cache": {
                "dtype": "DT_FLOAT",
                "tensor_shape": {"dim": [{"size": "0"}, {"size": "2"}]},
            }
        },
    },
    "__saved_model_init_op": {
        "inputs": {},
        "outputs": {"init": {**column("DT_INVALID"), "tensor_shape": {"unknown_rank": True}}},
    },
}
LABELS = ["gut \u20ac", "schlecht"]
SCORES = [[0.75, 0.25], [float("nan"), 1.0]]


class RestStub(BaseHTTPRequestHandler):
    """Answers with JSON as TF Serving's documentation shows it."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/v1/models/critic/metadata":
            spec = {"name": "critic", "signature_name": "", "version": "3"}
            self.answer(
                {
                    "model_spec": spec,
                    "metadata": {"signature_def": {"signature_def": SIGNATURES}},
                }
            )
        elif self.path in ("/v1/models/critic", "/v1/models/critic/versions/3"):
            status = {"error_code": "OK", "error_message": ""}
            version = {"version": "3", "state": "AVAILABLE", "status": status}
            self.answer({"model_version_status": [version]})
        elif self.path == "/v1/models/slow":
            time.sleep(2)
        elif self.path.startswith("/v1/models/status-"):
            self.answer({"error": "boom"}, int(self.path[-3:]))
        elif self.path == "/v1/models/proxy":
            self.answer("<html>Bad gateway</html>", 502, raw=True)
        else:
            name = self.path.split("/")[3]
            self.answer({"error": f"Could not find any versions of model {name}"}, 404)

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, request))
        if request["inputs"].get("text") == ["boom"]:
            self.answer({"error": "Input to reshape has 5 values"}, 400)
        elif request["signature_name"] == "one":
            self.answer({"outputs": [2 * x for x in request["inputs"]["x"]]})
        else:
            raw = [{"b64": "//4="}, {"b64": ""}]
            self.answer({"outputs": {"labels": LABELS, "scores": SCORES, "raw_bytes": raw}})

    def answer(self, value, status=200, raw=False):
        body = (value if raw else json.dumps(value, ensure_ascii=False)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def rest_stub():
    with ThreadingHTTPServer(("127.0.0.1", 0), RestStub) as server:
        server.requests = []
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


class GrpcStub:
    def GetModelMetadata(self, request, context):
        if request.model_spec.name != "critic":
            message = f"Servable not found for request: Latest({request.model_spec.name})"
            context.abort(grpc.StatusCode.NOT_FOUND, message)
        assert list(request.metadata_field) == ["signature_def"]
        actual = ParseDict({"signature_def": SIGNATURES}, get_model_metadata_pb2.SignatureDefMap())
        answer = get_model_metadata_pb2.GetModelMetadataResponse()
        answer.metadata["signature_def"].Pack(actual)
        return answer

    def Predict(self, request, context):
        inputs = {name: tf.make_ndarray(value) for name, value in request.inputs.items()}
        answer = predict_pb2.PredictResponse()
        if request.model_spec.signature_name == "one":
            assert inputs["x"].dtype == np.int64
            answer.outputs["y"].CopyFrom(tf.make_tensor_proto(2 * inputs["x"], tf.int32))
            return answer
        if inputs["text"].tolist() == [b"boom"]:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Input to reshape has 5 values")
        if inputs["text"].tolist() == [b"slow"]:
            time.sleep(2)
        for name, value in {
            "labels": np.array([label.encode() for label in LABELS], object),
            "scores": np.array(SCORES, np.float32),
            "raw_bytes": np.array([b"\xff\xfe", b""], object),
        }.items():
            answer.outputs[name].CopyFrom(tf.make_tensor_proto(value))
        return answer

    def GetModelStatus(self, request, context):
        text = '{"model_version_status": [{"version": "3", "state": "AVAILABLE", "status": {}}]}'
        return Parse(text, get_model_status_pb2.GetModelStatusResponse())

    Classify = Regress = MultiInference = HandleReloadConfigRequest = None


@pytest.fixture(scope="module")
def grpc_url():
    server = grpc.server(ThreadPoolExecutor(2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(GrpcStub(), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(GrpcStub(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"grpc://127.0.0.1:{port}"
    server.stop(0)


@pytest.fixture(params=["REST", "gRPC"])
def url(request):
    return request.getfixturevalue("rest_stub").url if request.param == "REST" else (
        request.getfixturevalue("grpc_url")
    )  # fmt: skip


def test_answers_are_arrays_of_the_declared_dtypes(url):
    with Client(url, "critic") as client:
        answer = client.predict({"text": ["a", "b"]})
        assert set(answer) == {"labels", "scores", "raw_bytes"}
        assert answer["labels"].tolist() == LABELS
        assert answer["labels"].dtype == object
        assert answer["scores"].dtype == np.float32
        np.testing.assert_array_equal(answer["scores"], np.array(SCORES, np.float32))
        assert answer["raw_bytes"].tolist() == [b"\xff\xfe", b""]

        answer = client.predict({"x": np.array([3, 4])}, signature="one")
        assert answer["y"].tolist() == [6, 8]
        assert answer["y"].dtype == np.int32


def test_metadata_and_status_read_alike(url):
    with Client(url, "critic") as client:
        signatures = client.metadata()
        assert set(signatures) == {"serving_default", "one", "step"}
        assert signatures["one"]["inputs"] == {"x": {"dtype": "DT_INT64", "shape": [-1]}}
        scores = signatures["serving_default"]["outputs"]["scores"]
        assert scores == {"dtype": "DT_FLOAT", "shape": [-1, 2]}
        assert client.status() == [{"version": 3, "state": "AVAILABLE", "error": ""}]


def test_rest_sends_columns_and_bytes_in_base64(rest_stub):
    with Client(rest_stub.url + "/", "critic", version=None) as client:
        client.predict({"text": np.array(["ä", b"\xff"], object)})
    path, request = rest_stub.requests[-1]
    assert path == "/v1/models/critic:predict"
    assert request == {
        "signature_name": "serving_default",
        "inputs": {"text": ["ä", {"b64": "/w=="}]},
    }


def test_columns_of_other_libraries(url):
    """REST refused a Series, which gRPC and tasks take."""
    strings = np.array(["a", "b"], np.dtypes.StringDType())
    with Client(url, "critic") as client:
        expected = client.predict({"text": ["a", "b"]})
        for column in (pandas.Series(["a", "b"]), pandas.Categorical(["a", "b"]), strings):
            answers = client.predict({"text": column})
            assert {key: value.tolist() for key, value in answers.items()}.keys() == expected.keys()
        for column in (
            ["a", None],
            pandas.Series(["a", None]),
            np.ma.array(["a", "b"], mask=[0, 1]),
        ):
            with pytest.raises(ValueError, match=r"text\[1\] is .*: replace or drop it"):
                client.predict({"text": column})
        with pytest.raises(ValueError, match="text is a set, without an order: pass a list"):
            client.predict({"text": {"a", "b"}})


ROWS = {
    "deque": collections.deque(["a", "b"]),
    "ragged": tf.ragged.constant([["a", "b"], []])[0],
    "tuple": ("a", "b"),
    "objects": np.array(["a", "b"], object),
    "a column of rows": [pandas.Series(["a"]), np.array(["b"])],
}
NO_ROWS = {
    "None": (None, "text is a NoneType: pass a list, an array"),
    "dict": ({0: "a"}, "text is a dict: pass a list, an array"),
    "bytes": (memoryview(b"ab"), "text is a memoryview: pass a list, an array"),
    "one text": (np.array("ab"), r"text='ab': pass a list of texts, \['ab'\]"),
    "numbers": (range(2), r"text\[0\] is 0, a int, and not a string"),
}


@pytest.mark.parametrize("kind", [*ROWS, *NO_ROWS])
def test_what_has_rows(url, kind):
    """REST told what JSON cannot hold, and gRPC what TensorFlow cannot convert."""
    with Client(url, "critic") as client:
        if kind in NO_ROWS:
            column, message = NO_ROWS[kind]
            with pytest.raises(ValueError, match=message):
                client.predict({"text": column})
        elif kind == "a column of rows":
            assert rows_of(ROWS[kind], "text") == [["a"], ["b"]]
        else:
            assert {"labels", "scores"} <= client.predict({"text": ROWS[kind]}).keys()


def test_lone_surrogates_are_sent_as_tasks_read_them():
    assert rows_of(["a \ud800", "é", b"\xff"], "text") == [b"a \xed\xa0\x80", "é", b"\xff"]
    assert rows_of(np.array(["\ud800"], object), "text") == [b"\xed\xa0\x80"]
    numbers = np.ones((2, 3), "float16")
    assert rows_of(numbers, "x") is numbers and rows_of(1.5, "x") == 1.5
    assert rows_of(np.zeros((0, 2), object), "text").shape == (0, 2)


def test_a_version_is_asked_by_its_number(rest_stub):
    with Client(rest_stub.url, "critic", version=3) as client:
        assert client.status()[0]["version"] == 3
        with pytest.raises(ServerError, match="version 3: NOT_FOUND"):
            client.metadata()  # the stub has none for a single version


def test_both_protocols_read_the_embedded_server_alike(server):
    rest = Client(server.rest_url, "kinds")
    over_grpc = Client(f"grpc://{server.grpc_address}", "kinds", version=7)
    assert rest.status() == over_grpc.status()
    assert rest.metadata() == over_grpc.metadata()
    for signature, inputs in {
        "serving_default": {"x": [1.5, 2]},
        "two": {"ids": [[1, 2]], "scale": [0.5]},
        "types": {"small": [1], "large": [2**60], "exact": [0.1], "flag": [True]},
        "text": {"text": ["ä \U0001f600", "", 'a "quoted" \\ text\n']},
        "matrix": {"x": np.arange(12.0).reshape(2, 2, 3)},
        "scalar": {"x": 1.5},
    }.items():
        answer, other = rest.predict(inputs, signature), over_grpc.predict(inputs, signature)
        assert set(answer) == set(other)
        for name, value in answer.items():
            np.testing.assert_array_equal(value, other[name])
            assert value.dtype == other[name].dtype, (signature, name)
    assert rest.predict({"x": []})["y"].shape == (0,)


# === Mistakes ===


def test_the_servers_own_words_and_code_are_kept(url):
    with Client(url, "critic") as client, pytest.raises(ServerError) as caught:
        client.predict({"text": ["boom"]})
    assert caught.value.code == "INVALID_ARGUMENT"
    assert caught.value.message == "Input to reshape has 5 values"
    assert url in str(caught.value)
    assert "'critic'" in str(caught.value)


@pytest.mark.parametrize("status, code", [(500, "INTERNAL"), (413, "RESOURCE_EXHAUSTED")])
def test_a_status_stands_for_the_likeliest_code(rest_stub, status, code):
    with pytest.raises(ServerError) as caught:
        Client(rest_stub.url, f"status-{status}").status()
    assert caught.value.code == code


def test_a_default_without_values_is_not_for_rest(rest_stub):
    with pytest.raises(ValueError, match=r"no 'cache', .* shape \(0, 2\) .* a grpc:// server"):
        Client(rest_stub.url, "critic").predict({"x": [1]}, signature="step")


def test_a_wrong_model_is_not_found(url):
    with (
        Client(url, "criic") as client,
        pytest.raises(ServerError, match=r"'criic'.*Check model=") as caught,
    ):
        client.predict({"text": ["a"]})
    assert caught.value.code == "NOT_FOUND"


@pytest.mark.parametrize("scheme, protocol", [("http", "REST"), ("grpc", "gRPC")])
def test_nobody_there(scheme, protocol):
    with (
        Client(f"{scheme}://127.0.0.1:9", "critic", timeout=5) as client,
        pytest.raises(ServerError, match=f"127.0.0.1:9.*is this its {protocol} port") as caught,
    ):
        client.status()
    assert caught.value.code == "UNAVAILABLE"


def test_rest_asked_at_the_port_of_grpc_and_the_other_way(rest_stub, grpc_url):
    with pytest.raises(ServerError, match="REST port"):
        Client(grpc_url.replace("grpc:", "http:"), "critic", timeout=2).status()
    with pytest.raises(ServerError):
        Client(rest_stub.url.replace("http:", "grpc:"), "critic", timeout=2).status()


def test_timeouts_name_their_length(rest_stub, grpc_url):
    slow = Client(rest_stub.url, "slow", timeout=0.2)
    with pytest.raises(ServerError, match=r"longer timeout= than 0\.2 seconds") as caught:
        slow.status()
    assert caught.value.code == "DEADLINE_EXCEEDED"
    slow = Client(grpc_url, "critic", timeout=0.5)
    with pytest.raises(ServerError, match=r"longer timeout= than 0\.5 seconds"):
        slow.predict({"text": ["slow"]})


def test_what_is_no_answer_of_a_model_server(rest_stub):
    with pytest.raises(ServerError, match=r"502.*Bad gateway") as caught:
        Client(rest_stub.url, "proxy").status()
    assert caught.value.code == "UNKNOWN"


def test_mistakes_that_need_no_server(rest_stub):
    for wrong in ("127.0.0.1:8501", "ftp://there", "http://"):
        with pytest.raises(ValueError, match="write http://HOST:PORT"):
            Client(wrong, "critic")
    with pytest.raises(ValueError, match="model=None: name the model"):
        Client(rest_stub.url)
    client = Client(rest_stub.url, "critic")
    with pytest.raises(ValueError, match=r"text='a': pass a list of texts, \['a'\]"):
        client.predict({"text": "a"})
    with pytest.raises(ValueError, match=r"inputs is a list: pass a dict, such as {'text': \['a"):
        client.predict(["a"])
    with pytest.raises(ValueError, match=r"inputs has \['txt'\], but .* takes \['text'\]"):
        client.predict({"txt": ["a"]})
    with pytest.raises(
        ValueError, match=r"signature='x': use one of \['serving_default', 'one', '"
    ):
        client.predict({"text": ["a"]}, signature="x")


def test_a_value_of_another_type_is_named(grpc_url):
    with pytest.raises(ValueError, match=r"inputs\['x'\] cannot be read as int64"):
        Client(grpc_url, "critic").predict({"x": ["a"]}, signature="one")


def test_rest_does_without_tensorflow():
    check = (
        "import sys\n"
        "from keras_lm.serving.client import Client\n"
        "Client('http://127.0.0.1:9', 'critic').close()\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
