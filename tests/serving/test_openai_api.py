"""OpenAI's API: its fields become the signatures' inputs, and errors have its form."""

import base64
import json

import numpy as np
import pytest
import requests
import tensorflow as tf

from keras_lm.serving import Server

OPTIONS = {
    "max_new_tokens": tf.int32,
    "temperature": tf.float32,
    "top_p": tf.float32,
    "seed": tf.int64,
    "no_repeat_ngram_size": tf.int32,
}


def save(folder, **signatures):
    """Write a SavedModel of functions with the types of their inputs, (B,) each."""
    traced = {
        name: tf.function(function, autograph=False).get_concrete_function(
            **{key: tf.TensorSpec(*spec, key) for key, spec in specs.items()}
        )
        for name, (function, specs) in signatures.items()
    }
    tf.saved_model.save(tf.Module(), str(folder), signatures=traced)


TEXT = {"text": ([None], tf.string)}


def save_embedder(folder):
    """Write a SavedModel that embeds a text as its length and 1."""

    def serving_default(text):
        length = tf.cast(tf.strings.length(text), tf.float32)
        return {"embedding": tf.stack([length, tf.ones_like(length)], 1)}

    def tokenize(text):
        return {"tokens": tf.strings.split(text).to_tensor("")}

    save(folder, serving_default=(serving_default, TEXT), tokenize=(tokenize, TEXT))


def save_writer(folder):
    """Write a SavedModel whose continuation of a prompt tells the options that it was given."""

    specs = {name: ([None], dtype) for name, dtype in OPTIONS.items()}
    specs |= {"prompt": ([None], tf.string), "stop": ([None, None], tf.string)}

    def generate(prompt, stop, **options):
        rounded = {name: 2 if dtype == tf.float32 else -1 for name, dtype in OPTIONS.items()}
        told = [tf.strings.as_string(options[n], precision=p) for n, p in rounded.items()]
        told.append(tf.strings.reduce_join(stop, 1, separator="+"))
        return {
            "text": tf.strings.join(told, "|"),
            "num_tokens": tf.minimum(options["max_new_tokens"], 20),
            "num_prompt_tokens": tf.strings.length(prompt),
        }

    def next_token(token_ids):
        return {"logits": token_ids}

    tokens = {"token_ids": ([None], tf.int32)}
    save(folder, generate=(generate, specs), next_token=(next_token, tokens))


@pytest.fixture(scope="module")
def post(tmp_path_factory):
    """`post(path, **fields)` sends a request and returns the response."""
    root = tmp_path_factory.mktemp("models")
    save_embedder(root / "embedder" / "1")
    save_writer(root / "writer" / "1")
    with Server([root / "embedder", root / "writer"]) as server:

        def post(path, **fields):
            return requests.post(f"{server.rest_url}/v1/{path}", json=fields, timeout=60)

        post.url = server.rest_url
        yield post


def test_models_are_listed(post):
    answer = requests.get(f"{post.url}/v1/models", timeout=60).json()
    assert answer["object"] == "list"
    assert [model["id"] for model in answer["data"]] == ["embedder", "writer"]


def test_embeddings(post):
    answer = post("embeddings", model="embedder", input=["a b", "abcd"]).json()
    assert answer["object"] == "list"
    assert [row["embedding"] for row in answer["data"]] == [[3.0, 1.0], [4.0, 1.0]]
    assert [row["index"] for row in answer["data"]] == [0, 1]
    assert answer["model"] == "embedder"
    assert answer["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    one = post("embeddings", model="embedder", input="ab", encoding_format="base64").json()
    vector = np.frombuffer(base64.b64decode(one["data"][0]["embedding"]), "<f4")
    assert vector.tolist() == [2.0, 1.0]


def completion(post, **fields):
    defaults = {"top_p": 1.0, "seed": 5, "no_repeat_ngram_size": 0}
    response = post("completions", model="writer", **defaults | fields)
    assert response.status_code == 200, response.text
    return response.json()


def test_completions(post):
    answer = completion(post, prompt="abc")
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    (choice,) = answer["choices"]
    assert choice == {
        "text": "16|1.00|1.00|5|0|",
        "index": 0,
        "logprobs": None,
        "finish_reason": "length",
    }
    usage = {"prompt_tokens": 3, "completion_tokens": 16, "total_tokens": 19}
    assert answer["usage"] == usage


def test_every_choice_of_every_prompt_has_a_seed(post):
    fields = {"max_tokens": 30, "temperature": 0.5, "n": 2, "stop": ["x", "yz"], "echo": True}
    answer = completion(post, prompt=["a", "bcd"], **fields)
    texts = [choice["text"] for choice in answer["choices"]]
    assert texts == [
        f"{prompt}30|0.50|1.00|{seed}|0|x+yz" for prompt in ("a", "bcd") for seed in (5, 6)
    ]
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"stop"}
    assert answer["usage"]["prompt_tokens"] == 4


@pytest.mark.parametrize(
    ("path", "fields", "status", "message"),
    [
        ("embeddings", {"input": "a"}, 400, "model=None: pass one of"),
        ("embeddings", {"model": "nobody", "input": "a"}, 404, "Servable not found"),
        ("embeddings", {"model": "embedder", "input": [[1, 2]]}, 400, "tokens are not supported"),
        ("embeddings", {"model": "embedder", "input": []}, 400, "empty list"),
        ("embeddings", {"model": "embedder", "input": "a", "dimensions": 2}, 400, "dimensions=2"),
        ("embeddings", {"model": "embedder", "input": "a", "tuning": 2}, 400, "'tuning'"),
        ("embeddings", {"model": "embedder", "input": "a", "encoding_format": "x"}, 400, "base64"),
        ("embeddings", {"model": "writer", "input": "a"}, 400, "takes no texts to embed"),
        ("embeddings", {"model": "embedder", "input": ["a"] * 2000}, 400, "2000 rows"),
        ("completions", {"model": "embedder", "prompt": "a"}, 400, "continues no prompts"),
        ("completions", {"model": "writer", "prompt": "a", "n": 0}, 400, "n=0: pass a number"),
        ("completions", {"model": "writer", "prompt": ["a"] * 900, "n": 2}, 400, "1800 rows"),
        ("completions", {"model": "writer", "prompt": "a", "logprobs": 2}, 400, "logprobs=2"),
        ("completions", {"model": "writer", "prompt": "a", "stop": 3}, 400, "stop=3"),
        ("completions", {"model": "writer", "prompt": "a", "max_tokens": "x"}, 400, "max_tokens"),
        ("completions", {"model": "writer", "prompt": "a", "max_tokens": 2**40}, 400, "smaller"),
        ("completions", {"model": "writer", "prompt": ["a", "b"], "stream": True}, 400, "stream"),
        ("completions", {"model": "writer", "prompt": "a", "stream": "yes"}, 400, "stream='yes'"),
        ("completions", {"model": "writer", "prompt": "a", "echo": 1}, 400, "echo=1: pass true"),
        ("completions", {"model": "writer", "prompt": "a", "max_tokens": -1}, 400, "max_tokens=-1"),
        ("completions", {"model": "writer", "prompt": "a", "top_p": 0}, 400, "top_p=0 is out of"),
        ("completions", {"model": "writer", "prompt": "a", "temperature": -1}, 400, "0 (greedy)"),
    ],
)
def test_errors_have_openais_form(post, path, fields, status, message):
    response = post(path, **fields)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert message in error["message"]
    assert error["type"] == "invalid_request_error"
    assert json.dumps(error)  # an object, not a string as in TensorFlow Serving
    assert error.keys() == {"message", "type", "param", "code"}
