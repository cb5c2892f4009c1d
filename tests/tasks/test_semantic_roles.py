"""A predicate beside each text: which words are marked, fitting, answers, presets, exports."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.datasets.examples import read_examples
from keras_lm.models import RobertaBackbone
from keras_lm.tasks import Task, TokenClassifier

NAMES = ["B-ARG0", "B-V", "O"]
WORDS = ["the", "films", "was", "unly", "good"]
X = {"text": [WORDS, WORDS], "predicate": [1, 3]}


@pytest.fixture
def task(make):
    return make(TokenClassifier, class_names=NAMES, predicate=True)


def marked(task, x):
    packed = task.preprocess(task.columns(x))
    tokens = task.tokenizer.tokens(packed["token_ids"]).numpy()
    segments = packed["segment_ids"].numpy()
    return [[t.decode() for t, s in zip(*row) if s] for row in zip(tokens, segments)]


@pytest.mark.eager
def test_the_pieces_of_the_predicate_are_marked(task, make):
    assert marked(task, X) == [["film", "##s"], ["un", "##ly"]]
    assert marked(task, (X["text"], np.array([0, 4]))) == [["the"], ["good"]]
    text = "the\u00a0 films, so unly"
    places = [text.index("films"), text.index("nly"), 0]
    assert marked(task, {"text": [text] * 3, "predicate": places}) == [
        ["film", "##s"],
        ["un", "##ly"],
        ["the"],
    ]
    short = make(TokenClassifier, class_names=NAMES, predicate=True, sequence_length=4)
    assert marked(short, X) == [["film"], []]  # the rest is truncated
    data = tf.data.Dataset.from_tensors({"text": ["a film"], "predicate": ["2"]})
    assert task.predict(data, verbose=0).shape == (1, 4, 3)


def test_labels_depend_on_the_predicate(task, tmp_path):
    task.compile(optimizer=keras.optimizers.Adam(2e-2))
    labels = [["O", "B-V", "O", "O", "O"], ["O", "O", "O", "B-V", "O"]]
    many = {name: 32 * rows for name, rows in X.items()}
    assert task.fit(many, 32 * labels, batch_size=2, epochs=2, verbose=0).history["loss"][-1] < 0.3
    assert task.tag(X)["labels"] == labels
    task.save_to_preset(tmp_path / "roles")
    again = Task.from_preset(tmp_path / "roles")
    assert again.predicate
    packed = again.preprocess(X)
    np.testing.assert_allclose(again(packed), task(packed), atol=1e-6)


@pytest.mark.slow
@pytest.mark.eager
def test_saved_model(task, tmp_path):
    texts, places = ["the films was good", "", "good \u00e9 unly"], [4, 0, 7]
    signatures = tf.saved_model.load(str(task.export(tmp_path / "roles"))).signatures
    served = signatures["serving_default"](text=texts, predicate=[str(n) for n in places])
    own = task.tag({"text": [texts[0], texts[2]], "predicate": [4, 7]})
    for row, expected in zip((0, 2), own["labels"]):
        results = [label.decode() for label in served["labels"].numpy()[row]]
        assert results[: len(expected)] == expected
    words = signatures["words"](text=[WORDS], predicate=["1"])
    assert words["labels"].shape == (1, 5)
    assert set(signatures["entities"](text=texts, predicate=["4", "0", "7"])) > {"start", "end"}
    with pytest.raises(ValueError, match=r"predicate=True .* SavedModel instead"):
        task.export(tmp_path / "roles.tflite", format="litert")


def test_files_of_roles(tmp_path):
    line = "d 0 {} {} X * - {} - - * {} -\n"
    rows = [("Ada", "-", "(ARG0*)"), ("left", "01", "(V*)")]
    path = tmp_path / "roles"
    path.write_text("".join(line.format(n, *row) for n, row in enumerate(rows)))
    actual = read_examples(path, "token-classifier", "ontonotes-srl")
    assert actual.texts == {"text": [["Ada", "left"]], "predicate": [1]}
    assert actual.labels == [["B-ARG0", "B-V"]]


@pytest.mark.eager
@pytest.mark.parametrize(
    "x, message",
    [
        (WORDS, "x has no predicates: pass"),
        ({"text": [WORDS]}, "x has no predicates"),
        (
            {"text": [WORDS], "predicate": [5]},
            r"predicate\[0\]=5 is not a place in text\[0\], of 5 words",
        ),
        ({"text": ["a film"], "predicate": [6]}, "of 6 characters"),
        ({"text": [WORDS], "predicate": [-1]}, r"predicate\[0\]=-1"),
        ({"text": [WORDS], "predicate": [0, 1]}, "different lengths"),
    ],
)
def test_bad_data(task, x, message):
    with pytest.raises(ValueError, match=message):
        task.tag(x)


def test_a_backbone_without_segments(tokenizer):
    network = RobertaBackbone(tokenizer.vocabulary_size, 1, 2, 8, 8)
    with pytest.raises(ValueError, match="RobertaBackbone has no two"):
        TokenClassifier(network, class_names=NAMES, predicate=True)
