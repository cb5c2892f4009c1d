"""The Open Inference Protocol: over REST, in JSON and in bytes, and over gRPC."""

import base64
import json
import struct

import grpc
import hypothesis
import numpy as np
import pytest
import requests
from hypothesis import strategies

from keras_lm.serving import open_inference, open_inference_grpc
from keras_lm.serving.errors import ServingError, StatusCode
from keras_lm.serving.inference import SavedModel
from keras_lm.serving.open_inference import parse, to_raw
from keras_lm.version import __version__

HEADER = "Inference-Header-Content-Length"


def tensor(name, datatype, data, shape=None, **more):
    """The JSON of an input."""
    return {
        "name": name,
        "datatype": datatype,
        "shape": list(np.shape(data)) if shape is None else shape,
        "data": data,
        **more,
    }


@pytest.fixture
def get(server):
    """`get(path)` returns the status and the JSON of an answer."""

    def get(path):
        response = requests.get(f"{server.rest_url}/v2{path}", timeout=30)
        assert response.headers["content-type"] == "application/json"
        return response.status_code, response.json()

    return get


@pytest.fixture
def infer(server):
    """`infer(inputs, …)` returns the answer of the model `kinds`, after a check of its status."""

    def infer(*inputs, status=200, place="kinds", **fields):
        url = f"{server.rest_url}/v2/models/{place}/infer"
        response = requests.post(url, json={"inputs": list(inputs), **fields}, timeout=30)
        assert response.status_code == status, response.text
        return response.json()

    return infer


def of(name):
    return {"parameters": {"signature_name": name}}


def data_of(answer):
    return {output["name"]: output["data"] for output in answer["outputs"]}


# === REST ===


def test_about_the_server_and_its_models(get):
    assert get("") == (
        200,
        {"name": "keras_lm", "version": __version__, "extensions": ["binary_tensor_data"]},
    )
    assert get("/health/live") == (200, {"live": True})
    assert get("/health/ready") == (200, {"ready": True})
    for place in ("/models/kinds", "/models/kinds/versions/7"):
        assert get(f"{place}/ready") == (200, {"name": "kinds", "ready": True})
        assert get(place) == (
            200,
            {
                "name": "kinds",
                "versions": ["7"],
                "platform": "tensorflow_savedmodel",
                "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}],
                "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
            },
        )


@pytest.mark.parametrize(
    "path",
    [
        "/models/none",
        "/models/none/ready",
        "/models/kinds/versions/8",
        "/models/kinds/versions/8/ready",
        "/models/kinds/versions/a",
        "/models/kinds/infer",
        "/models",
        "/nowhere",
    ],
)
def test_what_there_is_not_is_404(get, path):
    status, answer = get(path)
    assert status == 404
    assert answer.keys() == {"error"}


def test_an_answer(infer):
    answer = infer(tensor("x", "FP32", [1, 3.5]), id="a-7")
    assert answer == {
        "model_name": "kinds",
        "model_version": "7",
        "id": "a-7",
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [2], "data": [2.5, 3.75]}],
    }
    answer = infer(tensor("x", "FP32", [1]), place="kinds/versions/7")
    assert "id" not in answer
    assert infer(tensor("x", "FP32", [1]), place="none", status=404).keys() == {"error"}


