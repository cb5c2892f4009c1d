"""REST: every route, form and error that TF Serving's documentation and source describe."""

import gzip
import json
import math

import pytest
import requests

from keras_lm.serving import Server


def test_status(rest):
    version = {
        "version": "7",
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }
    for path in ("", "/versions/7", "/versions/007", "/labels/any"):
        response = rest.get(path)
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/json"
        assert response.json() == {"model_version_status": [version]}


def test_status_of_what_is_not_there(rest, server):
    response = rest.get("/versions/8")
    assert response.status_code == 404
    assert response.json() == {"error": "Could not find version 8 of model kinds"}
    response = requests.get(f"{server.rest_url}/v1/models/nobody")
    assert response.status_code == 404
    assert response.json() == {
        "error": "Could not find any versions of model nobody; there are: kinds, examples"
    }
    response = requests.post(f"{server.rest_url}/v1/models:predict")
    assert response.status_code == 400
    assert response.json() == {"error": "Malformed request: POST /v1/models:predict"}


def test_metadata(rest):
    for path in ("/metadata", "/versions/7/metadata"):
        document = rest.get(path).json()
        assert document["model_spec"] == {"name": "kinds", "signature_name": "", "version": "7"}
        signatures = document["metadata"]["signature_def"]["signature_def"]
        assert {"serving_default", "two", "text"} < signatures.keys()
        assert signatures["two"]["method_name"] == "tensorflow/serving/predict"
        ids = signatures["two"]["inputs"]["ids"]
        assert ids["dtype"] == "DT_INT32"
        assert [size["size"] for size in ids["tensor_shape"]["dim"]] == ["-1", "2"]
        assert ids["tensor_shape"]["unknown_rank"] is False
    assert rest.get("/versions/8/metadata").status_code == 404
    assert rest.get("/labels/stable/metadata").status_code == 400


def test_predict_by_rows(rest):
    assert rest.post(instances=[1.0, 2, 5]).json() == {"predictions": [2.5, 3.0, 4.5]}
    assert rest.post(instances=[{"x": 1.0}, {"x": 2}]).json() == {"predictions": [2.5, 3.0]}
    assert rest.post("/versions/7:predict", instances=[1]).json() == {"predictions": [2.5]}


def test_predict_by_columns(rest):
    assert rest.post(inputs=[1.0, 2, 5]).json() == {"outputs": [2.5, 3.0, 4.5]}
    assert rest.post(inputs={"x": [1]}).json() == {"outputs": [2.5]}
    assert rest.post(inputs=[]).json() == {"outputs": []}


def test_several_inputs_and_outputs(rest):
    rows = [{"ids": [1, 2], "scale": 0.5}, {"ids": [3, 4], "scale": 2.0}]
    assert rest.post(signature_name="two", instances=rows).json() == {
        "predictions": [{"total": 1.5, "ids": [1, 2]}, {"total": 14.0, "ids": [3, 4]}]
    }
    columns = {"ids": [[1, 2], [3, 4]], "scale": [0.5, 2.0]}
    assert rest.post(signature_name="two", inputs=columns).json() == {
        "outputs": {"total": [1.5, 14.0], "ids": [[1, 2], [3, 4]]}
    }


def test_types(rest):
    row = {"small": 255, "large": -(2**63), "exact": 1e300, "flag": True}
    answer = rest.post(signature_name="types", instances=[row]).json()
    assert answer == {"predictions": [row | {"flag": False}]}


