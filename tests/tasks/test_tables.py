"""DataFrames, and what the Hugging Face library `datasets` hands out, as texts and as labels."""

import collections.abc
import json

import keras
import numpy as np
import pandas
import pytest
import tensorflow as tf
import tiny

from keras_lm.tasks import (
    Distiller,
    FeatureExtractor,
    MaskedLM,
    MultipleChoice,
    MultiTask,
    Pretrainer,
    QuestionAnswerer,
    Seq2SeqLM,
    TextClassifier,
    TextRegressor,
    TokenClassifier,
)

pytestmark = pytest.mark.eager

TEXTS, LABELS = tiny.GOOD + tiny.BAD, [1] * 4 + [0] * 4


# Their public interface, without the package.


class Column(collections.abc.Sequence):
    """What `dataset["text"]` is: a sequence, but no list and no array."""

    def __init__(self, source, name):
        self.source, self.column_name = source, name

    def __iter__(self):
        return iter(self.source.columns_[self.column_name])

    def __getitem__(self, key):
        return self.source.columns_[self.column_name][key]

    def __len__(self):
        return len(self.source)


class Dataset:
    def __init__(self, columns):
        self.columns_ = columns
        self.features = dict.fromkeys(columns, "Value")

    @property
    def column_names(self):
        return list(self.columns_)

    @property
    def num_rows(self):
        return len(next(iter(self.columns_.values())))

    def __len__(self):
        return self.num_rows

    def __getitem__(self, key):
        if isinstance(key, str):
            return Column(self, key)
        return {name: column[key] for name, column in self.columns_.items()}

    def __iter__(self):
        return (self[row] for row in range(len(self)))

    def to_dict(self):
        return dict(self.columns_)

    def rename_column(self, old, new):
        return Dataset({new if k == old else k: v for k, v in self.columns_.items()})


class DatasetDict(dict):
    @property
    def column_names(self):
        return {name: split.column_names for name, split in self.items()}


class IterableDataset:
    def __init__(self, columns):
        self.column_names = list(columns)

    def __iter__(self):
        raise AssertionError("never read")


TABLES = {"DataFrame": pandas.DataFrame, "Dataset": Dataset}


@pytest.fixture(scope="module")
def make(tokenizer_of):
    tokenizer = tokenizer_of("wordpiece")

    def task(cls, **arguments):
        if cls is not FeatureExtractor:
            return tiny.make_still_task(cls, tokenizer, **arguments)
        backbone = tiny.make_backbone("BertBackbone", tokenizer.vocabulary_size)
        return cls(backbone, tokenizer=tokenizer, **arguments)

    return task


@pytest.fixture(scope="module")
def classifier(make):
    return make(TextClassifier, class_names=["bad", "good"])


def measured(task, *data):
    """Of one batch, which costs less than `evaluate`."""
    return task.test_on_batch(*data, return_dict=True)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "column"), [("DataFrame", "label"), ("Dataset", "labels")])
def test_a_table_holds_its_labels(classifier, kind, column):
    table = TABLES[kind]({"id": [*range(8)], "text": TEXTS, column: LABELS})
    expected = measured(classifier, TEXTS, LABELS)
    assert measured(classifier, table) == pytest.approx(expected)
    assert measured(classifier, table, LABELS[::-1]) != pytest.approx(expected)  # y comes first
    metrics = classifier.evaluate(table, verbose=0, return_dict=True)
    assert metrics == pytest.approx(expected)
    history = classifier.fit(table, validation_data=table, verbose=0).history
    assert {k: history[f"val_{k}"][0] for k in expected} == pytest.approx(expected)
    held_out = classifier.fit(table, validation_split=0.5, class_weight="balanced", verbose=0)
    expected = measured(classifier, TEXTS[4:], LABELS[4:])
    assert held_out.history["val_loss"] == pytest.approx([expected["loss"]])
    metrics = classifier.predict_on_batch(table)
    assert np.allclose(metrics, classifier.predict(table, verbose=0), atol=1e-5)
    assert classifier.classify(table)["labels"].tolist() == [*classifier.classify(TEXTS)["labels"]]


