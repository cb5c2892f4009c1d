"""An exported GPT-2 continues prompts as the task does, and a client can drive it."""

import json
import shutil
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_lm import export
from keras_lm.generation import streaming
from keras_lm.generation.decoding import Limits
from keras_lm.generation.options import OPTIONS
from keras_lm.models import GPT2Backbone
from keras_lm.serving.client import Client, ServerError
from keras_lm.serving.errors import ServingError
from keras_lm.serving.inference import SavedModel
from keras_lm.serving.server import Server
from keras_lm.tasks import CausalLM
from keras_lm.tokenizers import BytePairTokenizer

WINDOW = 48
PROMPTS = ["Hello world", "", "a prompt of many more words than the others have", b"x\xff\xfe"]
PROMPTS.append("far more tokens than the window has places for " * 9)


@pytest.fixture(scope="module")
def task(goldens):
    tokenizer = BytePairTokenizer.from_files(goldens("tokenizers") / "bytebpe-gpt2")
    backbone = GPT2Backbone(
        tokenizer.vocabulary_size, 1, 2, 16, 32, dropout=0.0, max_sequence_length=WINDOW
    )
    random = np.random.default_rng(0)
    for weight in backbone.weights:
        weight.assign(0.5 * random.normal(size=weight.shape))
    # It says plain words only: the logits of all other tokens are 0.
    plain = [
        token.strip("Ġ").isascii() and token.strip("Ġ").isalpha() for token in tokenizer.vocabulary
    ]
    embeddings = backbone.token_embedding.embeddings
    embeddings.assign(embeddings * np.array(plain, "float32")[:, np.newaxis])
    return CausalLM(backbone, tokenizer=tokenizer)


@pytest.fixture(scope="module")
def folder(task, tmp_path_factory):
    runs_eagerly = tf.config.functions_run_eagerly()  # in the test that comes first
    tf.config.run_functions_eagerly(False)
    path = task.export(tmp_path_factory.mktemp("models") / "writer")
    tf.config.run_functions_eagerly(runs_eagerly)
    return path


@pytest.fixture(scope="module")
def server(folder):
    with Server(folder.parent) as running:
        yield running


@pytest.fixture(scope="module")
def model(server):
    """What the server has in memory, warm."""
    with server._models.lease("writer") as saved_model:
        return saved_model


def texts(answer):
    return [text.decode("utf-8", "replace") for text in answer["text"]]


def prompts(*rows):
    return {"prompt": np.array(rows or PROMPTS, object)}


# === generate ===


@pytest.mark.eager
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
        {"temperature": 1.0, "top_p": 0.9, "seed": 3},
        {"temperature": 1.5, "top_k": 20, "seed": [5, 4, 3, 2, 1]},
    ],
)
def test_generates_what_the_task_does(model, task, options):
    options = {"max_new_tokens": 12} | options
    served = model.run(
        "generate",
        prompts() | {name: np.array(x, OPTIONS[name].dtype) for name, x in options.items()},
    )
    assert texts(served) == task.generate(PROMPTS, **options)
    assert served["num_tokens"].shape == (5,)
    assert served["num_prompt_tokens"][1] == 1  # the bos token


@pytest.mark.eager
def test_each_row_has_its_own_options(model, task):
    served = model.run(
        "generate",
        prompts("Hello", "Hello", "Hello")
        | {
            "max_new_tokens": np.array([3, 0, 9], "int32"),
            "temperature": np.array([0, 0, 1], "float32"),
            "seed": np.array([0, 0, 7]),
        },
    )
    assert texts(served) == [
        *task.generate("Hello", max_new_tokens=3),
        "",
        *task.generate("Hello", max_new_tokens=9, temperature=1.0, seed=7),
    ]
    assert served["num_tokens"][1] == 0


@pytest.mark.eager
def test_default_signature_takes_prompts_alone(model, task):
    served = model.run("serving_default", prompts())
    assert texts(served) == task.generate(PROMPTS)
    assert texts(served) == texts(model.run("generate", prompts()))


