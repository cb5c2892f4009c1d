"""Labels in containers that are none, for every task: a sentence that says what to pass."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_lm import tasks
from keras_lm.feeding.feed import labels_from_user
from keras_lm.utils.user_arguments import names_of_feature

pytestmark = pytest.mark.eager

DICTS = {
    "a column": {"labels": [0, 1, 0, 1]},
    "rows": dict(enumerate([0, 1, 0, 1])),
    "nested": {"a": {"labels": [0, 1, 0, 1]}},
    "empty": {},
    "another class": collections.OrderedDict(label=[0, 1, 0, 1]),
    "no dict": collections.UserDict(label=[0, 1, 0, 1]),
}
ROWLESS = {
    "a set": ({0, 1, 2, 3}, "is a set, without an order: pass a list"),
    "a generator": ((each for each in range(4)), "is a generator, of unknown length: pass list"),
    "an iterator": (zip("ab", "ab"), "labels is a zip: pass a list, an array"),
    "a string": ("0101", "labels is a str: pass a list, an array"),
    "bytes": (bytearray(b"0101"), "labels is a bytearray: pass a list, an array"),
    "a class": (list, "labels is a type: pass a list, an array"),
    "a function": (print, "labels is a builtin_function_or_method: pass a list, an array"),
}


@pytest.fixture(scope="module")
def made(tokenizer_of, backbone_of):
    """Every task, compiled, and its texts."""
    from keras_lm.models import T5Backbone

    t5 = tokenizer_of("sentencepiece-t5")
    backbones = {
        "CausalLM": (backbone_of("GPT2Backbone"), tokenizer_of("bytebpe-gpt2")),
        "Seq2SeqLM": (T5Backbone(t5.vocabulary_size, 1, **tiny.SIZE), t5),
    }
    usual = backbone_of("BertBackbone"), tokenizer_of("wordpiece")
    results = {}
    for name, (arguments, texts) in tiny.TASKS.items():
        backbone, tokenizer = backbones.get(name, usual)
        texts = {"text": tiny.GOOD} if name == "CausalLM" else texts
        results[name] = getattr(tasks, name)(backbone, tokenizer=tokenizer, **arguments), texts
    results["several"] = (
        tasks.TextClassifier(
            usual[0], class_names=["a", "b"], multi_label=True, tokenizer=usual[1]
        ),
        {"text": tiny.GOOD},
    )
    results["FeatureExtractor"][0].compile(loss="mse")
    return results


NAMES = [*tiny.TASKS, "several"]


def calls(task):
    return task.fit, task.evaluate, task.train_on_batch, task.test_on_batch


@pytest.mark.parametrize("kind", DICTS)
@pytest.mark.parametrize("name", NAMES)
def test_a_dict(made, name, kind):
    """It was a raw AttributeError, or its values were compared as if they had no name."""
    task, texts = made[name]
    for call in calls(task):
        with pytest.raises(
            ValueError, match=r"y is a \w+ with the keys \[.*\]: \w+ takes a (l|dict)"
        ):
            call(texts, DICTS[kind])
    # What learns from pairs takes no generator.
    with pytest.raises(ValueError, match=r"y is a \w+ with the keys|x is a generator: pass lists"):
        task.fit(iter([(texts, DICTS[kind])]))


@pytest.mark.parametrize("name", NAMES)
def test_a_dict_in_a_dataset(made, name):
    task, texts = made[name]
    batches = tf.data.Dataset.from_tensors((texts, DICTS["a column"]))
    for call in (task.fit, task.evaluate):
        with pytest.raises(
            ValueError, match=r"Dataset, whose y is a dict with the keys \['labels'"
        ):
            call(batches)


@pytest.mark.parametrize("kind", ROWLESS)
@pytest.mark.parametrize("name", NAMES)
def test_what_has_no_rows(made, name, kind):
    task, texts = made[name]
    labels, message = ROWLESS[kind]
    for call in calls(task):
        with pytest.raises(ValueError, match=message):
            call(texts, labels)


def test_validation_and_replaced_labels(made):
    task, texts = made["TextClassifier"]
    right = np.array([0, 1, 2, 1])
    with pytest.raises(ValueError, match="TextClassifier takes a list with a label for each row"):
        task.fit(texts, right, validation_data=(texts, {"labels": right}))
    several = tasks.MultiTask({"one": task})
    with pytest.raises(ValueError, match="TextClassifier takes a list with a label for each row"):
        several.fit({"one": (texts, {"labels": right})})
    with pytest.raises(ValueError, match="labels is a dict: pass a list, an array"):
        labels_from_user({"a": 1}, 1)


WRONG = {
    "ConstituencyParser": (
        (range(4), r"labels\[0\]=0 is a int: pass a tree in brackets|labels\[0\]=np.int64\(0\)"),
        ([None] * 4, r"labels\[0\]=None is a NoneType: pass a tree in brackets"),
        ([{"a": 1}] * 4, r"labels\[0\]=\{'a': 1\} is a dict: pass a tree in brackets"),
    ),
    "MaskedLM": (
        ([0, 1, 0, 1], r"y holds int64 \(4,\), and MaskedLM learns from the texts of x alone"),
        ([True] * 4, r"y holds bool \(4,\), and MaskedLM learns"),
    ),
    "CausalLM": (
        ([0.5] * 4, r"y holds float64 \(4,\), and CausalLM learns from the texts of x alone"),
        (["a"] * 4, "y holds strings, and CausalLM learns from the texts of x alone: leave y out"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_labels_of_another_task(made, name):
    """They reached Keras, which spoke of ranks."""
    task, texts = made[name]
    for labels, message in WRONG[name]:
        for call in calls(task):
            with pytest.raises(ValueError, match=message):
                call(texts, labels)


def test_sets_have_no_order_that_several_labels_need(made):
    task, texts = made["several"]
    task.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    expected = task.test_on_batch(texts, [["a", "b"], [], ["b"], ["a"]])
    assert task.test_on_batch(texts, [{"a", "b"}, set(), frozenset("b"), {"a"}]) == expected
    tagger, texts = made["TokenClassifier"]
    with pytest.raises(ValueError, match=r"labels\[0\]=\{'O'\}: pass a list with a label for each"):
        tagger.test_on_batch(texts, [{"O"}] * 4)


def test_answers_in_columns(made):
    task, _ = made["QuestionAnswerer"]
    task.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    texts = {"question": ["who"] * 2, "context": ["it was ada", "it was bob"]}
    rows = [{"text": "ada", "start": 7}, {"text": "bob", "start": 7}]
    expected = task.test_on_batch(texts, rows)
    assert task.test_on_batch(texts, {"text": ["ada", "bob"], "start": [7, 7]}) == expected
    several = {"text": [["ada"], ["bob", "it"]], "answer_start": [[7], [7, 0]]}
    assert task.test_on_batch(texts, several) == expected
    with pytest.raises(ValueError, match=r"'bob' is not at start=6 of context\[1\]"):
        task.test_on_batch(texts, {"text": ["ada", "bob"], "start": [7, 6]})
    for columns in ({"text": ["ada", "bob"]}, {"text": ["ada", "bob"], "start": [7]}):
        with pytest.raises(ValueError, match="pass 'text' and 'start' alike"):
            task.fit(texts, columns)


class Feature:
    def __init__(self, **stated):
        self.__dict__ |= stated


def test_names_of_features():
    """As objects of `datasets`, and as what its files and tables of pyarrow state."""
    names = ["x", "a"]
    label = Feature(names=names)
    stated = {"names": names, "_type": "ClassLabel"}
    for feature in (label, stated):
        for holds in (feature, [feature], Feature(feature=[feature]), {"feature": feature}):
            assert names_of_feature(holds) == names
    for other in (None, "Value", {"dtype": "int64"}, [], {"feature": None}, Feature(names=None)):
        assert names_of_feature(other) is None