def test_columns_alone(classifier):
    data = Dataset({"text": TEXTS, "label": LABELS, "soft": np.eye(2)[LABELS].tolist()})
    expected = measured(classifier, TEXTS, LABELS)
    for x, y in ((data["text"], data["label"]), (data["text"], data["soft"])):
        assert measured(classifier, x, y) == pytest.approx(expected)
    history = classifier.fit(data["text"], data["label"], validation_split=0.25, verbose=0)
    assert history.history["val_loss"]
    pair = classifier.predict_on_batch((data["text"], data["text"]))
    assert np.array_equal(pair, classifier.predict_on_batch((TEXTS, TEXTS)))
    several = pandas.DataFrame({"text": TEXTS, "label": list(np.eye(2)[LABELS])})
    assert measured(classifier, several) == pytest.approx(expected)  # a column of vectors
    assert measured(classifier, TEXTS, several["label"]) == pytest.approx(expected)


# === Numbers that the table names ===


class ClassLabel:
    def __init__(self, names):
        self.names = names


class Sequence:
    def __init__(self, feature):
        self.feature = feature


def with_names(columns, **features):
    data = Dataset(columns)
    data.features |= features
    return data


class NamedColumn(Column):
    def __init__(self, source, name):
        super().__init__(source, name)
        self.features = source.features[name]


@pytest.mark.parametrize("names", [["bad", "good"], ["good", "bad"], ["good", "?", "bad"]])
def test_a_table_names_its_numbers(classifier, names):
    """They were taken as the task's own, whatever the table called them."""
    numbers = [names.index(["bad", "good"][label]) for label in LABELS]
    table = with_names({"text": TEXTS, "label": numbers}, label=ClassLabel(names))
    expected = measured(classifier, TEXTS, LABELS)
    assert measured(classifier, table) == pytest.approx(expected)
    assert measured(classifier, table["text"], NamedColumn(table, "label")) == measured(
        classifier, table
    )
    history = classifier.fit(table, validation_data=table, verbose=0, shuffle=False).history
    assert history["loss"] == pytest.approx([expected["loss"]], rel=1e-4)
    assert history["val_loss"] == pytest.approx([expected["loss"]], rel=1e-4)
    actual = classifier.fit(
        TEXTS, LABELS, validation_data=(TEXTS, NamedColumn(table, "label")), verbose=0
    )
    assert actual.history["val_loss"] == pytest.approx([expected["loss"]], rel=1e-4)


def test_names_of_a_table_that_are_none_of_the_tasks(make, classifier):
    table = with_names({"text": TEXTS, "label": LABELS}, label=ClassLabel(["neg", "pos"]))
    message = r"the table calls a label 'pos', and class_names are \['bad', 'good'\]: make the task"
    for call in (classifier.fit, classifier.evaluate, classifier.train_on_batch):
        with pytest.raises(ValueError, match=message):
            call(table)
    with pytest.raises(ValueError, match=message):
        classifier.fit(TEXTS, LABELS, validation_data=table)
    numbers = make(TextClassifier, num_classes=2)  # which names none itself
    expected = measured(numbers, TEXTS, LABELS)
    assert measured(numbers, table) == expected and numbers.class_names == ["neg", "pos"]
    hidden = with_names({"text": TEXTS, "label": [-1] * 8}, label=ClassLabel(["good", "bad"]))
    with pytest.raises(ValueError, match=r"labels\[0\]=-1"):
        measured(classifier, hidden)


