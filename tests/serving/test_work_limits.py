"""Requests that ask too much of a model are refused in plain words, by every protocol."""

import json

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from keras_lm.generation.options import OPTIONS
from keras_lm.layers.tensorflow import MOST_TOKENS
from keras_lm.serving import Server, inference, work_limits
from keras_lm.serving.errors import ServingError, StatusCode, plain
from keras_lm.serving.inference import SavedModel
from keras_lm.serving.work_limits import Tokens, Work, count_tokens
from keras_lm.serving.writer import Writer

DTYPES = {name: option.dtype for name, option in OPTIONS.items()}
DTYPES |= {"num_beams": "int32", "length_penalty": "float32"}
RIGHT = {name: OPTIONS[name].default for name in OPTIONS} | {"num_beams": 1, "length_penalty": 1.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that checks nothing itself, as those of older exports; it says how often it ran."""
    folder = tmp_path_factory.mktemp("models") / "old"
    specs = {name: tf.TensorSpec([None], dtype, name) for name, dtype in DTYPES.items()}
    specs["prompt"] = tf.TensorSpec([None], tf.string, "prompt")

    def generate(prompt, **options):
        return {"text": prompt, "num_tokens": options["max_new_tokens"]}

    module = tf.Module()
    traced = tf.function(generate, autograph=False).get_concrete_function(**specs)
    tf.saved_model.save(module, str(folder / "1"), signatures={"serving_default": traced})
    return folder


@pytest.fixture(scope="module")
def old(folder):
    with Server(folder) as server:
        yield server


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("temperature", -1.0, "0 (greedy), or a number above 0"),
        ("temperature", float("nan"), "0 (greedy), or a number above 0"),
        ("temperature", float("inf"), "0 (greedy), or a number above 0"),
        ("top_k", -5, "0 (keeps all tokens), or more"),
        ("top_p", 0.0, "above 0 and at most 1"),
        ("top_p", 1.5, "above 0 and at most 1"),
        ("repetition_penalty", 0.0, "1 (no penalty), or a number above 0"),
        ("no_repeat_ngram_size", -1, "0 (off), or more"),
        ("max_new_tokens", -1, "0 or more"),
        ("seed", -2, "0 or more"),
        ("num_beams", 65, "from 1 to 64"),
        ("num_beams", 0, "from 1 to 64"),
        ("length_penalty", float("nan"), "a finite number"),
    ],
)
def test_options_out_of_range(old, rest_of, grpc_of, option, value, words):
    row = {"prompt": "a"} | RIGHT | {option: value}
    message = f"{option}={value} is out of range: it must be {words}"
    for body in ({"instances": [row]}, {"inputs": {n: [v] for n, v in row.items()}}):
        assert message in rest_of(old, "old").fails(400, data=json.dumps(body))  # NaN, too
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "old"
    for name, one in row.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto([one], DTYPES.get(name, "string")))
    stubs = grpc_of(old)
    with pytest.raises(grpc.RpcError) as caught:
        stubs.prediction.Predict(request, timeout=60)
    stubs.channel.close()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert message in caught.value.details()


@pytest.mark.parametrize("value", [1.5, "x", None, True])
def test_options_of_another_type_are_named(old, rest_of, value):
    row = {"prompt": "a"} | RIGHT | {"top_k": value}
    for body in ({"instances": [row]}, {"inputs": {name: [one] for name, one in row.items()}}):
        error = rest_of(old, "old").fails(400, **body)
        assert "top_k" in error and "is not of expected type: int32" in error


def test_options_that_a_signature_does_not_take_are_named(old, rest_of, grpc_of):
    rest, row = rest_of(old, "old"), {"prompt": "a"} | RIGHT
    columns = {name: [value] for name, value in row.items()}
    assert "named input: heat" in rest.fails(400, instances=[row | {"heat": 1}])
    error = rest.fails(400, inputs=columns | {"heat": [1]})
    assert '"heat" is not an input of this signature, which takes' in error
    for body in ({"instances": [row]}, {"inputs": columns}):
        error = rest.fails(400, temperature=1, **body)
        assert '"temperature" is not a key of this request' in error
    assert "is not a key" in rest.fails(400, ":classify", examples=[{}], top_k=1)
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "old"
    for name, one in (row | {"heat": 1}).items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto([one], DTYPES.get(name)))
    stubs = grpc_of(old)
    with pytest.raises(grpc.RpcError, match=r"Sent extra: \{heat\}"):
        stubs.prediction.Predict(request, timeout=60)
    stubs.channel.close()


def arrays(rows, **options):
    values = {name: np.full(rows, value, DTYPES[name]) for name, value in (RIGHT | options).items()}
    return values | {"prompt": np.full(rows, b"a", object)}


def test_work_is_bounded_with_the_number_and_the_limit(folder):
    model = SavedModel(folder / "1")
    assert len(model.run("serving_default", arrays(64, max_new_tokens=1024))["text"]) == 64
    with pytest.raises(ServingError, match=r"may be 65536 at most.*they are 65600\."):
        model.run("serving_default", arrays(64, max_new_tokens=1025))
    with pytest.raises(ServingError, match=r"they are 98304\."):
        model.run("serving_default", arrays(64, max_new_tokens=512, num_beams=3))


def test_what_a_model_states_is_in_range(folder):
    model = SavedModel(folder / "1")
    defaults = model.signature_defs["serving_default"].defaults
    defaults["max_new_tokens"].CopyFrom(tf.make_tensor_proto([-1]))  # as many as fit
    defaults["num_beams"].CopyFrom(tf.make_tensor_proto([100]))
    assert (
        work_limits.check_request(
            arrays(2, max_new_tokens=-1, num_beams=100), model.signature_defs["serving_default"]
        )
        == 0
    )


def test_work_of_all_requests_together_is_bounded(folder):
    model = SavedModel(folder / "1")
    model.work = Work(MOST_TOKENS)
    with model.work.share() as take:
        take(MOST_TOKENS)
        model.run("serving_default", arrays(1))  # a short text always has room
        with pytest.raises(ServingError, match=r"65536 rows times beams.* try again") as caught:
            model.run("serving_default", arrays(64, max_new_tokens=1024))
    assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
    assert len(model.run("serving_default", arrays(64, max_new_tokens=1024))["text"]) == 64


def test_tokens_are_counted_before_they_are_read():
    assert count_tokens({"text": np.array([b"a", b"", b"12345678"], object)}, 0) == 3 * 2
    assert count_tokens({"choices": np.array([[b"a", b"12345"]], object)}, 0) == 2 * 2
    assert count_tokens({"token_ids": np.zeros((2, 5), "int32"), "x": np.ones(3)}, 0) == 10
    assert count_tokens({"prompt": np.array([b"abc"], object)}, 40) == 41
    assert count_tokens({"x": np.ones(3)}, 0) == count_tokens({}, 0) == 1


def test_tokens_of_all_requests_together_are_bounded(folder):
    model = SavedModel(folder / "1")
    model.tokens = Tokens(100)
    with model.tokens.hold(60):
        model.run("serving_default", arrays(1, max_new_tokens=39))
        with pytest.raises(ServingError, match=r"100 tokens together.* try again") as caught:
            model.run("serving_default", arrays(1, max_new_tokens=40))
    assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED
    assert model.run("serving_default", arrays(1, max_new_tokens=1000))  # alone


def test_a_stream_holds_its_tokens_to_its_end():
    tokens = Tokens(100)
    writer = object.__new__(Writer)
    inputs = {"prompt": np.array([b"1234"], object), "options": {"max_new_tokens": 60}}
    writer._read = lambda request: inputs

    class Stream:
        def pieces(self, prompt, options):
            yield "a"
            return {"num_tokens": 1}

    writer._stream = Stream()
    first = writer.events({}, tokens)
    assert next(first) == {"text": "a"}
    with pytest.raises(ServingError, match="100 tokens together"):
        next(writer.events({}, tokens))
    assert [*first] == [{"done": True, "num_tokens": 1}]
    left = writer.events({}, tokens)
    assert next(left) == {"text": "a"}
    left.close()
    assert len([*writer.events({}, tokens)]) == 2


def test_an_answer_that_is_too_large_is_refused(folder, monkeypatch):
    monkeypatch.setattr(work_limits, "MOST_NUMBERS", 19)
    model = SavedModel(folder / "1")
    assert len(model.run("serving_default", arrays(9))) == 2
    with pytest.raises(ServingError, match="has 20 numbers and strings, and may have 19"):
        model.run("serving_default", arrays(10))
    assert inference.check_answer is work_limits.check_answer


def test_messages_of_kernels_are_plain():
    assert plain("assertion failed: [rows may be 3, but are] [4]\n\t [[{{node a/Assert}}]]") == (
        "rows may be 3, but are 4"
    )
    assert plain("assertion failed: [only [two] rows] [1] [2] [Op:Assert]") == (
        "only [two] rows 1 2"
    )
    assert plain("No kernel.\n\t [[{{node b}}]] [Op:F]") == "No kernel."
