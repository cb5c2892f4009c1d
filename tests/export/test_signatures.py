"""What a SavedModel offers beside answers: the pieces of a text, and TF Serving's own methods."""

import numpy as np
import pytest
import tensorflow as tf
import tiny
from tensorflow.core.protobuf import saved_model_pb2

from keras_lm import tasks
from keras_lm.serving import Client, Server
from keras_lm.serving.client import ServerError

PREDICT = "tensorflow/serving/predict"

# The method of the signature that takes examples.
CASES = {
    "classifier of pairs": "classify",
    "multi-label pairs": "classify",
    "half precision, fixed length": "classify",
    "regressor of pairs on a scalar mix": "regress",
    "fill mask": None,
}


@pytest.fixture(scope="module")
def rows(texts):
    return [
        *(text.encode() if isinstance(text, str) else text for text in texts),
        b"song " * 10_000,
        b"the [PAD] was [MASK] !",
    ]


@pytest.fixture(scope="module", params=CASES)
def exported(request, exported_as):
    """(task, folder, signatures, method)."""
    return *exported_as(request.param), CASES[request.param]


def graph_of(folder):
    data = (folder / "saved_model.pb").read_bytes()
    (graph,) = saved_model_pb2.SavedModel.FromString(data).meta_graphs
    return graph


def columns_of(task, rows):
    return {"text": rows, "text_pair": rows[::-1]} if task.text_pair else {"text": rows}


def examples_of(columns):
    """Serialized examples, one a row."""
    return tf.constant(
        [
            tf.train.Example(
                features=tf.train.Features(
                    feature={
                        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[text]))
                        for name, text in zip(columns, texts)
                    }
                )
            ).SerializeToString()
            for texts in zip(*columns.values())
        ],
        tf.string,
    )


def test_names_and_methods(exported):
    _, folder, _, method = exported
    expected = dict.fromkeys(["serving_default", "tokens", "tokenize"], PREDICT)
    if method:
        expected[method] = f"tensorflow/serving/{method}"
    results = {name: s.method_name for name, s in graph_of(folder).signature_def.items()}
    assert {name: m for name, m in results.items() if not name.startswith("__")} == expected


def test_graph_holds_the_tokenizer_once(exported):
    _, folder, _, _ = exported
    graph = graph_of(folder).graph_def
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    operations = [node.op for node in nodes]
    assert operations.count("FastWordpieceTokenizeWithOffsets") == 1
    matchers = [
        node for node in nodes if node.op == "Const" and node.attr["dtype"].type == tf.uint8
    ]
    assert len(matchers) == 1


def test_tokenize_shows_what_the_model_sees(exported, rows):
    task, _, signatures, _ = exported
    columns = {name: tf.constant(column) for name, column in columns_of(task, rows).items()}
    actual = signatures["tokenize"](**columns)
    packed = task.preprocess(columns)
    assert actual["token_ids"].dtype == tf.int32
    np.testing.assert_array_equal(actual["token_ids"], packed["token_ids"])
    vocabulary = [token.encode() for token in task.tokenizer.vocabulary]
    expected = [
        [vocabulary[i] if real else b"" for i, real in zip(ids, mask)]
        for ids, mask in zip(packed["token_ids"].numpy(), packed["padding_mask"].numpy())
    ]
    assert actual["tokens"].numpy().tolist() == expected
    assert {b"", b"[PAD]", b"[CLS]"} < {token for row in expected for token in row}
    assert len(expected[0]) == task.packing["sequence_length"]  # longer texts are truncated


def test_tokenize_takes_no_rows(exported):
    task, _, signatures, _ = exported
    empty = {name: tf.zeros([0], tf.string) for name in columns_of(task, [])}
    assert signatures["tokenize"](**empty)["tokens"].shape[0] == 0


def test_examples_are_answered_as_the_task_does(exported, rows):
    task, _, signatures, method = exported
    if method is None:
        return
    columns = columns_of(task, rows)
    actual = signatures[method](inputs=examples_of(columns))
    columns = {name: tf.constant(column) for name, column in columns.items()}
    expected = task.answer(columns)["scores"]
    half = task.backbone.dtype_policy.compute_dtype == "bfloat16"
    scores = actual["outputs" if method == "regress" else "scores"]
    assert scores.dtype == tf.float32
    assert scores.shape == expected.shape
    # The graph rounds where it fuses, and fusing differs with the shapes of a batch.
    np.testing.assert_allclose(scores, expected, atol=1e-2 if half else 1e-5)
    if method == "classify":
        names = [name.encode() for name in task.class_names or ["0", "1"]]
        assert actual["classes"].numpy().tolist() == [names] * len(rows)
    assert set(actual) == ({"outputs"} if method == "regress" else {"classes", "scores"})


