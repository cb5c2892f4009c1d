"""Classifiers and regressors of words take texts as strings and as lists of words."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import WordVectorBackbone
from keras_lm.tasks import TextClassifier, TextRegressor
from keras_lm.tokenizers import WordTokenizer

WORDS = ["<unk>", "<pad>", "good", "bad", "film", "."]
TEXTS = ["good film .", "bad", "", "a bad film"]
LISTS = [["good", "film", "."], ["bad"], [], ["a", "bad", "film"]]


@pytest.fixture(scope="module")
def tokenizer():
    return WordTokenizer(WORDS, unknown_token="<unk>", pad_token="<pad>")


@pytest.mark.eager
def test_a_classifier_learns_from_lists_and_serves_both(tokenizer, tmp_path):
    keras.utils.set_random_seed(0)
    task = TextClassifier(
        WordVectorBackbone(len(WORDS), 4), tokenizer=tokenizer, class_names=["bad", "good"]
    )
    task.compile(optimizer=keras.optimizers.Adam(0.3))
    task.fit(LISTS, ["good", "bad", "good", "bad"], epochs=8, verbose=0)
    expected = task.classify(TEXTS)
    assert list(expected["labels"]) == ["good", "bad", "good", "bad"]
    np.testing.assert_allclose(task.classify(LISTS)["scores"], expected["scores"], atol=1e-6)
    served = tf.saved_model.load(str(task.export(tmp_path / "export"))).signatures
    filled = [[*words, *[""] * (3 - len(words))] for words in LISTS]
    for name, text in (("serving_default", TEXTS), ("words", filled)):
        scores = served[name](text=tf.constant(text))["scores"]
        np.testing.assert_allclose(scores, expected["scores"], atol=1e-6)


def test_lists_in_a_graph(tokenizer):
    task = TextClassifier(WordVectorBackbone(len(WORDS), 4), tokenizer=tokenizer, num_classes=2)
    expected = task(task.preprocess(TEXTS))
    for x in (LISTS, tf.data.Dataset.from_tensors(tf.ragged.constant(LISTS)), TEXTS):
        np.testing.assert_allclose(task.predict(x, verbose=0), expected, atol=1e-6)


@pytest.mark.eager
def test_a_regressor_takes_pairs_of_lists(tokenizer):
    task = TextRegressor(WordVectorBackbone(len(WORDS), 3), tokenizer=tokenizer)
    task.compile(run_eagerly=True)
    pairs = (LISTS, LISTS[::-1])
    expected = task.predict_on_batch((TEXTS, TEXTS[::-1]))
    np.testing.assert_allclose(task.predict_on_batch(pairs), expected, atol=1e-6)
    assert np.isfinite(task.train_on_batch(pairs, [0.0, 1.0, 2.0, 3.0])).all()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["good", None], r"text\[1\] is None, .* and not a string: replace or drop it"),
        ([None, "good"], r"text\[0\] is None, .* and not a string: replace or drop it"),
        ([["good"], None], r"text\[1\] is None, .* not a list of strings, as other rows are"),
        ([["good"], "bad"], r"text\[1\] is 'bad', .* not a list of strings, as other rows are"),
        ([["good", None]], r"text\[0\]\[1\] is None, .* and not a string: replace or drop it"),
    ],
)
def test_the_row_that_is_wrong_is_named(tokenizer, rows, message):
    task = TextRegressor(WordVectorBackbone(len(WORDS), 4), tokenizer=tokenizer)
    with pytest.raises(ValueError, match=message):
        task.answer(rows)
