"""JSON: what clients may think of leads to arrays or to a `ServingError`, and to nothing else."""

import json

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import strategies
from tensorflow.core.protobuf import meta_graph_pb2

from keras_lm.serving import rest_json
from keras_lm.serving.errors import ServingError

VALUES = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers()
    | strategies.floats()
    | strategies.text()
    | strategies.just({"b64": "YQ=="}),
    lambda inner: (
        strategies.lists(inner, max_size=3)
        | strategies.dictionaries(strategies.sampled_from(["a", "b", "b64"]), inner, max_size=2)
    ),
    max_leaves=8,
)


def signature(**types):
    message = meta_graph_pb2.SignatureDef()
    for name, dtype in types.items():
        message.inputs[name].dtype = dtype.as_datatype_enum
    return message


SIGNATURES = [
    signature(a=tf.float32),
    signature(a=tf.string),
    signature(a=tf.int8, b=tf.uint64),
    signature(a=tf.bool, b=tf.bfloat16),
]


@hypothesis.given(VALUES, strategies.sampled_from(["instances", "inputs"]))
@hypothesis.settings(max_examples=150, deadline=None)
def test_any_values(value, key):
    for each in SIGNATURES:
        try:
            document = rest_json.parse(json.dumps({key: value}).encode())
            arrays, _ = rest_json.read_inputs(document, each)
        except ServingError:
            continue
        assert set(arrays) == set(each.inputs)
        for name, array in arrays.items():
            wanted = tf.as_dtype(each.inputs[name].dtype)
            assert (array.dtype == object) if wanted == tf.string else (array.dtype == wanted)


@hypothesis.given(strategies.dictionaries(strategies.text(), VALUES), VALUES)
@hypothesis.example({}, {"a": -(2**63) - 1})  # a decimal, as of TF Serving's parser
@hypothesis.settings(max_examples=100, deadline=None)
def test_any_examples(example, context):
    try:
        document = {"examples": [example], "context": context}
        document = rest_json.parse(json.dumps(document).encode())
        (record,) = rest_json.read_examples(document)
    except ServingError:
        return
    tf.train.Example.FromString(record)


@hypothesis.given(strategies.binary())
@hypothesis.settings(deadline=None)
def test_any_bytes(body):
    try:
        assert isinstance(rest_json.parse(body), dict)
    except ServingError as error:
        rest_json.write_error(error.message).decode()


@hypothesis.given(strategies.lists(strategies.floats(width=32), min_size=1))
def test_floats_come_back_as_they_were(numbers):
    array = np.array(numbers, np.float32)
    body = rest_json.write_numbers(array)
    np.testing.assert_array_equal(np.float32(json.loads(body)["results"]), array)


def test_many_floats():
    array = np.random.default_rng(1).normal(size=(3, 70_000)).astype(np.float32)
    answer = json.loads(rest_json.write_outputs({"y": array}, by_row=True))
    np.testing.assert_array_equal(np.float32(answer["predictions"]), array)


def test_rows_need_one_batch():
    for outputs, message in [
        ({"y": np.float32(1)}, "has no shape information"),
        ({"y": np.zeros([0, 2])}, "invalid batch size: 0"),
        ({"y": np.zeros(2), "z": np.zeros(3)}, "inconsistent batch size: 3 expecting: 2"),
    ]:
        with pytest.raises(ServingError, match=message):
            rest_json.write_outputs(outputs, by_row=True)
        rest_json.write_outputs(outputs, by_row=False)


def test_many_small_objects_are_not_read():
    few = b'{"a": [' + b"{}," * 10 + b"{}]}"
    assert rest_json.parse(few) == {"a": [{}] * 11}
    with pytest.raises(ServingError, match=r"2097154 objects and arrays, .* at most 2097152"):
        rest_json.parse(b'{"a": [' + b"{}," * (2**21 - 1) + b"{}]}")


@pytest.mark.parametrize("body", [b'{"a": 1, "b": 2, "a": 3}', b'{"x": [{"a": 1, "a": 1}]}'])
def test_repeated_keys_are_refused(body):
    with pytest.raises(ServingError, match="The key 'a' is repeated in an object: leave one out"):
        rest_json.parse(body)
