"""The description of what the server answers, from the signatures of its models."""

import re

import pytest
import requests

from keras_lm.serving import Server
from keras_lm.serving.errors import ServingError, StatusCode
from keras_lm.serving.models import ModelConfig, Models
from keras_lm.serving.openapi import document


@pytest.fixture(scope="module")
def described(saved_models):
    with Server({"<kinds>": saved_models / "kinds"}) as running:
        yield running, requests.get(f"{running.rest_url}/openapi.json", timeout=60).json()


def test_every_path_answers(described):
    server, actual = described
    assert "/v1/models/<kinds>:predict" in actual["paths"]
    for path, methods in actual["paths"].items():
        if "get" in methods:
            assert requests.get(server.rest_url + path, timeout=60).status_code == 200, path
        else:  # an empty request is refused, not unknown
            answer = requests.post(server.rest_url + path, json={}, timeout=60)
            assert answer.status_code == 400 and "Malformed" not in answer.text, path


def test_a_body_is_as_the_signatures_say(described):
    server, actual = described
    body = actual["paths"]["/v1/models/<kinds>:predict"]["post"]["requestBody"]["content"]
    ways = {way["title"]: way["properties"] for way in body["application/json"]["schema"]["anyOf"]}
    assert ways["serving_default"]["instances"]["items"]["anyOf"][0] == {"type": "number"}
    row = ways["two"]["instances"]["items"]["properties"]
    pair = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
    assert row == {"ids": pair, "scale": {"type": "number"}}
    assert ways["two"]["inputs"]["required"] == ["ids", "scale"]
    assert ways["types"]["instances"]["items"]["properties"]["flag"] == {"type": "boolean"}
    assert ways["text"]["instances"]["items"]["anyOf"][0] == {"type": "string"}
    asked = {"signature_name": "two", "instances": [{"ids": [1, 2], "scale": 2.0}]}
    answer = requests.post(f"{server.rest_url}/v1/models/<kinds>:predict", json=asked, timeout=60)
    assert answer.json()["predictions"][0]["total"] == 6


def test_what_is_referred_to_is_there(described):
    _, actual = described
    names = set(re.findall(r"#/components/schemas/(\w+)", str(actual)))
    assert names and names <= actual["components"]["schemas"].keys()


def test_the_page_shows_all_and_fetches_nothing(described):
    server, actual = described
    page = requests.get(f"{server.rest_url}/docs", timeout=60)
    assert page.headers["content-type"].startswith("text/html")
    assert page.text.count("<details>") == sum(len(each) for each in actual["paths"].values())
    assert "/v1/models/&lt;kinds&gt;:predict" in page.text and "<kinds>" not in page.text
    assert not re.findall(r"(?:src|href)=\"(?!openapi\.json)", page.text)


class Gone(Models):
    """Models of which one has no version that answers."""

    names = ("gone",)

    def lease(self, name, version=None, label=None):
        raise ServingError(StatusCode.NOT_FOUND, "gone")


def test_a_model_without_a_version_is_left_out():
    assert not [path for path in document(Gone())["paths"] if "gone" in path]


def test_language_models_and_embedders_have_openais_paths(saved_models, monkeypatch):
    models = Models()
    models.configure([ModelConfig("kinds", saved_models / "kinds")])
    with models.lease("kinds") as served:
        names = dict.fromkeys(("generate", "next_token"), served.signature_defs["two"])
        monkeypatch.setattr(served, "signature_defs", served.signature_defs | names)
        paths = document(models)["paths"]
    assert {"/v1/completions", "/v1/models/kinds:stream"} <= paths.keys()
    assert {"/v2/models/kinds/infer", "/v2/models/kinds/ready", "/rerank"} <= paths.keys()
    assert "/v1/search" not in paths
    assert "/v1/embeddings" not in paths
    body = paths["/v1/completions"]["post"]["requestBody"]["content"]["application/json"]
    assert body["schema"]["properties"]["max_tokens"] == {"type": "integer", "default": 16}
    models.close()