@pytest.mark.eager
def test_stop_string_across_tokens(model, task):
    (text,) = task.generate("Hello", max_new_tokens=12)
    pieces = [
        task.tokenizer.detokenize(ids[None])[0].numpy().decode()
        for ids in task.tokenizer([text]).values[:, None]
    ]
    stop = pieces[1][-1] + pieces[2][:1]  # the end of one token, and the beginning of the next
    assert text.index(stop) > 0
    rows = prompts("Hello", "Hello", "Hello") | {"max_new_tokens": np.int32(12)}
    served = model.run("generate", rows | {"stop": np.array([stop.encode(), b"", b"\0never"])})
    assert texts(served) == [text[: text.index(stop)], text, text]
    assert served["num_tokens"][0] < served["num_tokens"][1]
    assert texts(served)[:1] == task.generate("Hello", max_new_tokens=12, stop=stop)
    served = model.run("generate", rows | {"stop": np.array(stop.encode())})
    assert texts(served) == [text[: text.index(stop)]] * 3


@pytest.mark.eager
def test_several_stop_strings(model, task):
    (text,) = task.generate("Hello", max_new_tokens=12)
    rows = prompts("Hello", "Hello") | {"max_new_tokens": np.int32(12)}
    _, early, *_, late = sorted({*text} & {*map(chr, range(128))}, key=text.index)
    expected = task.generate("Hello", max_new_tokens=12, stop=[late, early])
    assert len(expected[0]) < len(task.generate("Hello", max_new_tokens=12, stop=late)[0])
    both = np.array([[late.encode(), early.encode()]])
    assert texts(model.run("generate", rows | {"stop": both})) == expected * 2
    own = np.array([both[0], [b"\0never", b""]])
    assert texts(model.run("generate", rows | {"stop": own})) == [*expected, text]
    with pytest.raises(ServingError, match=r"stop must have one value, or one for each.* 3 2"):
        model.run("generate", rows | {"stop": np.array([b"a", b"b", b"c"])})


def test_batch_without_rows(model):
    for signature in ("serving_default", "generate", "tokenize"):
        answer = model.run(signature, {"prompt": np.array([], object)})
        assert {len(value) for value in answer.values()} == {0}


@pytest.mark.parametrize("signature", ["tokenize", "generate", "score"])
def test_one_long_text_does_not_widen_many_rows(model, signature):
    texts = np.array([b"a " * 2**15, *[b""] * 1023], object)
    with pytest.raises(ServingError, match="may have 33554432 tokens, but have"):
        model.run(signature, {"text" if signature == "score" else "prompt": texts})


def test_work_is_bounded_in_the_graph(folder):
    generate = tf.saved_model.load(str(folder)).signatures["generate"]
    defaults = {n: tf.constant([o.default], o.dtype) for n, o in OPTIONS.items()}
    asked = defaults | {"stop": tf.constant([""]), "max_new_tokens": tf.constant([WINDOW - 1])}
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"65536 at most.*67200"):
        generate(prompt=tf.constant(["a"] * 1400), **asked)


def test_work_is_refused_before_an_older_export_runs(model):
    most = {"max_new_tokens": np.array([66], "int32")}
    with pytest.raises(ServingError, match=r"65536 at most.* 67584\."):
        model.run("generate", prompts(*["a"] * 1024) | most)


# === score ===


@pytest.mark.eager
def test_scores_as_the_task_does(model, task):
    served, expected = model.run("score", {"text": prompts()["prompt"]}), task.score(PROMPTS)
    assert set(served) == set(expected)
    for name in ("scores", "perplexity", "token_scores", "num_tokens"):
        np.testing.assert_allclose(served[name], expected[name], rtol=1e-4, atol=1e-4)
    assert served["tokens"][0, 0].decode() == expected["tokens"][0, 0]


# === next_token ===


def greedily(model, step, number):
    """Continue by `next_token`; `step` is the first request."""
    ids = []
    for _ in range(number):
        answer = model.run("next_token", step)
        ids.append(np.argmax(answer.pop("logits"), axis=-1).astype("int32")[:, np.newaxis])
        step = {"token_ids": ids[-1]} | answer
    return np.concatenate(ids, axis=1), answer