def test_data_are_flat_or_nested_and_outputs_flat(infer):
    nested = [[[1, 2, 3], [4, 5, 6]]]
    for data in (nested, [1, 2, 3, 4, 5, 6]):
        answer = infer(tensor("x", "FP32", data, [1, 2, 3]), **of("matrix"))
        assert answer["outputs"][0]["shape"] == [1, 3, 2]
        assert answer["outputs"][0]["data"] == [1, 4, 2, 5, 3, 6]
    answer = infer(tensor("x", "FP32", [1], []), **of("scalar"))
    assert answer["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [], "data": [2]}]
    empty = infer(tensor("x", "FP32", []), **of("serving_default"))
    assert empty["outputs"][0]["shape"] == [0]


def test_types(infer):
    answer = infer(
        tensor("small", "UINT8", [255]),
        tensor("large", "INT64", [2**62 + 1]),
        tensor("exact", "FP64", [0.1]),
        tensor("flag", "BOOL", [True]),
        **of("types"),
    )
    kinds = {output["name"]: output["datatype"] for output in answer["outputs"]}
    assert kinds == {"small": "UINT8", "large": "INT64", "exact": "FP64", "flag": "BOOL"}
    assert data_of(answer) == {
        "small": [255],
        "large": [2**62 + 1],
        "exact": [0.1],
        "flag": [False],
    }
    answer = infer(tensor("x", "FP32", [1.5]), **of("half"))
    assert answer["outputs"] == [{"name": "y", "datatype": "FP16", "shape": [1], "data": [1.5]}]


def test_strings_and_the_choice_of_outputs(infer):
    text = tensor("text", "BYTES", ["a", "ü"])
    answer = infer(text, outputs=[{"name": "length"}, {"name": "text"}], **of("text"))
    assert data_of(answer) == {"length": [1, 2], "text": ["a", "ü"]}
    every = {output["name"]: output for output in infer(text, **of("text"))["outputs"]}
    assert every["raw_bytes"]["parameters"] == {"content_type": "base64"}
    assert base64.b64decode(every["raw_bytes"]["data"][1]) == "ü".encode()
    coded = tensor("text", "BYTES", ["YQD/"], parameters={"content_type": "base64"})
    answer = infer(coded, outputs=[{"name": "raw_bytes"}], **of("text"))
    assert base64.b64decode(answer["outputs"][0]["data"][0]) == b"a\0\xff"
    assert "none" in infer(text, outputs=[{"name": "none"}], status=400, **of("text"))["error"]


X = tensor("x", "FP32", [1.0])
WRONG = {
    "is not an input of this model, which takes x": {"inputs": [X | {"name": "z"}]},
    "is given twice": {"inputs": [X, X]},
    "Missing but required": {"inputs": []},
    "has to be a list of tensors": {"inputs": {"x": [1]}},
    "'inputs' has to be a list": {},
    "has the datatype": {"inputs": [X | {"datatype": "INT32"}]},
    "the model takes FP32": {"inputs": [{"name": "x", "shape": [1], "data": [1]}]},
    "data of the shape [1], and its shape is [2]": {"inputs": [X | {"shape": [2]}]},
    "pass a list of sizes": {"inputs": [X | {"shape": [-1]}]},
    "the model takes (None,)": {"inputs": [X | {"shape": [1, 1]}]},
    "is not of expected type": {"inputs": [X | {"data": ["a"]}]},
    "has no data": {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32"}]},
    "has no name": {"inputs": [{"shape": [1], "datatype": "FP32", "data": [1]}]},
    "has the key": {"inputs": [X | {"dat": [1]}]},
    "binary_data_size=8": {"inputs": [X | {"data": None, "parameters": {"binary_data_size": 8}}]},
    "'outpts' is not a key": {"inputs": [X], "outpts": []},
    "this model has half, matrix": {"inputs": [X], **of("none")},
    "has the parameter 'priority', and may have signature_name": {
        "inputs": [X],
        "parameters": {"priority": 3},
    },
    "The request has binary_data_output='no': pass true or false": {
        "inputs": [X],
        "parameters": {"binary_data_output": "no"},
    },
    "has binary_data=1: pass true or false": {
        "inputs": [X],
        "outputs": [{"name": "double", "parameters": {"binary_data": 1}}],
    },
    "pass a string": {"inputs": [X], "id": 3},
    "more than": {"inputs": [tensor("x", "FP32", [], [2000])]},
}


@pytest.mark.parametrize("words", WRONG)
def test_mistakes_are_named(server, words):
    url = f"{server.rest_url}/v2/models/kinds/infer"
    response = requests.post(url, json=WRONG[words], timeout=30)
    assert response.status_code == 400, response.text
    assert response.json().keys() == {"error"}
    if words != "more than":
        assert words.replace("'", '"') in response.json()["error"].replace("'", '"')
    else:
        assert "at most 1024" in response.json()["error"]


def test_a_large_shape_without_values_is_refused(infer):
    huge = {"name": "x", "shape": [0, 2, 2**50], "datatype": "FP32", "data": []}
    assert "shape" in infer(huge, status=400, **of("matrix"))["error"]


# === Anything a client may think of ===

VALUES = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers()
    | strategies.floats()
    | strategies.text(max_size=5),
    lambda inner: (
        strategies.lists(inner, max_size=3)
        | strategies.dictionaries(strategies.text(max_size=5), inner, max_size=2)
    ),
    max_leaves=6,
)
RIGHT = {
    "serving_default": [tensor("x", "FP32", [1, 3.5])],
    "two": [tensor("ids", "INT32", [[1, 2]]), tensor("scale", "FP32", [0.5])],
    "text": [tensor("text", "BYTES", ["YQ==", "YWI="], parameters={"content_type": "base64"})],
    "matrix": [tensor("x", "FP32", [1] * 6, [1, 2, 3])],
}


@pytest.fixture(scope="module")
def kinds(saved_models):
    """The version of `kinds`, in memory."""
    return SavedModel(saved_models / "kinds" / "7", 1024)


@hypothesis.given(
    strategies.sampled_from(sorted(RIGHT)),
    strategies.sampled_from([(), ("inputs",), ("inputs", 0), ("inputs", 0, "parameters")]),
    strategies.sampled_from(
        ["id", "parameters", "inputs", "outputs", "name", "datatype", "shape", "data"]
        + ["content_type", "binary_data_size"]
    ),
    VALUES,
    strategies.binary(max_size=6),
)
@hypothesis.settings(max_examples=150, deadline=None)
def test_any_value_in_any_place(kinds, name, place, key, value, raw):
    """A request that is right but for one value is answered, or refused by its mistake."""
    document = json.loads(json.dumps({"inputs": RIGHT[name], **of(name)}))
    changed = document
    for step in place:
        changed = changed.setdefault(step, {}) if isinstance(changed, dict) else changed[step]
    if isinstance(changed, list):
        changed.append(value)
    else:
        changed[key] = value
    head = json.dumps(document).encode()
    for body in (head, head + raw):
        try:
            answer = open_inference.infer("kinds", kinds, parse(body, str(len(head))))
        except ServingError as error:
            assert error.code in (StatusCode.INVALID_ARGUMENT, StatusCode.UNIMPLEMENTED)
        else:
            assert answer if isinstance(answer, bytes) else answer.body


# === Tensors in bytes ===


def with_bytes(server, document, *parts, **headers):
    head = json.dumps(document).encode()
    return requests.post(
        f"{server.rest_url}/v2/models/kinds/infer",
        data=b"".join([head, *parts]),
        headers={HEADER: str(len(head)), **headers},
        timeout=30,
    )


def test_tensors_in_bytes(server):
    def sized(name, datatype, shape, size):
        parameters = {"binary_data_size": size}
        return {"name": name, "datatype": datatype, "shape": shape, "parameters": parameters}

    ids, scale = np.array([[1, 2]], "<i4").tobytes(), np.array([0.5], "<f4").tobytes()
    document = {
        "inputs": [sized("ids", "INT32", [1, 2], 8), sized("scale", "FP32", [1], 4)],
        "outputs": [{"name": "total"}, {"name": "ids", "parameters": {"binary_data": True}}],
        **of("two"),
    }
    response = with_bytes(server, document, ids, scale)
    length = int(response.headers[HEADER])
    answer = json.loads(response.content[:length])
    assert answer["outputs"] == [
        {"name": "total", "datatype": "FP32", "shape": [1], "data": [1.5]},
        {
            "name": "ids",
            "datatype": "INT32",
            "shape": [1, 2],
            "parameters": {"binary_data_size": 8},
        },
    ]
    assert response.content[length:] == ids

    texts = b"\1\0\0\0a\0\0\0\0\3\0\0\0\xff\0b"
    document = {
        "inputs": [sized("text", "BYTES", [3], len(texts))],
        "outputs": [{"name": "text"}, {"name": "length", "parameters": {"binary_data": False}}],
        "parameters": {"signature_name": "text", "binary_data_output": True},
    }
    response = with_bytes(server, document, texts)
    length = int(response.headers[HEADER])
    outputs = json.loads(response.content[:length])["outputs"]
    assert response.content[length:] == texts
    assert outputs[1]["data"] == [1, 0, 3]

    document["inputs"][0]["parameters"]["binary_data_size"] -= 1
    assert "1 more bytes" in with_bytes(server, document, texts).json()["error"]
    assert "ends within a string" in with_bytes(server, document, texts[:-1]).json()["error"]
    document["inputs"][0] = sized("text", "BYTES", [2], len(texts))
    words = "has more strings than the 2 of its shape"
    assert words in with_bytes(server, document, texts).json()["error"]
    document["inputs"][0]["shape"] = [4]
    words = "has 3 strings, but its shape needs 4"
    assert words in with_bytes(server, document, texts).json()["error"]
    document = {"inputs": [sized("x", "FP32", [2], 4)]}
    assert "4 bytes, but its shape needs 8" in with_bytes(server, document, scale).json()["error"]
    for wrong in ("-1", "x", "9" * 30, "99999"):
        response = with_bytes(server, document, **{HEADER: wrong})
        assert response.status_code == 400
        assert "inference-header-content-length=" in response.json()["error"]


def test_bytes_of_a_tensor():
    assert to_raw(np.array(["a", "ü"], object).astype(object)[:0]) == b""
    assert to_raw(np.array([b"a", b""], object)) == b"\1\0\0\0a\0\0\0\0"
    assert to_raw(np.array([True, False])) == b"\1\0"
    with pytest.raises(ServingError, match="binary_data_size=-1"):
        parse(b'{"inputs": [{"name": "x", "parameters": {"binary_data_size": -1}}]}')


# === gRPC ===


def varint(number):
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def field(number, value):
    """A field as protobuf writes it: of text, bytes or a whole number."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


@pytest.fixture(scope="module")
def ask(server):
    """`ask("ModelInfer", request)` returns the bytes of an answer to bytes."""
    with grpc.insecure_channel(server.grpc_address) as channel:
        yield lambda method, request=b"": channel.unary_unary(
            f"/inference.GRPCInferenceService/{method}"
        )(request, timeout=30)


def test_messages_have_the_protocols_numbers(ask):
    """Written and read by hand, since both sides could have the same mistake."""
    assert ask("ServerLive") == ask("ServerReady") == field(1, 1)
    assert ask("ModelReady", field(1, "kinds") + field(2, "7")) == field(1, 1)
    assert ask("ModelReady", field(1, "none")) == b""
    about = field(1, "keras_lm") + field(2, __version__) + field(3, "binary_tensor_data")
    assert ask("ServerMetadata") == about
    minus_one = field(3, b"\xff" * 9 + b"\1")
    x, y = (field(1, name) + field(2, "FP32") + minus_one for name in "xy")
    about = field(1, "kinds") + field(2, "7") + field(3, "tensorflow_savedmodel")
    assert ask("ModelMetadata", field(1, "kinds")) == about + field(4, x) + field(5, y)

    named = field(1, "kinds") + field(2, "7") + field(3, "id")
    shaped = field(1, "x") + field(2, "FP32") + field(3, varint(2))
    values = struct.pack("<2f", 1.0, 3.0)
    answered = field(1, "y") + field(2, "FP32") + field(3, varint(2))
    halves = struct.pack("<2f", 2.5, 3.5)
    contents = named + field(5, shaped + field(5, field(6, values)))
    assert ask("ModelInfer", contents) == named + field(5, answered + field(5, field(6, halves)))
    raw = named + field(5, shaped) + field(7, values)
    assert ask("ModelInfer", raw) == named + field(5, answered) + field(6, halves)


def request_of(**fields):
    return open_inference_grpc.CLASSES["ModelInferRequest"](
        model_name="kinds", **fields
    ).SerializeToString()


def signature_name(name):
    return [{"key": "signature_name", "value": {"string_param": name}}]


def test_types_over_grpc(ask):
    def answer(request):
        response = open_inference_grpc.CLASSES["ModelInferResponse"]
        return response.FromString(ask("ModelInfer", request))

    inputs = [
        {"name": "small", "datatype": "UINT8", "contents": {"uint_contents": [255]}},
        {"name": "large", "datatype": "INT64", "contents": {"int64_contents": [2**62]}},
        {"name": "exact", "datatype": "FP64", "contents": {"fp64_contents": [0.1]}},
        {"name": "flag", "datatype": "BOOL", "contents": {"bool_contents": [True]}},
    ]
    inputs = [one | {"shape": [1]} for one in inputs]
    response = answer(request_of(inputs=inputs, parameters=signature_name("types")))
    outputs = {output.name: output.contents for output in response.outputs}
    assert outputs["small"].uint_contents == [255]
    assert outputs["large"].int64_contents == [2**62]
    assert outputs["exact"].fp64_contents == [0.1]
    assert outputs["flag"].bool_contents == [False]

    text = {"name": "text", "datatype": "BYTES", "shape": [2]}
    text["contents"] = {"bytes_contents": [b"\xff", b""]}
    chosen = [{"name": "raw_bytes"}]
    parameters = signature_name("text")
    response = answer(request_of(inputs=[text], outputs=chosen, parameters=parameters))
    assert [output.name for output in response.outputs] == ["raw_bytes"]
    assert response.outputs[0].contents.bytes_contents == [b"\xff", b""]

    x = {"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [1.5]}}
    response = answer(request_of(inputs=[x], parameters=signature_name("half")))
    assert response.raw_output_contents == [np.float16(1.5).tobytes()]
    assert response.outputs[0].datatype == "FP16"


X_GRPC = {"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [1]}}
WRONG_GRPC = {
    "has 1 values in fp32_contents, but its shape needs 2": {"inputs": [X_GRPC | {"shape": [2]}]},
    "raw_input_contents has 1, for 2 inputs": {
        "inputs": [X_GRPC, X_GRPC],
        "raw_input_contents": [b""],
    },
    "has contents, and the request": {"inputs": [X_GRPC], "raw_input_contents": [b"\0" * 4]},
    "version='x'": {"model_version": "x"},
    "which is out of the range of uint8": {
        "inputs": [
            X_GRPC | {"name": "small", "datatype": "UINT8", "contents": {"uint_contents": [256]}}
        ],
        "parameters": signature_name("types"),
    },
    "has the parameter 'timeout'": {
        "parameters": [{"key": "timeout", "value": {"int64_param": 3}}]
    },
}


@pytest.mark.parametrize("words", WRONG_GRPC)
def test_mistakes_over_grpc_are_named(ask, words):
    with pytest.raises(grpc.RpcError) as caught:
        ask("ModelInfer", request_of(**WRONG_GRPC[words]))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert words.replace("'", '"') in caught.value.details().replace("'", '"')


def test_unknown_models_over_grpc(ask):
    for method, request in {"ModelMetadata": field(1, "none"), "ModelInfer": field(1, "a")}.items():
        with pytest.raises(grpc.RpcError) as caught:
            ask(method, request)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


# === Triton's clients ===


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tritons_client(server, protocol):
    module = pytest.importorskip(f"tritonclient.{protocol}", reason="tritonclient[all] is missing")
    address = server.grpc_address if protocol == "grpc" else server.rest_url.split("//")[1]
    client = module.InferenceServerClient(address)
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("kinds")
    assert client.is_model_ready("kinds", "7")
    assert not client.is_model_ready("none")
    as_json = {"as_json": True} if protocol == "grpc" else {}
    assert client.get_server_metadata(**as_json)["name"] == "keras_lm"
    assert client.get_model_metadata("kinds", **as_json)["inputs"][0]["datatype"] == "FP32"

    x = module.InferInput("x", [2], "FP32")
    x.set_data_from_numpy(np.array([1, 3], np.float32))
    result = client.infer("kinds", [x], request_id="one")
    assert result.as_numpy("y").tolist() == [2.5, 3.5]
    assert result.as_numpy("none") is None

    text = module.InferInput("text", [2], "BYTES")
    text.set_data_from_numpy(np.array(["a", "ü"], object))
    outputs = [module.InferRequestedOutput(name) for name in ("raw_bytes", "length")]
    named = {"parameters": {"signature_name": "text"}}
    result = client.infer("kinds", [text], model_version="7", outputs=outputs, **named)
    assert result.as_numpy("raw_bytes").tolist() == [b"a", "ü".encode()]
    assert result.as_numpy("length").tolist() == [1, 2]
    if protocol == "http":
        text.set_data_from_numpy(np.array(["a", "ü"], object), binary_data=False)
        outputs = [module.InferRequestedOutput("text", binary_data=False)]
        result = client.infer("kinds", [text], outputs=outputs, **named)
        assert result.as_numpy("text").tolist() == ["a", "ü"]
    with pytest.raises(Exception, match="there are: kinds"):
        client.infer("none", [x])
    client.close()
