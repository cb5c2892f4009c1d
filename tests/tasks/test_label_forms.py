"""Class numbers, names, one-hot and soft labels, in every container, with every loss."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_lm import metrics
from keras_lm.feeding.feed import Preprocessor, TaskLabels
from keras_lm.objectives import MaskedCrossentropy
from keras_lm.tasks import (
    Distiller,
    Ensemble,
    MultipleChoice,
    MultiTask,
    TextClassifier,
    TextRegressor,
    TokenClassifier,
)
from keras_lm.tasks.classes import weigh_classes
from keras_lm.tasks.text_model import LABEL_HOOKS, TEXT_HOOKS

pytestmark = pytest.mark.eager

TEXTS, NUMBERS = tiny.GOOD + tiny.BAD, [1, 0, 2, 1, 0, 2, 2, 1]
ONE_HOT = np.eye(3, dtype="float32")[NUMBERS]
SOFT = 0.7 * ONE_HOT + 0.1
LOSSES = {
    "auto": lambda: "auto",
    "sparse": lambda: keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    "masked": MaskedCrossentropy,
    "categorical": lambda: keras.losses.CategoricalCrossentropy(from_logits=True),
    "smoothed": lambda: keras.losses.CategoricalCrossentropy(True, label_smoothing=0.1),
    "focal": lambda: keras.losses.CategoricalFocalCrossentropy(from_logits=True),
}
CATEGORICAL = ["auto", "categorical", "smoothed", "focal"]


@pytest.fixture(scope="module")
def make(tokenizer_of):
    tokenizer = tokenizer_of("wordpiece")

    def task(cls=TextClassifier, loss="auto", backbone=None, **arguments):
        backbone = backbone or tiny.make_backbone("BertBackbone", tokenizer.vocabulary_size)
        made = cls(backbone, tokenizer=tokenizer, **arguments)
        compiled(made, loss)
        return made

    return task


def compiled(task, loss="auto", **options):
    options = {"optimizer": keras.optimizers.SGD(0.0), "run_eagerly": True} | options
    task.compile(loss=LOSSES[loss]() if loss in LOSSES else loss, **options)
    return task


@pytest.fixture(scope="module")
def classifier(make):
    return make(num_classes=3)


def evaluated(task, *data):
    return task.evaluate(*data, verbose=0, return_dict=True)


def dataset(x, y, size=3):
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(size)


class Batches(keras.utils.PyDataset):
    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self):
        return 2

    def __getitem__(self, place):
        rows = slice(4 * place, 4 * place + 4)
        return self.x[rows], self.y[rows]


CONTAINERS = {
    "arrays": lambda x, y: (np.array(x), np.array(y)),
    "lists": lambda x, y: (x, np.array(y).tolist()),
    "tf.data": lambda x, y: (dataset(x, y),),
    "generator": lambda x, y: (iter([(x[:4], y[:4]), (x[4:], y[4:])]),),
    "PyDataset": lambda x, y: (Batches(x, y),),
}


@pytest.fixture(scope="module")
def packed(classifier):
    return {name: np.asarray(value) for name, value in classifier.preprocess(TEXTS).items()}


@pytest.fixture(scope="module")
def logits(classifier, packed):
    return classifier.predict_on_batch(packed)


def on_batch(task, *data):
    return task.test_on_batch(*data, return_dict=True)


@pytest.mark.parametrize("loss", LOSSES)
def test_all_forms_are_one(classifier, packed, logits, loss):
    compiled(classifier, loss)
    right = ONE_HOT if loss in CATEGORICAL[1:] else np.array(NUMBERS)
    expected = {
        "loss": pytest.approx(float(classifier.loss(right, logits)), rel=1e-4),
        "accuracy": pytest.approx(np.mean(logits.argmax(axis=1) == NUMBERS)),
    }
    column = np.array(NUMBERS)[:, np.newaxis]
    for labels in (NUMBERS, column, column.astype("float32"), ONE_HOT, ONE_HOT.astype("int64")):
        assert on_batch(classifier, packed, labels) == expected
        prepared = classifier.labels.prepare(np.array(labels))
        in_graph = classifier.labels.prepare_tensor(tf.constant(labels))
        assert in_graph.dtype == prepared.dtype and np.array_equal(in_graph, prepared)


@pytest.mark.parametrize("loss", LOSSES)
def test_soft_labels(classifier, packed, logits, loss):
    compiled(classifier, loss)
    if loss in CATEGORICAL:
        assert on_batch(classifier, packed, SOFT) == {
            "loss": pytest.approx(float(classifier.loss(SOFT, logits)), rel=1e-4),
            "accuracy": pytest.approx(np.mean(logits.argmax(axis=1) == NUMBERS)),
        }
        assert np.array_equal(classifier.labels.prepare_tensor(tf.constant(SOFT)), SOFT)
        return
    remedy = r"CategoricalCrossentropy\(from_logits=True\)"
    with pytest.raises(ValueError, match=rf"labels\[0\]=\[.*\] is soft.*{remedy}"):
        classifier.fit(TEXTS, SOFT)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"labels hold a soft one.*{remedy}"):
        classifier.labels.prepare_tensor(tf.constant(SOFT))


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTAINERS)
def test_every_container(classifier, logits, name):
    compiled(classifier, "smoothed")
    for labels, right in ((NUMBERS, ONE_HOT), (SOFT, SOFT)):
        actual = evaluated(classifier, *CONTAINERS[name](TEXTS, labels))
        assert actual == {
            "loss": pytest.approx(float(classifier.loss(right, logits)), rel=1e-4),
            "accuracy": pytest.approx(np.mean(logits.argmax(axis=1) == NUMBERS)),
        }


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.ones((2, 4)), r"shape \(2, 4\) and dtype float64, but num_classes=3.*\(B, 3\)"),
        (np.ones((2, 3, 1)), r"labels\[0\]=.* is neither one-hot nor soft"),
        (np.ones((2, 3)), r"labels\[0\]=\[1. 1. 1.\] is neither one-hot nor soft.*sum to 1"),
        ([[1, 0, 0], [2, -1, 0]], r"labels\[1\]=\[ 2. -1.  0.\] is neither"),
        ([[1, 0, 0], [0, 0, float("nan")]], r"labels\[1\]=.*nan.* is neither"),
        ([["a", "b", "c"]] * 2, r"labels has shape \(2, 3\).*num_classes=3"),
    ],
)
def test_what_is_no_label(classifier, labels, message):
    compiled(classifier)
    with pytest.raises(ValueError, match=message):
        classifier.fit(TEXTS[:2], labels)


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        (np.ones((2, 4)), ValueError, r"shape \(2, 4\).*num_classes=3"),
        (np.ones((2, 3)), tf.errors.InvalidArgumentError, "neither one-hot nor soft"),
        ([0, 3], tf.errors.InvalidArgumentError, "not a class: they count from 0 to 2"),
        ([0, -1], tf.errors.InvalidArgumentError, "not a class"),
        ([0.0, 0.5], tf.errors.InvalidArgumentError, "not a class"),
    ],
)
def test_what_is_no_label_in_a_dataset(classifier, labels, error, message):
    compiled(classifier)
    with pytest.raises(error, match=message):
        classifier.labels.prepare_tensor(tf.constant(labels))


def test_a_dataset_tells_what_is_wrong(classifier):
    compiled(classifier)
    with pytest.raises(tf.errors.InvalidArgumentError, match="neither one-hot nor soft"):
        classifier.fit(dataset(TEXTS, np.ones((8, 3))), verbose=0)


def test_names_in_a_column(make):
    task = make(class_names=["bad", "good"])
    names = [["good"]] * 4 + [["bad"]] * 4
    expected = evaluated(task, TEXTS, [1] * 4 + [0] * 4)
    assert evaluated(task, TEXTS, names) == pytest.approx(expected)
    assert task.labels.prepare_tensor(tf.constant(names)).numpy().tolist() == [1] * 4 + [0] * 4


def test_folders_of_texts(make, tmp_path):
    for number, text in enumerate(TEXTS):
        folder = tmp_path / "ab"[number % 2]
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.txt").write_text(text)
    task, actual = make(loss="smoothed", num_classes=2), []
    for mode in ("binary", "categorical"):
        data = keras.utils.text_dataset_from_directory(
            tmp_path, label_mode=mode, batch_size=8, verbose=False
        )
        actual.append(evaluated(task, data))
    assert actual[1] == pytest.approx(actual[0])


def test_as_many_rows_as_classes(make):
    task = make(num_classes=2, loss="categorical")
    right = np.eye(2)[task.predict(TEXTS, verbose=0).argmax(axis=1)]
    assert evaluated(task, dataset(TEXTS, right, 2))["accuracy"] == 1
    assert evaluated(task, dataset(TEXTS, 1 - right, 2))["accuracy"] == 0


def test_metrics_get_what_they_take(classifier):
    def several(labels):
        compiled(
            classifier,
            "categorical",
            metrics=[
                "acc",
                "sparse_categorical_accuracy",
                keras.metrics.sparse_top_k_categorical_accuracy,
                keras.metrics.CategoricalAccuracy(),
                keras.metrics.F1Score(average="macro"),
                metrics.MatthewsCorrelation(3),
                metrics.ExpectedCalibrationError(),
            ],
            weighted_metrics=["accuracy"],
        )
        actual = evaluated(classifier, TEXTS, labels)
        return {name: float(value) for name, value in actual.items() if name != "loss"}

    actual = several(NUMBERS)
    assert (
        len(actual) == 8 and actual["acc"] == actual["categorical_accuracy"] == actual["accuracy"]
    )
    assert several(ONE_HOT) == pytest.approx(actual)
    assert several(SOFT) == pytest.approx(actual)  # whose likeliest classes are the same


def test_accuracy_of_many_classes(make):
    task = make(class_names=["x", "y"], multi_label=True)
    labels = np.array([[1, 1], [0, 0]] * 4, "float32")
    expected = evaluated(task, TEXTS, labels)["accuracy"]
    compiled(task, metrics=["accuracy"])
    assert evaluated(task, TEXTS, labels)["accuracy"] == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"shape \(8,\), but num_classes=2"):
        task.labels.prepare_tensor(tf.constant(NUMBERS))


@pytest.mark.parametrize("loss", ["auto", "categorical"])
def test_class_weights_and_sample_weights(classifier, packed, logits, loss):
    compiled(classifier, loss)
    weights, own = {0: 0.5, 1: 2.0, 2: 1.0}, np.arange(8.0)

    def trained(labels, **more):
        return classifier.train_on_batch(packed, labels, class_weight=weights, **more)[0]

    of_class = np.array([0.5, 2.0, 1.0])
    expected = float(classifier.loss(SOFT, logits, own * (SOFT @ of_class)))
    assert trained(SOFT, sample_weight=own) == pytest.approx(expected, rel=1e-4)
    number = trained(NUMBERS)
    assert trained(ONE_HOT) == pytest.approx(number, rel=1e-4)
    for labels in (np.array(NUMBERS), SOFT):
        for given in (own, own[:, np.newaxis]):
            x, y, weight = weigh_classes(of_class.tolist(), packed, labels, given)
            assert x is packed and y.shape == labels.shape and weight.shape == (8,)


def test_balanced(classifier):
    for labels in (NUMBERS, ONE_HOT):
        labels = classifier.labels.prepare(np.array(labels))
        balanced = classifier.labels.class_weights("balanced", labels)
        assert balanced == pytest.approx([8 / 3 / 2, 8 / 3 / 3, 8 / 3 / 3])
    two = np.array([0, 2, 2, 2, 0, 2, 2, 2])
    assert classifier.labels.class_weights("balanced", two) == pytest.approx([2.0, 1.0, 2 / 3])


def test_balanced_of_the_rows_trained_on(make):
    task = make(class_names=["bad", "fine", "good"])
    x, y = TEXTS, ["good", "good", "good", "bad"] + ["bad"] * 4
    options = {"shuffle": False, "verbose": 0}
    balanced = task.fit(x, y, class_weight="balanced", validation_split=0.5, **options)
    weights = {"good": 2 / 3, "bad": 2.0}
    by_hand = task.train_on_batch(x[:4], y[:4], class_weight=weights)[0]
    assert balanced.history["loss"] == pytest.approx([by_hand])


@pytest.mark.parametrize(
    ("class_weight", "message"),
    [
        ("balance", r"class_weight='balance': pass a dict .*'balanced'"),
        ([1.0, 2.0, 1.0], r"class_weight=\[1.0, 2.0, 1.0\]: pass a dict"),
    ],
)
def test_what_is_no_class_weight(classifier, class_weight, message):
    compiled(classifier)
    with pytest.raises(ValueError, match=message):
        classifier.fit(TEXTS, NUMBERS, class_weight=class_weight)


def test_balanced_needs_labels_in_memory(classifier, make):
    compiled(classifier)
    message = "class_weight='balanced' counts labels before training.*lists or arrays"
    for data in (dataset(TEXTS, NUMBERS), iter([(TEXTS, NUMBERS)])):
        with pytest.raises(ValueError, match=message):
            classifier.fit(data, class_weight="balanced")
    with pytest.raises(ValueError, match=message):
        classifier.train_on_batch(TEXTS, NUMBERS, class_weight="balanced")
    with pytest.raises(ValueError, match="TextRegressor has none"):
        make(TextRegressor).fit(TEXTS, NUMBERS, class_weight="balanced")


def test_validation(classifier):
    compiled(classifier, "smoothed")
    expected = evaluated(classifier, TEXTS[4:], ONE_HOT[4:])
    for options in (
        {"validation_split": 0.5},
        {"validation_data": (TEXTS[4:], NUMBERS[4:])},
    ):
        history = classifier.fit(TEXTS, ONE_HOT, verbose=0, **options).history
        assert {k: history[f"val_{k}"][-1] for k in expected} == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("loss", "remedy"),
    [
        ("categorical_crossentropy", r"CategoricalCrossentropy\(from_logits=True\)"),
        (keras.losses.SparseCategoricalCrossentropy(), "SparseCategoricalCrossentropy"),
        (keras.losses.KLDivergence(), "CategoricalCrossentropy"),
    ],
)
def test_losses_of_probabilities(classifier, loss, remedy):
    with pytest.warns(UserWarning, match=f"takes probabilities.*loss=keras.losses.{remedy}"):
        compiled(classifier, loss=loss)


def test_unknown_losses_take_what_is_passed(classifier):
    seen = []

    def mine(labels, logits):
        seen.append(tuple(labels.shape))
        return keras.ops.sum(logits, axis=-1)

    compiled(classifier, mine)
    for labels in (NUMBERS, ONE_HOT):
        classifier.test_on_batch(TEXTS, labels)
    assert (8,) in seen and (8, 3) in seen


@pytest.mark.slow
def test_a_traced_step_of_parts_and_of_a_pair(make):
    """One run in a graph: numbers become one-hot in it, also in micro-batches."""
    tf.config.run_functions_eagerly(False)
    task = make(loss="smoothed", num_classes=3, symmetric=True)
    losses = []
    for options in ({}, {"micro_batch_size": 3}):
        compiled(task, "smoothed", run_eagerly=False, **options)
        history = task.fit((TEXTS, TEXTS[::-1]), NUMBERS, verbose=0, batch_size=8).history
        losses.append(history["loss"][0])
        assert set(history) == {"loss", "accuracy"}
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_other_tasks_of_classes(make, classifier):
    compiled(classifier)
    expected = evaluated(classifier, TEXTS, NUMBERS)
    ensemble = Ensemble([classifier, classifier])
    assert evaluated(ensemble, TEXTS, ONE_HOT) == pytest.approx(expected, rel=1e-4)

    several = MultiTask({"kind": compiled(classifier, "smoothed")})
    both = several.evaluate({"kind": (TEXTS, ONE_HOT)}, verbose=0)
    assert both["kind_accuracy"] == pytest.approx(expected["accuracy"])
    several.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    assert several.fit({"kind": (TEXTS, NUMBERS)}, verbose=0).history["kind_loss"]

    distiller = Distiller(make(num_classes=3, loss="smoothed"), compiled(classifier))
    distiller.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    losses = [
        distiller.fit(TEXTS, y, verbose=0, validation_data=(TEXTS, y)).history
        for y in (NUMBERS, ONE_HOT)
    ]
    assert {k: v[0] for k, v in losses[1].items()} == pytest.approx(
        {k: v[0] for k, v in losses[0].items()}, rel=1e-3
    )


def test_choices(make):
    task = make(MultipleChoice)
    x = {"text": tiny.GOOD, "choices": [["good", "bad", "dull"], ["a", "it"], ["was"], ["x", "y"]]}
    numbers, one_hot = [2, 1, 0, 0], np.eye(3)[[2, 1, 0, 0]]
    packed = task.preprocess(x)
    for loss in ("auto", "sparse", "categorical"):
        compiled(task, loss)
        expected = on_batch(task, x, numbers)
        for labels in (np.array(numbers)[:, np.newaxis], one_hot, one_hot.tolist()):
            assert on_batch(task, packed, labels) == pytest.approx(expected, rel=1e-4)
            prepared = task.labels.prepare(np.array(labels))
            assert np.array_equal(task.labels.prepare_tensor(tf.constant(labels)), prepared)
    with pytest.raises(
        ValueError, match=r"choices\[1\] has fewer choices than others, and the loss"
    ):
        compiled(task, "smoothed").fit(x, numbers)
    compiled(task)
    with pytest.raises(ValueError, match=r"labels has shape \(4, 2\), but there are 3 choices"):
        task.fit(x, one_hot[:, :2] + [[0, 1], [0, 0], [0, 0], [0, 0]])
    with pytest.raises(ValueError, match=r"labels\[3\]=.* is more than 0 for an empty choice"):
        task.fit(x, np.eye(3)[[2, 1, 0, 2]])
    with pytest.raises(ValueError, match=r"labels\[0\]=\[1. 1. 1.\] is neither"):
        task.fit(x, np.ones((4, 3)))


WORDS = [["the", "film"], ["great"], ["it", "was", "good"]]
OF_WORDS = [[1, 0], [-100], [2, 1, 0]]
VECTORS = [[[0.0] * 3 if n < 0 else np.eye(3)[n].tolist() for n in row] for row in OF_WORDS]


@pytest.mark.parametrize("loss", ["auto", "sparse", "categorical", "smoothed"])
def test_words(make, loss):
    task = make(TokenClassifier, loss, num_classes=3)
    packed, labels = task.preprocess_with_labels(
        task.columns(WORDS), task.labels.prepare(np.array(OF_WORDS, object))
    )
    logits, known = task.predict_on_batch(packed), labels.numpy() != -100
    form = np.eye(3)[labels.numpy()[known]] if loss in CATEGORICAL[1:] else labels.numpy()[known]
    mine = LOSSES["sparse" if loss == "auto" else loss]()
    expected = {
        "loss": pytest.approx(float(mine(form, logits[known])), rel=1e-4),
        "accuracy": pytest.approx(np.mean(logits[known].argmax(-1) == labels.numpy()[known])),
    }
    dense = tf.where(known[..., np.newaxis], tf.one_hot(labels, 3), 0.0).numpy()
    assert on_batch(task, packed, labels.numpy()) == expected
    assert on_batch(task, packed, dense) == expected
    for words in (OF_WORDS, VECTORS, [np.array(row) for row in VECTORS]):
        assert on_batch(task, WORDS, words) == expected
    in_graph = task.labels.prepare_tensor(tf.ragged.constant(VECTORS))
    assert in_graph.to_list() == task.labels.prepare(np.array(VECTORS, object)).to_list()
    weighted = [
        task.train_on_batch(WORDS, words, class_weight={1: 3.0})[0] for words in (OF_WORDS, VECTORS)
    ]
    assert weighted[1] == pytest.approx(weighted[0], rel=1e-4)
    for words in (OF_WORDS, VECTORS):  # of five words that count, two each are 0 and 1
        prepared = task.labels.prepare(np.array(words, object))
        assert task.labels.class_weights("balanced", prepared) == pytest.approx(
            [5 / 6, 5 / 6, 5 / 3]
        )


def test_words_in_a_dataset(make):
    task = make(TokenClassifier, "smoothed", num_classes=3)
    words = tf.ragged.constant(VECTORS, inner_shape=(3,))
    actual = evaluated(task, dataset(tf.ragged.constant(WORDS), words))
    assert actual == pytest.approx(on_batch(task, WORDS, OF_WORDS), rel=1e-4)


def test_numbers_of_words_in_a_dataset(make):
    task = make(TokenClassifier, num_classes=3)
    numbers = task.labels.prepare_tensor(tf.ragged.constant(OF_WORDS, tf.int64))
    assert numbers.to_list() == OF_WORDS and numbers.dtype == tf.int32
    with pytest.raises(tf.errors.InvalidArgumentError, match="not a class: they count from 0 to 2"):
        task.labels.prepare_tensor(tf.ragged.constant([[0, 3]]))
    with pytest.raises(ValueError, match=r"labels has shape \(1, 2, 4\), but num_classes=3"):
        task.labels.prepare_tensor(tf.ones((1, 2, 4)))


def test_soft_labels_of_words(make):
    soft = [[[0.7, 0.2, 0.1] for _ in row] for row in WORDS]
    task = make(TokenClassifier, "categorical", num_classes=3)
    packed = task.preprocess(task.columns(WORDS))
    logits = tf.nn.log_softmax(task.word_logits(WORDS).values).numpy()
    expected = float(np.mean(-logits @ [0.7, 0.2, 0.1]))
    assert on_batch(task, WORDS, soft)["loss"] == pytest.approx(expected, rel=1e-4)
    compiled(task)
    with pytest.raises(ValueError, match=r"labels\[0\]\[0\]=.* is soft.*CategoricalCrossentropy"):
        task.fit(WORDS, soft)
    with pytest.raises(ValueError, match=r"labels\[0\] has shape \(2, 2\), but num_classes=3"):
        task.fit(WORDS, [[row[:2] for row in rows] for rows in soft])
    with pytest.raises(ValueError, match=r"labels\[2\]\[1\]=\[0.7 0.7 0.1\] is neither"):
        task.fit(WORDS, [*soft[:2], [soft[2][0], [0.7, 0.7, 0.1], soft[2][2]]])
    crf = make(TokenClassifier, num_classes=3, crf=True)
    assert on_batch(crf, WORDS, VECTORS) == pytest.approx(on_batch(crf, WORDS, OF_WORDS))
    with pytest.raises(ValueError, match="is soft"):
        crf.fit(packed, np.full((3, packed["token_ids"].shape[1], 3), 1 / 3))


def test_numbers_in_a_column(make):
    task = make(TextRegressor)
    column = np.arange(8.0)[:, np.newaxis]
    expected = on_batch(task, TEXTS, np.arange(8.0))
    assert on_batch(task, TEXTS, column) == pytest.approx(expected, rel=1e-4)
    weighted = [on_batch(task, TEXTS, column, weight) for weight in (np.arange(8.0), column)]
    assert weighted[0] == pytest.approx(weighted[1]) and weighted[0] != pytest.approx(expected)
    for labels in (np.arange(8), column):
        assert np.array_equal(task.labels.prepare_tensor(tf.constant(labels)), column)
    with pytest.raises(ValueError, match=r"labels has shape \(8, 2\): pass one number per row"):
        task.labels.prepare_tensor(tf.ones((8, 2)))
    with pytest.raises(ValueError, match="labels are strings, and must be numbers"):
        task.labels.prepare_tensor(tf.constant(TEXTS))


@pytest.mark.parametrize(
    ("name", "now", "owner"),
    [
        *((name, now, TaskLabels) for name, now in sorted(LABEL_HOOKS.items())),
        *((name, now, Preprocessor) for name, now in sorted(TEXT_HOOKS.items())),
    ],
)
def test_what_would_not_be_called_is_refused(name, now, owner):
    with pytest.raises(TypeError, match=rf"Mine.{name} would not be called: .* Override {now} of"):
        type("Mine", (TextClassifier,), {name: lambda self, *labels: labels})
    assert hasattr(owner, now)
