"""Documents for a query: rerankers of each kind, and the search of an export's corpus."""

import numpy as np
import pytest
import requests
import tensorflow as tf

from keras_lm.serving import Server

DOCUMENTS = ["b", "aaa", "aa", "aaaa b"]  # have 0, 3, 2 and 4 a's
TEXT, PAIR = {"text": [None]}, {"text": [None], "text_pair": [None]}


def save(folder, columns, *functions):
    """Write a SavedModel of functions of strings, `serving_default` and others."""
    specs = {name: tf.TensorSpec(shape, tf.string, name) for name, shape in columns.items()}
    traced = {
        function.__name__: tf.function(function, autograph=False).get_concrete_function(**specs)
        for function in functions
    }
    tf.saved_model.save(tf.Module(), str(folder / "1"), signatures=traced)


def count(text, letter):
    return tf.cast(tf.strings.length(text), tf.float32) - tf.cast(
        tf.strings.length(tf.strings.regex_replace(text, letter, "")), tf.float32
    )


def save_rerankers(root):
    """Write models whose relevance is how many a the document has, if the query has a q."""

    def relevance(text, text_pair):
        return count(text, "q") * count(text_pair, "a")

    def of_number(text, text_pair):
        return {"scores": relevance(text, text_pair)}

    def of_classes(number):
        def serving_default(text, text_pair):
            share = relevance(text, text_pair) / 10
            columns = [1 - share, *[share] * (number - 1)]
            return {"scores": tf.stack(columns, 1), "labels": text}

        return serving_default

    of_number.__name__ = "serving_default"
    save(root / "number", PAIR, of_number)
    save(root / "classes", PAIR, of_classes(2))
    save(root / "three", PAIR, of_classes(3))


def save_encoder(root):
    """Write a model whose vectors are how many a and b a text has, and its search."""

    def serving_default(text):
        return {"embedding": tf.stack([count(text, "a"), count(text, "b")], 1)}

    def search(text):
        rows = tf.argsort(tf.stack([count(text, "a"), count(text, "b")], 1), 1, "DESCENDING")
        scores = tf.cast(rows, tf.float32) / 2
        return {"rows": rows, "documents": tf.gather(["aa", "ü"], rows), "scores": scores}

    save(root / "encoder", TEXT, serving_default, search)


def save_encoders_of_roles(root):
    """Write models that read queries apart: of tokens, which are letters, and of one vector."""

    def vectors(text):
        letters = tf.strings.unicode_split(text, "UTF-8").to_tensor("")  # (B, S)
        return tf.stack([tf.cast(letters == x, tf.float32) for x in "abc"], -1)

    def of_tokens(text):
        return {"embedding": vectors(text), "mask": tf.ones(tf.shape(vectors(text))[:2], tf.int32)}

    def serving_default(text):
        return {"embedding": tf.reduce_sum(vectors(text), axis=1)}

    def query(text):
        return {"embedding": 2 * tf.reduce_sum(vectors(text), axis=1)}

    save(root / "sparse", TEXT, serving_default, query)
    signatures = {"serving_default": of_tokens, "query": of_tokens}
    traced = {
        name: tf.function(of, autograph=False).get_concrete_function(
            text=tf.TensorSpec([None], tf.string, "text")
        )
        for name, of in signatures.items()
    }
    tf.saved_model.save(tf.Module(), str(root / "late" / "1"), signatures=traced)


@pytest.fixture(scope="module")
def post(tmp_path_factory):
    """`post(path, **fields)` sends a request and returns the response."""
    root = tmp_path_factory.mktemp("models")
    save_rerankers(root)
    save_encoder(root)
    save_encoders_of_roles(root)
    with Server(root) as server:
        yield lambda path, **fields: requests.post(
            f"{server.rest_url}/{path}", json=fields, timeout=60
        )


def error_of(response):
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    return response.json()["error"]["message"]


@pytest.mark.parametrize("path", ["rerank", "v1/rerank", "v2/rerank"])
@pytest.mark.parametrize("model, share", [("number", 1), ("classes", 10)])
def test_rerankers_of_pairs(post, path, model, share):
    answer = post(path, model=model, query="q", documents=DOCUMENTS, top_n=3).json()
    assert answer["model"] == model
    assert [row["index"] for row in answer["results"]] == [3, 1, 2]
    scores = [row["relevance_score"] for row in answer["results"]]
    np.testing.assert_allclose(scores, np.array([4, 3, 2]) / share, rtol=1e-6)
    assert answer["results"][0].keys() == {"index", "relevance_score"}