@pytest.mark.eager
def test_client_drives_decoding(model, task):
    rows = prompts(*PROMPTS[:4])
    first = model.run("tokenize", rows)
    assert set(first) == {"tokens", "token_ids", "padding_mask"}
    first.pop("tokens")
    ids, cache = greedily(model, first, 8)
    text = texts(model.run("detokenize", {"token_ids": ids}))
    assert text == task.generate(PROMPTS[:4], max_new_tokens=8)
    assert cache["cache_length"].tolist() == [first["token_ids"].shape[1] + 7] * 4

    # A cache with room does not grow, and padding on the left does no harm.
    slots = WINDOW
    room = {
        f"cache_{name}": np.asarray(value)
        for name, value in task.backbone.make_cache(4, slots).items()
    }
    number = first["padding_mask"].sum(axis=1, keepdims=True)
    places = np.arange(first["token_ids"].shape[1]) + number - first["token_ids"].shape[1]
    left = {
        "token_ids": np.take_along_axis(first["token_ids"], np.maximum(places, 0), axis=1),
        "padding_mask": (places >= 0).astype("int32"),
    }
    again, cache = greedily(model, left | room, 8)
    np.testing.assert_array_equal(again, ids)
    assert cache["cache_keys"].shape[3] == slots


def test_more_tokens_than_positions(model):
    tokens = np.ones([1, WINDOW + 1], "int32")
    with pytest.raises(Exception, match=f"may have {WINDOW} tokens together"):
        model.run("next_token", {"token_ids": tokens})
    mask = np.ones_like(tokens)
    mask[0, 0] = 0
    model.run("next_token", {"token_ids": tokens, "padding_mask": mask})


# === The files ===


@pytest.mark.slow
def test_is_compared_with_the_task(folder, task, checked_here):
    report = export.check(folder, task, PROMPTS)
    assert set(report.differences) == {"text", "num_tokens", "num_prompt_tokens"}


def test_holds_each_weight_once_and_no_python(folder, task):
    reader = tf.train.load_checkpoint(str(folder / "variables" / "variables"))
    shapes = reader.get_variable_to_shape_map()
    numbers = sum(np.prod(s, dtype=int) for name, s in shapes.items() if "OBJECT" not in name)
    assert numbers == task.count_params()
    assert (folder / "saved_model.pb").stat().st_size < 3e6


def test_holds_the_network_once_for_each_way_to_read(folder):
    saved = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    functions = saved.meta_graphs[0].graph_def.library.function
    projections = [
        function.signature.name
        for function in functions
        for node in function.node_def
        if node.op == "MatMul" and "query_key_value" in node.name
    ]
    # Whole texts, for `score` and `tokens`; after a state, for prompts and `next_token`; one token.
    assert len(projections) == 3, projections


def test_warmup_runs_all_signatures(folder, model, requests_of):
    signatures = set()
    for signature, name, inputs in requests_of(folder):
        assert name == "writer"
        # TF Serving fills in defaults, and the batching session wants a row of each input.
        assert set(inputs) == set(model.signature_defs[signature].inputs)
        assert {value.shape[0] for value in inputs.values()} == {1}
        model.run(signature, {key: value.numpy() for key, value in inputs.items()})
        signatures.add(signature)
    assert signatures == set(model.signature_defs) - {"__saved_model_init_op", "tokens"}


def test_half_precision_is_served_as_float32(task, tmp_path):
    task.save_to_preset(tmp_path / "preset")
    half = CausalLM.from_preset(tmp_path / "preset", dtype="bfloat16")
    signatures = half.signatures
    cache = {name: tf.constant(value) for name, value in signatures.initial_state().items()}
    answer = signatures.next_token(tf.constant([[1, 2, 3], [4, 5, 6]]), tf.constant([[1]]), **cache)
    assert {value.dtype.name for value in answer.values()} == {"float32", "int32"}
    assert answer["cache_keys"].shape == [2, 1, 2, 3, 8]


# === LiteRT ===


@pytest.fixture(scope="module")
def lite(task, tmp_path_factory):
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="needs LiteRT")
    from tensorflow_text.core.pybinds.tflite_registrar import SELECT_TFTEXT_OPS

    path = task.export(tmp_path_factory.mktemp("lite") / "writer.tflite", format="litert")
    return litert.InterpreterWithCustomOps(
        model_path=str(path), custom_op_registerers=SELECT_TFTEXT_OPS
    )


