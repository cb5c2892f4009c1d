"""Texts of similar lengths are batched together; answers keep the order of the texts."""

import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.ops import softmax

from keras_lm.feeding import datasets, predict_batches
from keras_lm.tasks import MaskedLM, TextClassifier

TEXTS = ["good " * (1 + 7 * number % 11) for number in range(40)]


def test_length_is_that_of_all_texts_of_a_row(make):
    texts = make(TextClassifier, num_classes=2).preprocessor
    pairs = {"text": tf.constant(["the film", "good", ""]), "text_pair": tf.constant(["a"] * 3)}
    assert texts.count_tokens(pairs).tolist() == [3, 2, 1]
    words = {"text": tf.ragged.constant([["the", "films"], [], ["good"] * 4])}
    assert texts.count_tokens(words).tolist() == [3, 0, 4]
    assert predict_batches.longest_first(texts, words, 2).tolist() == [2, 0, 1]
    assert predict_batches.longest_first(texts, words, 3).tolist() == [0, 1, 2]  # one batch
    choices = {"text": tf.constant(["a"]), "choices": tf.constant([["the film", "good"]])}
    assert texts.count_tokens(choices).tolist() == [4]
    packed = {"token_ids": np.ones([3, 2])}
    assert predict_batches.longest_first(texts, packed, 2).tolist() == [0, 1, 2]
    fixed = make(TextClassifier, num_classes=2, padding="fixed").preprocessor
    assert fixed.count_tokens(words).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("padding", "length"), [("fixed", 12), ("longest", None)])
def test_graphs_know_the_length_of_rows_of_fixed_padding(make, padding, length):
    """So long rows attend in blocks, see `keras_lm.layers.tensorflow.is_long`."""
    task = make(TextClassifier, num_classes=2, padding=padding, sequence_length=12)
    inputs, _ = datasets.batches(task.feed, TEXTS, [0] * len(TEXTS), batch_size=8).element_spec
    assert inputs["token_ids"].shape.as_list() == [None, length]


def epoch(dataset):
    return [(x["text"].numpy().tolist(), y.numpy().tolist()) for x, y in dataset]


def padding(batches):
    """How much longer than their texts batches are in all."""
    sizes = [[len(text) for text in texts] for texts, _ in batches]
    return sum(max(row) * len(row) for row in sizes) / sum(map(sum, sizes))


def test_an_epoch_holds_every_row_once_with_little_padding():
    texts = np.array([b"a" * (1 + 37 * n % 101) for n in range(603)])
    counts = np.char.str_len(texts)
    data = ({"text": tf.constant(texts)}, tf.range(603))
    grouped = datasets.shuffled_batches(data, 8, counts)
    assert int(grouped.cardinality()) == 76
    epochs = [epoch(grouped) for _ in range(2)]
    for batches in epochs:
        assert sorted(label for _, labels in batches for label in labels) == list(range(603))
        assert all(texts[n] == text for row, labels in batches for text, n in zip(row, labels))
        assert sorted(len(labels) for _, labels in batches) == [3] + [8] * 75
        assert padding(batches) < 1.15
    assert epochs[0] != epochs[1]
    together = [{frozenset(labels) for _, labels in batches} for batches in epochs]
    assert len(together[0] & together[1]) < 10  # batches are not the same in every epoch
    sizes = [len(row[0]) for row, _ in epochs[0]]
    assert abs(np.corrcoef(sizes, np.arange(len(sizes)))[0, 1]) < 0.5  # nor in order of length
    assert padding(epoch(datasets.shuffled_batches(data, 8))) > 1.5


def test_few_batches_are_shuffled_only():
    texts = [b"a" * (n + 1) for n in range(24)]
    data = ({"text": tf.constant(texts)}, tf.range(24))
    assert padding(epoch(datasets.shuffled_batches(data, 8, np.arange(24)))) > 1.2


@pytest.mark.eager
def test_fit_groups_what_it_shuffles_unless_told_otherwise(make, monkeypatch):
    sizes, given, shuffled = [], [], datasets.shuffled_batches

    def spy(data, batch_size, counts=None, seed=None):
        sizes.append(batch_size)
        given.append(counts)
        return shuffled(data, batch_size, counts)

    monkeypatch.setattr(datasets, "shuffled_batches", spy)
    task = make(TextClassifier, num_classes=2)
    labels = np.arange(len(TEXTS)) % 2
    task.fit(TEXTS, labels, 20, verbose=0)
    task.fit(TEXTS, labels, 20, verbose=0, group_by_length=False)
    task.fit(TEXTS, labels, 20, verbose=0, shuffle=False)
    assert given[0].tolist() == [len(text.split()) for text in TEXTS]
    assert given[1:] == [None]
    task.fit(TEXTS, labels, verbose=0)
    assert sizes == [20, 20, 16]  # the default, half of Keras's