def test_a_table_names_the_numbers_of_several_labels_and_of_words(make):
    names = ["good", "bad"]
    several = make(TextClassifier, class_names=["bad", "good"], multi_label=True)
    table = {"text": TEXTS[:3], "label": [[0], [1, 0], []]}
    table = with_names(table, label=Sequence(ClassLabel(names)))
    expected = measured(several, TEXTS[:3], [["good"], ["bad", "good"], []])
    assert measured(several, table) == pytest.approx(expected)

    words, tags = [["a", "film"], ["good"]], ["I-X", "O", "B-X"]
    tagger = make(TokenClassifier, class_names=["O", "B-X", "I-X"])
    for feature in (Sequence(ClassLabel(tags)), [ClassLabel(tags)]):  # of datasets 4, and of 1
        table = with_names({"text": words, "label": [[2, 0], [-100]]}, label=feature)
        assert measured(tagger, table) == measured(tagger, words, [[1, 2], [-100]])


def learning(make, table, cls=TextClassifier, **arguments):
    """Return a task without names, what it learns from a table, and measures of both."""
    task = make(cls, **arguments)
    return task, measured(task, table), task.class_names


def test_a_task_without_names_learns_those_of_a_table(make):
    """Its answers were "0" and "1", whatever the table called them."""
    names = ["good", "bad"]  # not in the order of names that are sorted
    table = with_names({"text": TEXTS, "label": LABELS}, label=ClassLabel(names))
    task, actual, learned = learning(make, table, num_classes=2)
    assert learned == names and actual == measured(task, TEXTS, LABELS)
    assert actual == measured(task, TEXTS, [names[label] for label in LABELS])
    assert {*task.classify(TEXTS)["labels"]} <= {*names}
    assert task.classify(TEXTS[:1])["class_names"].tolist() == names
    both = with_names({"text": TEXTS, "text_pair": TEXTS, "label": LABELS}, **table.features)
    assert learning(make, both, num_classes=2)[2] == names


def test_names_that_are_learned_of_several_labels_and_of_words(make):
    names = ["good", "bad"]
    several = with_names(
        {"text": TEXTS[:3], "label": [[0], [1, 0], []]}, label=Sequence(ClassLabel(names))
    )
    task, actual, learned = learning(make, several, num_classes=2, multi_label=True)
    assert learned == names and actual == measured(task, TEXTS[:3], [[1, 0], [1, 1], [0, 0]])
    words = with_names(
        {"text": [["a", "film"], ["good"]], "label": [[1, 0], [-100]]},
        label=Sequence(ClassLabel(["X", "O"])),
    )
    for crf in (False, True):
        task, actual, learned = learning(make, words, TokenClassifier, num_classes=2, crf=crf)
        assert learned == ["X", "O"]
        assert actual == measured(task, words.columns_["text"], words.columns_["label"])


def test_a_table_names_another_number_of_classes(make):
    table = with_names({"text": TEXTS, "label": LABELS}, label=ClassLabel(["a", "b", "c"]))
    words = {"text": [["a", "film"]], "label": [[1, 0]]}
    words = with_names(words, label=Sequence(ClassLabel(["a", "b", "c"])))
    for task, data in (
        (make(TextClassifier, num_classes=2), table),
        (make(TextClassifier, num_classes=4), table),
        (make(TokenClassifier, num_classes=2), words),
    ):
        with pytest.raises(
            ValueError, match=r"the table names 3 classes, \['a', 'b', 'c'\], and nu"
        ):
            task.fit(data)
        assert task.class_names is None


def test_a_table_names_positions_of_choices(make):
    choices = {"text": ["a", "it"], "choices": [["good", "bad"], ["x", "y"]], "label": [0, 1]}
    chooser = make(MultipleChoice)
    for names in (["A", "B"], ["0", "1"], [str(number) for number in range(12)]):
        table = with_names(choices, label=ClassLabel(names))
        assert measured(chooser, table) == measured(chooser, Dataset(choices))
    with pytest.raises(ValueError, match=r"the table names its labels \['B', 'A'\], and Multi"):
        chooser.fit(with_names(choices, label=ClassLabel(["B", "A"])))