@pytest.mark.slow
@pytest.mark.eager
def test_loop_around_a_tflite(lite, task):
    tokenize, step = (lite.get_signature_runner(name) for name in ("tokenize", "next_token"))
    tokens = tokenize(prompt=np.array([b"a prompt of many words", b"Hello", b"x\xff\xfe"], object))
    number = 8
    shape = task.backbone.make_cache(3, tokens["token_ids"].shape[1] + number)
    cache = {f"cache_{name}": np.asarray(value) for name, value in shape.items()}
    ids = []
    for _ in range(number):
        answer = step(**tokens, **cache)
        ids.append(np.argmax(answer.pop("logits"), axis=-1).astype("int32")[:, np.newaxis])
        tokens, cache = {"token_ids": ids[-1], "padding_mask": np.ones_like(ids[-1])}, answer
    text = texts({"text": task.tokenizer.detokenize(np.concatenate(ids, axis=1)).numpy()})
    prompts = ["a prompt of many words", "Hello", b"x\xff\xfe"]
    assert text == task.generate(prompts, max_new_tokens=number)


def test_tflite_gives_no_text_to_check(task, tmp_path):
    path = tmp_path / "writer.tflite"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="check the SavedModel"):
        export.check(path, task, PROMPTS)


# === Served ===


def ask(server, body):
    request = urllib.request.Request(
        f"{server.rest_url}/v1/models/writer:predict", json.dumps(body).encode()
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


@pytest.fixture(scope="module")
def options(task):
    """All options of `generate`, as REST wants them."""
    defaults = {name: option.default for name, option in OPTIONS.items()} | {"stop": ""}
    return defaults | {"max_new_tokens": task.default_max_new_tokens}


@pytest.mark.eager
def test_rest(server, task, options):
    expected = task.generate(["Hello", "a prompt"])
    answer = ask(server, {"instances": ["Hello", "a prompt"]})
    assert [row["text"] for row in answer["predictions"]] == expected
    chosen = {"prompt": ["Hello", "a prompt"], "temperature": 0.8, "seed": [1, 2]}
    body = {"signature_name": "generate", "inputs": options | chosen}
    answer = ask(server, body)["outputs"]
    assert answer["text"] == task.generate(["Hello", "a prompt"], temperature=0.8, seed=[1, 2])
    rows = [{"prompt": "Hello", "max_new_tokens": 2}, {"prompt": "a prompt", "max_new_tokens": 0}]
    rows = [options | row for row in rows]
    answer = ask(server, {"signature_name": "generate", "instances": rows})
    assert [row["num_tokens"] for row in answer["predictions"]] == [2, 0]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"top_p": 1.5}, "above 0 and at most 1"),
        ({"max_new_tokens": WINDOW}, "leaves no room"),
        ({"seed": [1, 2, 3]}, "seed must have one value"),
    ],
)
def test_bad_options_are_refused_and_the_server_goes_on(server, options, bad, message):
    inputs = {"prompt": ["Hello", "you"]} | options | bad
    body = {"signature_name": "generate", "inputs": inputs}
    with pytest.raises(urllib.error.HTTPError) as error:
        ask(server, body)
    assert error.value.code == 400
    assert message in json.load(error.value)["error"]
    assert ask(server, {"instances": ["Hello"]})["predictions"]


@pytest.mark.eager
@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_client_leaves_options_out(server, task, protocol):
    url = server.rest_url if protocol == "rest" else f"grpc://{server.grpc_address}"
    with Client(url, "writer") as client:
        columns = client.metadata()["generate"]["inputs"]
        assert columns["top_p"]["default"].tolist() == [1.0]
        assert columns["stop"]["default"].tolist() == [b""]
        assert "default" not in columns["prompt"]
        answer = client.predict({"prompt": ["Hello"], "max_new_tokens": [4]}, "generate")
        assert answer["text"].tolist() == task.generate("Hello", max_new_tokens=4)
        # The cache goes out and in, whatever the protocol.
        first = client.predict({"token_ids": [[1, 2, 3]]}, "next_token")
        cache = {name: value for name, value in first.items() if name != "logits"}
        second = client.predict({"token_ids": [[4]]} | cache, "next_token")
        whole = task({"token_ids": np.array([[1, 2, 3, 4]])})
        np.testing.assert_allclose(second["logits"], whole[:, -1], rtol=1e-3, atol=1e-3)
        with pytest.raises(ValueError, match="takes"):
            client.predict({"temperature": [1.0]}, "generate")


