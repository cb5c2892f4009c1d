"""Data without batches, and data sets with unusable labels: errors in plain words."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_lm.tasks import CausalLM, MaskedLM, MultipleChoice, Pretrainer, TextClassifier

TEXTS = ["a good film", "bad"]


def data(labels, texts=TEXTS):
    return tf.data.Dataset.from_tensor_slices((texts, labels)).batch(1)


def without_any(x):
    return x.filter(lambda *row: tf.reduce_all(tf.size(row[0]) > 5))


@pytest.mark.parametrize("empty", [lambda x: x.take(0), without_any], ids=["known", "unknown"])
@pytest.mark.eager
def test_a_data_set_without_batches(classifier, empty):
    rows, texts = data([0, 1]), data([0, 1]).map(lambda x, y: x)
    for call in (
        lambda: classifier.fit(empty(rows), verbose=0),
        lambda: classifier.fit(empty(rows), epochs=2, steps_per_epoch=2, verbose=0),
        lambda: classifier.fit(rows, validation_data=empty(rows), verbose=0),
        lambda: classifier.fit(
            empty(rows), callbacks=[keras.callbacks.TerminateOnNaN()], verbose=0
        ),
        lambda: classifier.evaluate(empty(rows), verbose=0),
        lambda: classifier.predict(empty(texts), verbose=0),
        lambda: classifier.classify(empty(texts), verbose=0),
    ):
        with pytest.raises(ValueError, match=r"without batches|has no batches|x is empty"):
            call()


@pytest.mark.eager
def test_data_without_end_and_callbacks_of_evaluations(classifier):
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            seen.append("evaluated")

        def on_predict_batch_end(self, batch, logs=None):
            seen.append("predicted")

    classifier.fit(data([0, 1]).repeat(), steps_per_epoch=1, verbose=0)
    classifier.evaluate(data([0, 1]), callbacks=[Watch()], verbose=0)
    classifier.predict(TEXTS, batch_size=1, callbacks=Watch(), verbose=0)
    assert seen == ["evaluated"] * 2 + ["predicted"] * 2


@pytest.mark.parametrize("wrong", [7, -1])
def test_labels_that_are_no_classes(make, wrong):
    task, rows = make(TextClassifier, num_classes=3), data([0, wrong])
    message = (
        rf"^labels hold a number that is not a class: they count from 0 to 2, and one is {wrong}$"
    )
    with pytest.raises(ValueError, match=message):
        task.fit(rows, verbose=0)
    with pytest.raises(ValueError, match=message):
        task.evaluate(rows, verbose=0)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):  # as it was
        task.fit(data([0, 1]), validation_data=rows, verbose=0)


@pytest.mark.eager
def test_names_and_numbers_of_many_classes(make):
    task = make(TextClassifier, class_names=["x", "y"])
    with pytest.raises(ValueError, match=r"not one of \['x', 'y'\]: zz$"):
        task.fit(data(["x", "zz"]), verbose=0)
    task = make(TextClassifier, class_names=["x", "y"], multi_label=True)
    with pytest.raises(ValueError, match="more than 0 and 1 for the classes, and one is 7"):
        task.fit(data([[0, 1], [7, -1]]), verbose=0)


@pytest.mark.eager
def test_labels_that_only_the_loss_compares(make):
    x = {"text": TEXTS, "choices": [["a", "good"], ["bad", "film"]]}
    choices = tf.data.Dataset.from_tensor_slices((x, [0, 7])).batch(2)
    for task, *given, last in (
        (make(MultipleChoice), choices, 1),
        (make(Pretrainer), (TEXTS, TEXTS), [0, 7], 1),
        (make(MaskedLM), {"token_ids": np.array([[2, 5, 3]])}, np.array([[-100, 99, -100]]), 38),
    ):
        with pytest.raises(ValueError, match=rf"labels hold \d+, .* count from 0 to {last}\."):
            task.fit(*given, verbose=0)


def test_more_beams_than_memory_has():
    task = CausalLM(tiny.make_backbone("GPT2Backbone", 60))
    prompts = {"token_ids": [[5, 6]]}
    for options in ({"num_beams": 10**6}, {"num_return_sequences": 10**9, "temperature": 1.0}):
        with pytest.raises(ValueError, match=r"is out of range: it must be an int from 1 to"):
            task.generate(prompts, max_new_tokens=3, **options)