def test_names_in_a_table_of_pyarrow(classifier):
    """`datasets` writes them beside the columns, also into Parquet files."""
    pyarrow = pytest.importorskip("pyarrow")
    feature = {"names": ["good", "bad"], "_type": "ClassLabel"}
    stated = json.dumps({"info": {"features": {"label": feature}}})
    table = pyarrow.table({"text": TEXTS, "label": [1 - label for label in LABELS]})
    table = table.replace_schema_metadata({"huggingface": stated})
    assert measured(classifier, table) == measured(classifier, TEXTS, LABELS)


def test_a_column_called_features(classifier):
    frame = pandas.DataFrame({"text": TEXTS, "label": LABELS, "features": LABELS})
    assert measured(classifier, frame) == measured(classifier, TEXTS, LABELS)


def test_a_stream_of_numbers_with_names(classifier):
    """A list of its numbers would lose what they mean."""
    table = with_names({"text": TEXTS, "label": LABELS}, label=ClassLabel(["good", "bad"]))
    column = type("IterableColumn", (), {"source": table, "column_name": "label"})()
    with pytest.raises(ValueError, match=r"the classes \['good', 'bad'\]: pass names, \[y.source"):
        classifier.fit(TEXTS, column)


def test_tables_that_come_in_batches(classifier):
    frame = pandas.DataFrame({"text": TEXTS, "label": LABELS})
    expected = measured(classifier, TEXTS, LABELS)
    metrics = classifier.evaluate(iter([frame[:4], frame[4:]]), verbose=0, return_dict=True)
    assert metrics == pytest.approx(expected, rel=1e-4)