def test_rest_refuses_options_left_out_as_tf_serving_does(server, options):
    """Its parser of JSON sees the inputs of a signature, but not the defaults."""
    some = {"prompt": "Hello"} | options
    del some["seed"]
    every = ",".join(sorted(["prompt", *options]))
    for body, message in [
        ({"inputs": some}, "Missing named input: seed in 'inputs' object."),
        ({"instances": [some]}, f"keys must be equal to: {every}"),
    ]:
        with pytest.raises(urllib.error.HTTPError) as error:
            ask(server, {"signature_name": "generate"} | body)
        assert error.value.code == 400
        assert json.load(error.value)["error"].endswith(message)


def test_client_sends_all_inputs_over_rest(server, monkeypatch):
    with Client(server.rest_url, "writer") as client:
        sent = {}

        def call(method, what, body=None, call=client._transport.call):
            sent.update(json.loads(body)["inputs"] if body else {})
            return call(method, what, body)

        monkeypatch.setattr(client._transport, "call", call)
        client.predict({"prompt": ["Hello"]}, "generate")
    assert set(sent) == {"prompt", "stop", *OPTIONS}


# === Streams ===


@pytest.mark.eager
@pytest.mark.parametrize(
    ("chosen", "asked"),
    [
        ({}, ["Hello", ""]),
        (
            {"temperature": 4.0, "seed": 3, "max_new_tokens": 12, "repetition_penalty": 1.5},
            ["\u20ac of many words " * 30],
        ),
        ({"temperature": 1.0, "top_k": 5, "seed": 0, "stop": ["e", 7]}, ["Hello"]),
    ],
)
def test_streams_what_the_task_generates(model, task, chosen, asked):
    for prompt in asked:
        *pieces, end = model.stream({"prompt": prompt, **chosen})
        assert all(piece["text"] for piece in pieces)
        assert "".join(piece["text"] for piece in pieces) == task.generate(prompt, **chosen)[0]
        answer = model.run("generate", prompts(prompt) | {"max_new_tokens": np.array([3], "int32")})
        assert end["num_prompt_tokens"] == answer["num_prompt_tokens"][0]
        assert 0 <= end["num_tokens"] <= chosen.get("max_new_tokens", task.default_max_new_tokens)


@pytest.mark.eager
def test_a_stream_takes_all_defaults(model, options, task):
    options = {name: value for name, value in options.items() if name != "stop"}
    *pieces, _ = model.stream({"prompt": "Hello", **options})
    assert "".join(piece["text"] for piece in pieces) == task.generate("Hello")[0]


@pytest.mark.eager
def test_client_reads_a_stream(server, task):
    chosen = {"temperature": 4.0, "seed": 3, "max_new_tokens": 12}
    with Client(server.rest_url, "writer") as client:
        pieces = list(client.stream("a \u20ac prompt", **chosen))
        assert len(pieces) > 1
        assert "".join(pieces) == task.generate("a \u20ac prompt", **chosen)[0]
    with (
        Client(f"grpc://{server.grpc_address}", "writer") as client,
        pytest.raises(ValueError, match="needs REST, so pass an http:// address"),
    ):
        client.stream("a")


def complete(server, **fields):
    body = json.dumps({"model": "writer", "max_tokens": 12, "temperature": 0} | fields).encode()
    request = urllib.request.Request(f"{server.rest_url}/v1/completions", body)
    return urllib.request.urlopen(request, timeout=60).read().decode()