def test_examples_must_have_each_text_once(exported):
    task, _, signatures, method = exported
    if method is None:
        return
    serve = signatures[method]
    columns = columns_of(task, [b"a film"])
    for name in columns:
        others = {other: column for other, column in columns.items() if other != name}
        incomplete = examples_of({**others, "other": [b"?"]})
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"Feature: {name} .*required"):
            serve(inputs=incomplete)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Could not parse example"):
        serve(inputs=tf.constant([b"no example"]))


def test_columns_of_different_lengths_are_an_error_of_the_client(exported_as):
    folder = exported_as("classifier of pairs").folder
    with Server({"critic": folder.parent}) as server:
        for url in (server.rest_url, f"grpc://{server.grpc_address}"):
            with (
                Client(url, "critic") as client,
                pytest.raises(ServerError, match="have different numbers of rows") as error,
            ):
                client.predict({"text": ["a", "b"], "text_pair": ["c"]})
            assert error.value.code == "INVALID_ARGUMENT"


# Without a longest sequence, so that only their own checks bound what a request takes.
ENDLESS = ("TransformerXLBackbone", "XLNetBackbone", "PairLSTMBackbone", "T5EncoderBackbone")
OTHERS = ("ElmoBackbone", "LSTMBackbone", "AWDLSTMBackbone", "CoveBackbone", "EsimBackbone")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ENDLESS, "BertBackbone", *OTHERS])
def test_packed_rows_have_a_longest_length(name, backbone_of, tokenizer_of):
    tokenizer = tokenizer_of(tiny.MODELS[name][0])
    raw = tasks.TextClassifier(backbone_of(name), tokenizer=tokenizer, num_classes=2)
    raw = raw.signatures.raw()

    def call(columns, rows=1):
        specs = raw.structured_input_signature[1].values()
        sizes = {s.name: [rows, columns, *s.shape[2:]] for s in specs}
        return raw(**{s.name: tf.ones(sizes[s.name], s.dtype) for s in specs})

    assert np.isfinite(call(12)["logits"]).all()
    said = "rows times their columns squared" if name != "BertBackbone" else ""
    for size in ((10_000, 1), (2_000, 5)):
        with pytest.raises(tf.errors.InvalidArgumentError, match=said):
            call(*size)


@pytest.mark.slow
def test_places_of_words_are_no_rows(backbone_of, tokenizer_of):
    """Rows of a model without a longest sequence are counted; the places of words are not."""
    tokenizer = tokenizer_of(tiny.MODELS["XLNetBackbone"][0])
    sizes = {"max_span_width": 2, "hidden_dim": 4}
    task = tasks.CoreferenceResolver(backbone_of("XLNetBackbone"), tokenizer=tokenizer, **sizes)
    packed = task.preprocess(["the film was good", "it"])
    actual, expected = task.signatures.raw()(**packed), task(packed)
    for name in expected:
        np.testing.assert_allclose(actual[name], expected[name], atol=1e-4)


@pytest.mark.thorough
def test_prompts_of_a_model_without_a_longest_sequence(backbone_of, tokenizer_of):
    """AWD-LSTM takes any, as it reads them word by word."""
    words = tokenizer_of("words")
    long = tf.constant(["the film " * 2_500])
    functions = tasks.CausalLM(backbone_of("AWDLSTMBackbone"), tokenizer=words).signatures
    assert functions.tokenize(text=long).shape[0] == 1
    functions = tasks.CausalLM(backbone_of("TransformerXLBackbone"), tokenizer=words).signatures
    with pytest.raises(tf.errors.InvalidArgumentError, match="rows times their columns squared"):
        functions.bounded()(long)  # read as a whole
    assert functions.bounded(256)(long).shape[0] == 1  # a prompt is read in parts
    with pytest.raises(tf.errors.InvalidArgumentError, match="times 256 of them at once"):
        functions.bounded(256)(tf.repeat(long, 20))
    step = functions.functions()["next_token"]
    state = functions.initial_state()
    tokens = {"token_ids": tf.ones([2, 3_000], tf.int32), "padding_mask": tf.ones([1, 1], tf.int32)}
    with pytest.raises(tf.errors.InvalidArgumentError, match="rows times their columns squared"):
        step(**tokens, **state)
    few = tokens | {"token_ids": tf.ones([2, 30], tf.int32)}
    assert step(**few, **state)["logits"].shape[0] == 2