def test_documents_are_returned_if_asked_for(post):
    documents = [{"text": "a"}, "aa"]
    answer = post(
        "rerank", model="number", query="q", documents=documents, return_documents=True
    ).json()
    assert [row["document"] for row in answer["results"]] == [{"text": "aa"}, {"text": "a"}]


def test_an_encoder_ranks_by_the_cosine(post):
    answer = post("rerank", model="encoder", query="ab", documents=DOCUMENTS).json()
    scores = {row["index"]: row["relevance_score"] for row in answer["results"]}
    half = 0.5**0.5
    expected = {0: half, 1: half, 2: half, 3: 5 * half / 17**0.5}
    assert scores == pytest.approx(expected, rel=1e-6)
    assert answer["results"][0]["index"] == 3
    nothing = post("rerank", model="encoder", query="c", documents=["a"]).json()
    assert nothing["results"][0]["relevance_score"] == 0


def test_encoders_of_roles_rank_as_they_compare(post):
    documents = ["b", "aaab", "zz", "cab"]
    answer = post("rerank", model="late", query="abaz", documents=documents).json()
    scores = {row["index"]: row["relevance_score"] for row in answer["results"]}
    assert scores == {0: 1, 1: 3, 2: -3e4, 3: 3}  # a document without tokens is the last
    answer = post("rerank", model="sparse", query="abaz", documents=documents).json()
    scores = {row["index"]: row["relevance_score"] for row in answer["results"]}
    assert scores == {0: 2, 1: 14, 2: 0, 3: 6}
    assert post("v1/embeddings", model="sparse", input="ab").json()["data"][0]["embedding"] == [
        *(1, 1, 0)
    ]
    error = error_of(post("v1/embeddings", model="late", input="ab"))
    assert "several vectors for a text" in error and "rerank" in error


def test_the_form_of_text_embeddings_inference(post):
    answer = post("rerank", model="number", query="q", texts=DOCUMENTS, truncate=True).json()
    assert answer[0] == {"index": 3, "score": 4.0}
    answer = post("rerank", model="number", query="q", texts=["a"], return_text=True).json()
    assert answer == [{"index": 0, "score": 1.0, "text": "a"}]


def test_search(post):
    answer = post("v1/search", model="encoder", query=["aab", "bba"]).json()
    hits = {"index": 1, "score": 0.5, "document": {"text": "ü"}}
    others = {"index": 0, "score": 0.0, "document": {"text": "aa"}}
    assert [one["index"] for one in answer["data"]] == [0, 1]
    assert answer["data"][0]["results"] == [others, hits]
    assert answer["data"][1]["results"] == [hits, others]
    answer = post("v1/search", model="encoder", query="a", top_n=1).json()
    assert answer["data"] == [{"index": 0, "results": [others]}]


WRONG = {
    "pass the documents as documents, or as texts": {"documents": None, "texts": None},
    "documents is an empty list": {"documents": []},
    "documents: pass a list of strings": {"documents": "a"},
    'or of objects {"text": …}': {"documents": [{"text": "a", "title": "b"}]},
    "query=3: pass a string": {"query": 3},
    "top_n=0: pass a whole number from 1": {"top_n": 0},
    "return_documents=1: pass true or false": {"return_documents": 1},
    "['rank_fields'] are not supported": {"rank_fields": ["a"]},
    "raw_scores=True is not supported": {"raw_scores": True},
    "does not have two classes": {"model": "three"},
    "at most 1024": {"documents": ["a"] * 1025},
    "surrogate pair in string is invalid": {"query": "\ud800"},
}


@pytest.mark.parametrize("words", WRONG)
def test_mistakes_are_named(post, words):
    fields = {"model": "number", "query": "q", "documents": ["a"]} | WRONG[words]
    if fields["documents"] is None:
        del fields["documents"], fields["texts"]
    assert words in error_of(post("rerank", **fields))


def test_models_that_cannot(post):
    assert "has no corpus" in error_of(post("v1/search", model="number", query="a"))
    assert "top_n=3: this export returns 2" in error_of(
        post("v1/search", model="encoder", query="a", top_n=3)
    )
    assert post("v1/search", model="none", query="a").status_code == 404
    assert post("v2/rerank", model="none", query="a", documents=["a"]).status_code == 404