def test_more_dimensions_and_none(rest):
    row = [[1, 2, 3], [4, 5, 6]]
    answer = rest.post(signature_name="matrix", instances=[row, row]).json()
    assert answer == {"predictions": [[[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]] * 2}
    assert rest.post(signature_name="scalar", inputs=1.5).json() == {"outputs": 2.5}
    error = rest.fails(400, signature_name="scalar", instances=[1.5])
    assert "Expects input x to have shape () but (1,) is provided" in error


def test_strings(rest):
    texts = ["a", "", "ü 中 \0", {"b64": "//4="}, {"b64": "YQ"}]
    response = rest.post(signature_name="text", instances=texts)
    answer = json.loads(response.content.decode("utf-8", "surrogateescape"))["predictions"]
    encoded = ["YQ==", "", "w7wg5LitIAA=", "//4=", "YQ=="]
    assert [row["raw_bytes"] for row in answer] == [{"b64": text} for text in encoded]
    assert [row["text"] for row in answer] == ["a", "", "ü 中 \0", "\udcff\udcfe", "a"]
    assert [row["length"] for row in answer] == [1, 0, 8, 2, 1]


def test_bytes_that_are_no_text_pass_as_they_are(rest):
    body = b'{"signature_name": "text", "inputs": ["a\xff\xfe"]}'
    response = rest.post(data=body)
    assert b'"text": ["a\xff\xfe"]' in response.content


def test_numbers_that_are_none(rest):
    response = rest.post(data='{"instances": [NaN, Infinity, -Infinity]}')
    assert response.text == '{"predictions": [NaN, Infinity, -Infinity]}'
    # (requests decodes by simplejson where that is installed, which refuses such numbers.)
    assert math.isnan(json.loads(response.text)["predictions"][0])


def test_floats_are_as_short_as_they_can_be(rest):
    answer = rest.post(signature_name="matrix", inputs=[[[0.2, 1e20, 1e-10], [3, -0.1, 1 / 3]]])
    assert answer.text == '{"outputs": [[[0.2, 3.0], [1e+20, -0.1], [1e-10, 0.33333334]]]}'


def test_body_needs_no_content_type_and_may_be_zipped(rest):
    body = b'{"instances": [1.0]}'
    headers = {"Content-Type": None}
    assert requests.post(rest.url + ":predict", body, headers=headers).status_code == 200
    headers = {"Content-Encoding": "gzip"}
    zipped = requests.post(rest.url + ":predict", gzip.compress(body), headers=headers)
    assert zipped.json() == {"predictions": [2.5]}
    zipped = requests.post(rest.url + ":predict", body, headers={"Content-Encoding": "identity"})
    assert zipped.json() == {"predictions": [2.5]}
    for encoding in ("br", "deflate", "gzip, gzip"):
        answer = requests.post(rest.url + ":predict", body, headers={"Content-Encoding": encoding})
        assert answer.status_code == 415
        assert f"Content-Encoding '{encoding}' is not supported" in answer.json()["error"]
    more = requests.post(rest.url + ":predict", gzip.compress(body) + b"x", headers=headers)
    assert more.status_code == 400 and "goes on after its end" in more.json()["error"]
    large = gzip.compress(bytes(2**26 + 1))
    assert requests.post(rest.url + ":predict", large, headers=headers).status_code == 413
    for broken in (body, gzip.compress(body)[:-3]):
        assert requests.post(rest.url + ":predict", broken, headers=headers).status_code == 400


@pytest.mark.parametrize(
    "body, message",
    [
        ("", "The document is empty"),
        ("{", "JSON Parse error"),
        ("nonsense", "JSON Parse error"),
        ("[1, 2]", "Is not object"),
        ('{"instances": [1e999]}', "Number too big to be stored in double"),
        ('{"instances": [' + "9" * 5000 + "]}", "Number too big to be stored in double"),
        ('{"signature_name": "text", "instances": ["\\ud800"]}', "surrogate pair"),
        ("{}", "Missing 'inputs' or 'instances' key"),
        ('{"instances": [1], "inputs": [1]}', "only one of 'inputs' or 'instances'"),
        ('{"instances": 1}', "to be an list/array"),
        ('{"instances": []}', "No values in 'instances' array"),
        ('{"instances": [1], "signature_name": 100}', "key must be a string value"),
        ('{"instances": [1], "signature_name": "no"}', 'name: "no" not found in signature def'),
        ('{"instances": [1], "signature_name": "__saved_model_init_op"}', "get input map"),
        ('{"instances": ["a", "b"]}', "not of expected type: float"),
        ('{"instances": [null]}', "Type: Null is not of expected type: float"),
        ('{"instances": [true]}', "not of expected type: float"),
        ('{"instances": [{"b64": "YQ=="}]}', "not of expected type: float"),
        ('{"instances": [16777217]}', "to float without loss of precision"),
        ('{"instances": [1e300]}', "to float without loss of precision"),
        ('{"instances": [[1], 2]}', "Failed to process element: 1 of 'instances' list"),
        ('{"instances": [[1], [2, 3]]}', "Expecting shape [1] but got: [2]"),
        ('{"inputs": [[1], [2, 3]]}', "unexpected size: 2 at level: 1 expected size: 1"),
        ('{"inputs": [1, [2]]}', "Encountered list at unexpected level"),
        ('{"inputs": [[2], 1]}', "found at incorrect level"),
        ('{"instances": [[1, 2]]}', "to have shape (None,) but (1, 2) is provided"),
        ('{"instances": [1, {"x": 1}]}', "Expecting value/list but got object at item 1"),
        ('{"instances": [{"x": 1}, 1]}', "Expecting object but got list at item 1"),
        ('{"instances": [{"z": 1}]}', "does not have named input: z"),
        ('{"instances": [{}]}', "keys must be equal to: x"),
        ('{"inputs": {"z": [1]}}', "Missing named input: x"),
        ('{"signature_name": "two", "instances": [1]}', "instances is a plain list"),
        ('{"signature_name": "two", "inputs": [1]}', "inputs is a plain value/list"),
        ('{"signature_name": "two", "inputs": {"ids": [[1.0, 2]], "scale": [1]}}', "int32"),
        ('{"signature_name": "two", "inputs": {"ids": [[1, 2147483648]], "scale": [1]}}', "int32"),
        ('{"signature_name": "types", "instances": [{"flag": 1}]}', "expected type: bool"),
        ('{"signature_name": "types", "instances": [{"flag": true}]}', "exact,flag,large,small"),
        ('{"signature_name": "text", "instances": [1]}', "not of expected type: string"),
        ('{"signature_name": "text", "instances": [{"b64": 1}]}', "does not have named input: b64"),
        ('{"signature_name": "text", "inputs": [{"b64": "!"}]}', "Unable to base64 decode"),
        ('{"signature_name": "half", "instances": [1]}', "JSON value for tensor type: half"),
        ('{"signature_name": "picky", "instances": [-1]}', "only above zero"),
        ('{"signature_name": "text", "inputs": {"text": [], "more": 1}, "instances": []}', "only"),
    ],
)
def test_wrong_requests(rest, body, message):
    assert message in rest.fails(400, data=body)


def test_rows_of_no_batch(rest):
    error = rest.fails(400, signature_name="slow", instances=[0])
    assert "Expects input seconds to have shape ()" in error


def test_unknown_models_versions_and_labels(rest, rest_of, server):
    ask = {"instances": [1]}
    error = rest_of(server, "nobody").fails(404, **ask)
    assert error == "Servable not found for request: Latest(nobody); there are: kinds, examples"
    error = rest.fails(404, "/versions/8:predict", **ask)
    assert error == "Servable not found for request: Specific(kinds, 8)"
    error = rest.fails(400, "/versions/99999999999999999999:predict", **ask)
    assert "to numeric" in error
    digits = "9" * 5000
    for path in (f"/versions/{digits}", f"/versions/{digits}/metadata"):
        response = rest.get(path)
        assert response.status_code == 400
        assert response.json() == {"error": f"Failed to convert version: {digits} to numeric."}
    assert rest.get(f"/versions/{'0' * 5000}7").status_code == 200
    error = rest.fails(400, "/labels/stable:predict", **ask)
    assert error == "Unrecognized servable version label: stable"
    # JSON is read before the model is looked for.
    assert "JSON Parse error" in rest_of(server, "nobody").fails(400, data="{")


@pytest.mark.parametrize(
    "method, path, status",
    [
        ("POST", "/v1/models/kinds", 400),
        ("POST", "/v1/models/kinds:explain", 400),
        ("POST", "/v1/models/kinds:Predict", 400),
        ("POST", "/v1/models/:predict", 400),
        ("POST", "/v1/models/kinds/7:predict", 400),
        ("POST", "/v1/models/kinds/versions/x:predict", 400),
        ("GET", "/v1/models/kinds:predict", 400),
        ("GET", "/v1/models/kinds/", 400),
        ("GET", "/v1/nonsense", 400),
        ("PUT", "/v1/models/kinds", 400),
        ("OPTIONS", "/v1/models/kinds", 400),
        ("DELETE", "/v1/models/kinds:predict", 400),
        ("GET", "/v3/models/kinds", 404),
        ("POST", "/", 404),
        ("GET", "/favicon.ico", 404),
    ],
)
def test_wrong_paths_and_verbs(server, method, path, status):
    response = requests.request(method, server.rest_url + path, data="{}")
    assert response.status_code == status
    if status == 400:
        assert response.json() == {"error": f"Malformed request: {method} {path}"}


def test_paths_may_be_quoted_and_have_queries(rest, server):
    for path in ("/v1/models/k%69nds", "/V1/MODELS/kinds", "/v1/models/kinds?pretty=1"):
        assert requests.get(server.rest_url + path).status_code == 200


def test_no_other_origin_may_read(rest):
    headers = {"Origin": "http://elsewhere.example"}
    response = requests.post(rest.url + ":predict", '{"instances": [1]}', headers=headers)
    assert not [name for name in response.headers if name.lower().startswith("access-control")]


def test_other_origins_may_read_with_cors(saved_models, rest_of):
    with Server(saved_models / "kinds", cors=True) as open_server:
        kinds = rest_of(open_server)
        asked = requests.options(kinds.url + ":predict", timeout=60)
        assert asked.status_code == 200
        assert "Content-Type" in asked.headers["Access-Control-Allow-Headers"]
        for answer in (asked, kinds.post(instances=[1]), kinds.post(data="{")):
            assert answer.headers["Access-Control-Allow-Origin"] == "*"


def test_page(server):
    response = requests.get(server.rest_url)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    assert "kinds" in response.text


# Classify and Regress


@pytest.fixture(scope="module")
def examples(rest_of, server):
    return rest_of(server, "examples")


def test_classify(examples):
    answer = examples.post(":classify", examples=[{"text": "ab"}, {"text": ["xyz"]}]).json()
    assert answer == {"results": [[["ab", 2.0], ["AB", 0.2]], [["xyz", 3.0], ["XYZ", 0.3]]]}


def test_classify_without_classes_or_scores(examples):
    ask = {"examples": [{"text": "ab"}]}
    answer = examples.post(":classify", signature_name="only_scores", **ask).json()
    assert answer == {"results": [[["", 2.0], ["", 0.2]]]}
    answer = examples.post(":classify", signature_name="only_classes", **ask).json()
    assert answer == {"results": [[["ab", 0.0], ["AB", 0.0]]]}


def test_context_belongs_to_all_examples(examples):
    answer = examples.post(":classify", context={"text": "abc"}, examples=[{}, {"text": "z"}])
    assert [row[0] for row in answer.json()["results"]] == [["abc", 3.0], ["z", 1.0]]


def test_regress(examples):
    features = [{"weights": [0.5, 1.25], "count": 2}, {"weights": [], "count": True}, {}]
    for name in ("regress", "regress_column"):
        answer = examples.post(":regress", signature_name=name, examples=features).json()
        assert answer == {"results": [3.75, 1.0, 0.0]}


def test_bytes_in_examples(examples):
    answer = examples.post(":classify", examples=[{"text": {"b64": "YWI="}}]).json()
    assert answer["results"][0][0] == ["ab", 2.0]


@pytest.mark.parametrize(
    "verb, body, message",
    [
        ("classify", "{}", "key 'examples' is expected and was not found"),
        ("classify", '{"examples": {}}', "to be an list/array"),
        ("classify", '{"examples": []}', "is an empty array"),
        ("classify", '{"examples": [1]}', "Example must be JSON object but got JSON Number"),
        ("classify", '{"examples": [{"text": null}]}', "unexpected JSON type: Null"),
        ("classify", '{"examples": [{"text": [["a"]]}]}', "unexpected JSON type: Array"),
        ("classify", '{"examples": [{"text": {"a": 1}}]}', "unexpected JSON type: Object"),
        ("classify", '{"examples": [{"text": ["a", 1]}]}', "expecting type: bytes"),
        ("classify", '{"examples": [{"count": 18446744073709551615}]}', "Only int64"),
        ("classify", '{"examples": [{"weights": 1e300}]}', "without loss of precision"),
        ("classify", '{"examples": [{"text": 1}]}', "Data types don't match"),
        ("classify", '{"examples": [{}], "context": 1}', "must be JSON object"),
        ("classify", '{"examples": [{}], "signature_name": "no"}', "found with the name: no"),
        ("classify", '{"examples": [{}], "signature_name": "flat"}', "[batch_size num_classes]"),
        ("classify", '{"examples": [{}], "signature_name": "regress"}', 'one of "classes" or'),
        ("regress", '{"examples": [{}]}', "Expected one output Tensor"),
        ("regress", '{"examples": [{}], "signature_name": "only_scores"}', "No regression outputs"),
        ("regress", '{"examples": [{}], "signature_name": "regress_wide"}', "or [batch_size, 1]"),
    ],
)
def test_wrong_examples(examples, verb, body, message):
    assert message in examples.fails(400, f":{verb}", data=body)


def test_classify_needs_a_signature_of_examples(rest):
    error = rest.fails(400, ":classify", examples=[{}])
    assert error == "No classification inputs found in SignatureDef 'serving_default'."
    error = rest.fails(400, ":classify", examples=[{}], signature_name="two")
    assert error == "Expected one input Tensor."