def test_splits_and_streams(classifier):
    data = Dataset({"text": TEXTS, "label": LABELS})
    splits = DatasetDict(train=data, test=data)
    message = r"x is a DatasetDict of \['train', 'test'\]: pass one of them, such as x\['train'\]"
    for call in (
        lambda: classifier.fit(splits),
        lambda: classifier.fit(data, validation_data=splits),
        lambda: classifier.evaluate(splits),
        lambda: classifier.predict(splits),
        lambda: classifier.classify(splits),
        lambda: classifier.train_on_batch(splits),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    for call in (classifier.fit, classifier.predict):
        with pytest.raises(ValueError, match="x is a IterableDataset, of unknown length: pass a"):
            call(IterableDataset(["text", "label"]))


def test_other_columns(classifier):
    data = Dataset({"review": TEXTS, "stars": LABELS})
    with pytest.raises(ValueError, match=r"'text' is missing.*x.rename_column\('review', 'text'\)"):
        classifier.predict(data)
    with pytest.raises(ValueError, match=r"x is a Dataset with the columns .*'text' is missing"):
        classifier.fit(data, LABELS)
    with pytest.raises(
        ValueError, match=r"labels are missing: x is a DataFrame .*\['text', 'stars'\]. Rename"
    ):
        classifier.fit(pandas.DataFrame({"text": TEXTS, "stars": LABELS}))


@pytest.mark.slow
def test_tables_of_other_tasks(make):
    frame = pandas.DataFrame({"text": TEXTS, "label": np.arange(8.0)})
    regressor = make(TextRegressor)
    assert measured(regressor, frame) == measured(regressor, TEXTS, np.arange(8.0))

    words = {"text": [["a", "film"], ["good"]], "labels": [["O", "X"], ["X"]]}
    tagger = make(TokenClassifier, class_names=["O", "X"])
    for table in TABLES.values():
        assert measured(tagger, table(words)) == measured(tagger, *words.values())
    marked = {"text": words["text"], "predicate": [1, 0]}
    roles = make(TokenClassifier, class_names=["O", "X"], predicate=True)
    expected = measured(roles, marked, words["labels"])
    assert measured(roles, Dataset(marked | {"labels": words["labels"]})) == expected

    choices = {"text": ["a", "it"], "choices": [["good", "bad"], ["x", "y"]]}
    chooser = make(MultipleChoice)
    for table in TABLES.values():
        metrics = measured(chooser, table(choices | {"label": [0, 1]}))
        assert metrics == measured(chooser, choices, [0, 1])

    questions = {"question": ["what was it"], "context": ["the film was good"]}
    answers = [{"text": ["good"], "start": [13]}]
    reader = make(QuestionAnswerer)
    squad = [{"text": ["good"], "answer_start": [13]}]
    table = Dataset({"id": ["a"]} | questions | {"answers": squad})
    metrics = reader.evaluate(table, verbose=0, return_dict=True)
    assert metrics["loss"] == pytest.approx(measured(reader, questions, answers)["loss"])
    assert "f1" in metrics

    several = MultiTask({"stars": regressor})
    metrics = several.evaluate({"stars": frame}, verbose=0)
    assert metrics["stars_loss"] == pytest.approx(measured(regressor, frame)["loss"])


def test_what_needs_no_labels_reads_none(make):
    frame = pandas.DataFrame({"text": TEXTS, "label": ["a", None] * 4})
    assert measured(make(MaskedLM), frame)["loss"] > 0
    extractor = make(FeatureExtractor)
    assert np.array_equal(
        extractor.embed(Dataset({"text": TEXTS}))["embedding"], extractor.embed(TEXTS)["embedding"]
    )


@pytest.mark.slow
def test_a_distiller_reads_labels_where_there_are_some(make, classifier):
    distiller = Distiller(make(TextClassifier, class_names=["bad", "good"]), classifier)
    distiller.compile(keras.optimizers.SGD(0.0), run_eagerly=True)

    def loss(*data):
        return distiller.fit(*data, verbose=0, shuffle=False).history["loss"]

    frame = pandas.DataFrame({"text": TEXTS, "label": LABELS})
    assert loss(frame) == pytest.approx(loss(TEXTS, LABELS))
    assert loss(frame[["text"]]) == pytest.approx(loss(TEXTS)) != pytest.approx(loss(frame))


# === Without labels ===

NEEDING = {
    TextClassifier: ({"num_classes": 2}, TEXTS),
    TextRegressor: ({}, TEXTS),
    TokenClassifier: ({"num_classes": 2, "crf": True}, TEXTS),
    MultipleChoice: ({}, {"text": ["a"], "choices": [["good", "bad"]]}),
    QuestionAnswerer: ({}, {"question": ["what"], "context": ["a film"]}),
    Pretrainer: ({}, {"text": TEXTS, "text_pair": TEXTS}),
}


@pytest.mark.parametrize("cls", NEEDING)
def test_labels_are_missing(make, cls):
    arguments, x = NEEDING[cls]
    task = make(cls, **arguments)
    batches = tf.data.Dataset.from_tensors(x)

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 1

        def __getitem__(self, place):
            return (x,)

    message = f"labels are missing, which {cls.__name__} compares with: "
    calls = [
        lambda: task.fit(x),
        lambda: task.evaluate(x),
        lambda: task.train_on_batch(x),
        lambda: task.test_on_batch(x),
        lambda: task.fit(iter([(x,)])),
        lambda: task.evaluate(Batches()),
    ]
    if cls is Pretrainer:
        calls.append(lambda: task.fit(x, [0] * 8, validation_data=x, verbose=0))
    else:
        calls.append(lambda: MultiTask({"one": task}).fit({"one": (x, None)}))
    for call in calls:
        with pytest.raises(ValueError, match=f"{message}pass y"):
            call()
    for call in (task.fit, task.evaluate):
        with pytest.raises(ValueError, match=rf"{message}let the tf.data.Dataset yield \(x, y\)"):
            call(batches)


def test_targets_are_missing(tokenizer_of):
    from keras_lm.models import T5Backbone

    tokenizer = tokenizer_of("sentencepiece-t5")
    backbone = T5Backbone(tokenizer.vocabulary_size, 1, num_decoder_layers=1, **tiny.SIZE)
    task = Seq2SeqLM(backbone, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="labels are missing, which Seq2SeqLM compares with"):
        task.fit(TEXTS)