@pytest.mark.eager
def test_openais_completions_are_what_the_task_generates(server, task):
    asked = {"temperature": 4.0, "seed": 3}
    expected = task.generate("Hello", max_new_tokens=12, **asked)[0]
    answer = json.loads(complete(server, prompt=["Hello", ""], **asked))
    assert answer["choices"][0]["text"] == expected
    assert answer["usage"]["completion_tokens"] <= 24
    events = complete(server, prompt="Hello", stream=True, **asked).split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
    assert len(chunks) > 2
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == expected
    assert chunks[-1]["choices"][0]["finish_reason"] in ("length", "stop")
    with pytest.raises(urllib.error.HTTPError):
        complete(server, prompt="a", stream=True, max_tokens=10**8)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({}, "prompt=None: pass one string"),
        ({"prompt": ["a"]}, "pass one string"),
        ({"prompt": "a", "beams": 3}, "'beams'.*unknown"),
        ({"prompt": "a", "max_new_tokens": 10**9}, "leaves no room for a prompt"),
        ({"prompt": "a", "max_new_tokens": [3]}, "pass one number"),
        ({"prompt": "a", "temperature": "warm"}, "is not a number"),
        ({"prompt": "a", "seed": 2**63}, "out of range"),
        ({"prompt": "a", "top_k": 3}, "no effect without sampling"),
        ({"prompt": "a", "stop": {"a": 1}}, "pass a string, a token id"),
        ({"prompt": "a", "stop": [10**9]}, "ids go from 0 to"),
    ],
)
def test_a_stream_that_cannot_begin_is_an_error(server, request_, message):
    with Client(server.rest_url, "writer") as client:
        with pytest.raises(ServerError, match=message) as error:
            client._transport.stream(request_)
        assert error.value.code == "INVALID_ARGUMENT"


def test_streams_are_warm_before_the_first(folder, monkeypatch):
    traced = []

    def count(function, *specs):
        traced.append(function.__name__)
        return streaming.tf.function(function, autograph=False).get_concrete_function(*specs)

    monkeypatch.setattr(streaming, "_traced", count)
    with Server(folder.parent) as server:
        assert traced == ["_start", "_step"]
        with Client(server.rest_url, "writer") as client:
            assert "".join(client.stream("a", max_new_tokens=3))
    assert traced == ["_start", "_step"]


@pytest.mark.parametrize("options", [{"temperature": -1.0}, {"temperature": 1.0, "top_k": -5}])
def test_streams_name_what_is_out_of_range(server, options):
    with Client(server.rest_url, "writer") as client, pytest.raises(ServerError) as error:
        client._transport.stream({"prompt": "a"} | options)
    assert error.value.code == "INVALID_ARGUMENT"
    assert "is out of range: it must be 0" in str(error.value)


def test_a_client_that_goes_ends_its_stream(server):
    with Client(server.rest_url, "writer") as client:
        endless = {"max_new_tokens": WINDOW - 1, "temperature": 9.0}
        pieces = client.stream("a", **endless)
        next(pieces)
        assert server._models.is_busy
        pieces.close()
    end = time.monotonic() + 30
    while server._models.is_busy and time.monotonic() < end:
        time.sleep(0.01)
    assert not server._models.is_busy


def test_holds_the_limits_of_streams(folder, task):
    limits = json.loads((folder / "assets.extra" / "generation.json").read_text())
    assert Limits.from_json(limits) == task.limits
    before = ("end_ids", "window", "max_new_tokens")  # all that older servers know
    assert [limits[name] for name in before] == [getattr(task.limits, n) for n in before]
    assert limits.keys() - {*before} == {"special_tokens"}


@pytest.mark.slow
def test_an_export_from_before_streams_says_so(exported_as, tmp_path):
    shutil.copytree(exported_as("vectors of tokens").folder, tmp_path / "1")  # a small one
    with pytest.raises(ServingError, match="Export it again"):
        SavedModel(tmp_path / "1").stream({"prompt": "a"})
    (tmp_path / "1" / "assets.extra" / "generation.json").write_text("{}")
    with pytest.raises(ServingError, match=r"Cannot read .*generation\.json"):
        SavedModel(tmp_path / "1")
    limits = Limits([], None, 50).to_json()  # as encoder-decoders had them
    (tmp_path / "1" / "assets.extra" / "generation.json").write_text(json.dumps(limits))
    with pytest.raises(ServingError, match="cannot stream text"):
        SavedModel(tmp_path / "1").stream({"prompt": "a"})