@pytest.mark.eager
def test_answers_are_in_the_order_of_the_texts(make):
    task = make(TextClassifier, num_classes=3)
    expected = task.predict_on_batch(TEXTS)
    logits = task.predict(TEXTS, batch_size=8, verbose=0)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    first = task.predict(TEXTS, batch_size=8, steps=2, verbose=0)
    np.testing.assert_allclose(first, expected[:16], rtol=1e-4, atol=1e-5)
    dataset = tf.data.Dataset.from_tensor_slices(TEXTS).batch(3)
    for texts in (TEXTS, dataset):
        scores = task.classify(texts, batch_size=8)["scores"]
        np.testing.assert_allclose(scores, np.asarray(softmax(expected)), rtol=1e-4, atol=1e-5)


@pytest.mark.eager
def test_batches_of_long_texts_have_fewer_rows(make, monkeypatch):
    monkeypatch.setattr(predict_batches, "MOST_TOKENS", 20)
    task = make(TextClassifier, num_classes=3, sequence_length=24)
    texts = [*TEXTS, "good " * 500]
    batches = predict_batches.batches_by_length(task.preprocessor, {"text": tf.constant(texts)}, 5)
    assert sorted(np.concatenate(batches)) == list(range(41))
    sizes = [(len(rows), max(len(texts[row].split()) for row in rows)) for rows in batches]
    assert sizes[:2] == [(1, 500), (1, 11)]  # one at least
    assert all(rows == 1 or rows * longest <= 20 for rows, longest in sizes)
    assert max(rows for rows, _ in sizes) == 5
    inputs, places = predict_batches.sorted_batches(task.feed, texts, batch_size=5)
    assert [len(packed["token_ids"]) for (packed,) in inputs] == [rows for rows, _ in sizes]
    assert np.argsort(places).tolist() == np.concatenate(batches).tolist()
    expected = task.predict_on_batch(texts)
    logits = task.predict(texts, batch_size=5, verbose=0)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)
    assert task.evaluate(texts, [0] * 41, 5, verbose=0) == pytest.approx(
        task.test_on_batch(texts, [0] * 41), rel=1e-4
    )
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [kind])  # a GPU
    batches = predict_batches.batches_by_length(task.preprocessor, {"text": tf.constant(texts)}, 5)
    assert [len(rows) for rows in batches] == [5] * 8 + [1]


def test_evaluate_takes_labels_along(make):
    task = make(TextClassifier, num_classes=3)
    labels = task.predict_on_batch(TEXTS).argmax(-1)
    wrong = np.where(np.arange(40) < 10, (labels + 1) % 3, labels)
    weights = np.where(np.arange(40) < 10, 0.0, 1.0)
    task.compile(metrics=["accuracy"], weighted_metrics=[keras.metrics.SparseCategoricalAccuracy()])
    metrics = task.evaluate(TEXTS, wrong, 4, sample_weight=weights, verbose=0, return_dict=True)
    assert metrics["accuracy"] == pytest.approx(0.75)
    assert metrics["sparse_categorical_accuracy"] == pytest.approx(1.0)


@pytest.mark.eager
def test_a_sequence_a_row_is_that_of_its_text(make):
    task = make(MaskedLM)
    logits = task.predict(TEXTS[:6], batch_size=2, verbose=0)
    expected = task.predict_on_batch(TEXTS[:6])
    for row, other, text in zip(logits, expected, TEXTS[:6], strict=True):
        size = len(text.split()) + 2
        np.testing.assert_allclose(row[:size], other[:size], rtol=1e-4, atol=1e-5)


def test_two_batches_are_computed_at_once_and_answered_in_order():
    started, together = [], threading.Barrier(2)

    def compute(number):
        started.append(number)
        if number:  # the first is computed alone: it traces
            together.wait(60)  # raises if nobody comes
        if number % 2:
            time.sleep(0.05)  # the earlier of the two is done later
        return number

    actual = predict_batches._side_by_side(compute, range(5))
    assert next(actual) == 0
    assert started == [0]
    assert next(actual) == 1
    assert sorted(started) == [0, 1, 2]  # no more are in memory
    assert list(actual) == [2, 3, 4]


def test_what_a_batch_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        list(predict_batches._side_by_side(lambda number: 1 / number, [3, 2, 1, 0, 1]))
