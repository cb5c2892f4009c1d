"""Class numbers, names, one-hot and soft labels, in every container, with every loss."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_lm import metrics
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
    task.compile(loss=LOSSES[loss]() if isinstance(loss, str) else loss, **options)
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


@pytest.mark.parametrize("loss", LOSSES)
def test_all_forms_are_one(classifier, loss):
    compiled(classifier, loss)
    logits = classifier.predict(TEXTS, verbose=0)
    form = NUMBERS if loss in ("auto", "sparse", "masked") else ONE_HOT
    expected = float(classifier.loss(np.array(form), logits))
    right = np.mean(logits.argmax(axis=1) == NUMBERS)
    column = np.array(NUMBERS)[:, np.newaxis]
    for name, container in CONTAINERS.items():
        for labels in (NUMBERS, column, column.astype("float32"), ONE_HOT, ONE_HOT.astype("int64")):
            found = evaluated(classifier, *container(TEXTS, labels))
            # A generator's loss is the mean of its batches, which are alike here.
            assert found == {
                "loss": pytest.approx(expected, rel=1e-4),
                "accuracy": pytest.approx(right),
            }, name


@pytest.mark.parametrize("loss", LOSSES)
def test_soft_labels(classifier, loss):
    compiled(classifier, loss)
    if loss not in CATEGORICAL:
        remedy = r"CategoricalCrossentropy\(from_logits=True\)"
        with pytest.raises(ValueError, match=rf"labels\[0\]=\[.*\] is soft.*{remedy}"):
            classifier.fit(TEXTS, SOFT, verbose=0)
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"labels hold a soft.*{remedy}"):
            classifier.fit(dataset(TEXTS, SOFT), verbose=0)
        return
    logits = classifier.predict(TEXTS, verbose=0)
    expected = float(classifier.loss(SOFT, logits))
    right = np.mean(logits.argmax(axis=1) == NUMBERS)
    for container in CONTAINERS.values():
        found = evaluated(classifier, *container(TEXTS, SOFT))
        assert found == {
            "loss": pytest.approx(expected, rel=1e-4),
            "accuracy": pytest.approx(right),
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
        (np.ones((2, 4)), ValueError, r"shape \(None, 4\).*num_classes=3"),
        (np.ones((2, 3)), tf.errors.InvalidArgumentError, "neither one-hot nor soft"),
        ([0, 3], tf.errors.InvalidArgumentError, "no class: they count from 0 to 2"),
        ([0, -1], tf.errors.InvalidArgumentError, "no class"),
        ([0.0, 0.5], tf.errors.InvalidArgumentError, "no class"),
    ],
)
def test_what_is_no_label_in_a_dataset(classifier, labels, error, message):
    compiled(classifier)
    with pytest.raises(error, match=message):
        classifier.fit(dataset(TEXTS[:2], labels), verbose=0)


def test_names_in_a_column(make):
    task = make(class_names=["bad", "good"])
    names = [["good"]] * 4 + [["bad"]] * 4
    expected = evaluated(task, TEXTS, [1] * 4 + [0] * 4)
    assert evaluated(task, TEXTS, names) == pytest.approx(expected)
    assert evaluated(task, dataset(TEXTS, names)) == pytest.approx(expected)


def test_folders_of_texts(make, tmp_path):
    for number, text in enumerate(TEXTS):
        folder = tmp_path / "ab"[number % 2]
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.txt").write_text(text)
    for loss in ("auto", "smoothed"):
        task, found = make(loss=loss, num_classes=2), []
        for mode in ("int", "binary", "categorical"):
            data = keras.utils.text_dataset_from_directory(
                tmp_path, label_mode=mode, batch_size=8, verbose=False
            )
            found.append(evaluated(task, data))
        assert found[1] == pytest.approx(found[0]) and found[2] == pytest.approx(found[0])


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
        found = evaluated(classifier, TEXTS, labels)
        return {name: float(value) for name, value in found.items() if name != "loss"}

    found = several(NUMBERS)
    assert len(found) == 8 and found["acc"] == found["categorical_accuracy"] == found["accuracy"]
    assert several(ONE_HOT) == pytest.approx(found)
    assert several(SOFT) == pytest.approx(found)  # whose likeliest classes are the same


def test_accuracy_of_many_classes(make):
    task = make(class_names=["x", "y"], multi_label=True)
    labels = np.array([[1, 1], [0, 0]] * 4, "float32")
    expected = evaluated(task, TEXTS, labels)["accuracy"]
    compiled(task, metrics=["accuracy"])
    assert evaluated(task, TEXTS, labels)["accuracy"] == pytest.approx(expected)
    assert evaluated(task, dataset(TEXTS, labels))["accuracy"] == pytest.approx(expected)
    with pytest.raises(ValueError, match=r"shape \(None,\), but num_classes=2"):
        task.fit(dataset(TEXTS, NUMBERS))


def test_class_weights_and_sample_weights(classifier):
    weights, own = {0: 0.5, 1: 2.0, 2: 1.0}, np.arange(8.0)
    for loss in ("auto", "categorical"):
        compiled(classifier, loss)
        options = {"shuffle": False, "verbose": 0, "batch_size": 8, "group_by_length": False}

        def fitted(*data, **more):
            return classifier.fit(*data, **options | more).history["loss"][0]  # noqa: B023

        logits = classifier.predict(TEXTS, verbose=0)
        of_class = np.array([0.5, 2.0, 1.0])
        expected = float(classifier.loss(np.array(SOFT), logits, own * (SOFT @ of_class)))
        soft = fitted(TEXTS, SOFT, class_weight=weights, sample_weight=own)
        assert soft == pytest.approx(expected, rel=1e-4)
        number = fitted(TEXTS, NUMBERS, class_weight=weights, sample_weight=own)
        assert fitted(TEXTS, ONE_HOT, class_weight=weights, sample_weight=own) == pytest.approx(
            number, rel=1e-4
        )
        batched = dataset(TEXTS, ONE_HOT, 8)
        assert fitted(batched, class_weight=weights) == pytest.approx(
            fitted(TEXTS, NUMBERS, class_weight=weights), rel=1e-4
        )
        by_hand = {0: 8 / 3 / 2, 1: 8 / 3 / 3, 2: 8 / 3 / 3}
        expected = fitted(TEXTS, NUMBERS, class_weight=by_hand)
        for labels in (NUMBERS, ONE_HOT, ONE_HOT.tolist()):
            balanced = fitted(TEXTS, labels, class_weight="balanced")
            assert balanced == pytest.approx(expected, rel=1e-4)


def test_balanced_of_the_rows_trained_on(make):
    task = make(class_names=["bad", "fine", "good"])
    x, y = TEXTS, ["good", "good", "good", "bad"] + ["bad"] * 4
    options = {"shuffle": False, "verbose": 0}
    balanced = task.fit(x, y, class_weight="balanced", validation_split=0.5, **options)
    by_hand = task.fit(x[:4], y[:4], class_weight={"good": 2 / 3, "bad": 2.0}, **options)
    assert balanced.history["loss"] == pytest.approx(by_hand.history["loss"])


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
        {"validation_data": dataset(TEXTS[4:], ONE_HOT[4:])},
    ):
        history = classifier.fit(TEXTS, ONE_HOT, verbose=0, **options).history
        assert {k: history[f"val_{k}"][-1] for k in expected} == pytest.approx(expected, rel=1e-4)
    on_batch = [
        classifier.test_on_batch(TEXTS[4:], labels, return_dict=True)["loss"]
        for labels in (ONE_HOT[4:], NUMBERS[4:])
    ]
    assert on_batch == pytest.approx([expected["loss"]] * 2, rel=1e-4)


def test_unknown_losses_take_what_is_passed(classifier):
    seen = []

    def mine(labels, logits):
        seen.append(tuple(labels.shape))
        return keras.ops.sum(logits, axis=-1)

    compiled(classifier, mine)
    for labels in (NUMBERS, ONE_HOT):
        classifier.test_on_batch(TEXTS, labels)
    assert (8,) in seen and (8, 3) in seen


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
    padded = [row + [""] * (3 - len(row)) for row in x["choices"]]
    batches = tf.data.Dataset.from_tensor_slices(x | {"choices": padded})

    def batched(labels):
        return tf.data.Dataset.zip(batches, tf.data.Dataset.from_tensor_slices(labels)).batch(4)

    for loss in ("auto", "sparse", "categorical"):
        compiled(task, loss)
        expected = evaluated(task, x, numbers)
        for labels in (np.array(numbers)[:, np.newaxis], one_hot, one_hot.tolist()):
            assert evaluated(task, x, labels) == pytest.approx(expected, rel=1e-4)
            assert evaluated(task, batched(labels)) == pytest.approx(expected, rel=1e-4)
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
        task.columns(WORDS), task.prepare_labels(np.array(OF_WORDS, object))
    )
    logits, known = task.predict_on_batch(packed), labels.numpy() != -100
    form = np.eye(3)[labels.numpy()[known]] if loss in CATEGORICAL[1:] else labels.numpy()[known]
    mine = LOSSES["sparse" if loss == "auto" else loss]()
    expected = {
        "loss": pytest.approx(float(mine(form, logits[known])), rel=1e-4),
        "accuracy": pytest.approx(np.mean(logits[known].argmax(-1) == labels.numpy()[known])),
    }
    ragged = tf.ragged.constant(WORDS)
    for words in (OF_WORDS, VECTORS, [np.array(row) for row in VECTORS]):
        assert evaluated(task, WORDS, words) == expected
    for words in (tf.ragged.constant(OF_WORDS), tf.ragged.constant(VECTORS, inner_shape=(3,))):
        assert evaluated(task, dataset(ragged, words)) == expected
    dense = tf.where(known[..., np.newaxis], tf.one_hot(labels, 3), 0.0).numpy()
    assert evaluated(task, packed, labels.numpy()) == expected
    assert evaluated(task, packed, dense) == expected
    weights = {"class_weight": {1: 3.0}, "verbose": 0, "shuffle": False}
    weighted = [
        task.fit(WORDS, words, **weights).history["loss"][0] for words in (OF_WORDS, VECTORS)
    ]
    assert weighted[1] == pytest.approx(weighted[0], rel=1e-4)
    balanced = [
        task.fit(WORDS, words, **weights | {"class_weight": "balanced"}).history["loss"][0]
        for words in (OF_WORDS, VECTORS)
    ]
    assert balanced[1] == pytest.approx(balanced[0], rel=1e-4)


def test_soft_labels_of_words(make):
    soft = [[[0.7, 0.2, 0.1] for _ in row] for row in WORDS]
    task = make(TokenClassifier, "categorical", num_classes=3)
    packed = task.preprocess(task.columns(WORDS))
    logits = tf.nn.log_softmax(task.word_logits(WORDS).values).numpy()
    expected = float(np.mean(-logits @ [0.7, 0.2, 0.1]))
    assert evaluated(task, WORDS, soft)["loss"] == pytest.approx(expected, rel=1e-4)
    compiled(task)
    with pytest.raises(ValueError, match=r"labels\[0\]\[0\]=.* is soft.*CategoricalCrossentropy"):
        task.fit(WORDS, soft)
    with pytest.raises(ValueError, match=r"labels\[0\] has shape \(2, 2\), but num_classes=3"):
        task.fit(WORDS, [[row[:2] for row in rows] for rows in soft])
    with pytest.raises(ValueError, match=r"labels\[2\]\[1\]=\[0.7 0.7 0.1\] is neither"):
        task.fit(WORDS, [*soft[:2], [soft[2][0], [0.7, 0.7, 0.1], soft[2][2]]])
    crf = make(TokenClassifier, num_classes=3, crf=True)
    assert evaluated(crf, WORDS, VECTORS) == pytest.approx(evaluated(crf, WORDS, OF_WORDS))
    with pytest.raises(ValueError, match="is soft"):
        crf.fit(packed, np.full((3, packed["token_ids"].shape[1], 3), 1 / 3))


def test_numbers_in_a_column(make):
    task = make(TextRegressor)
    column = np.arange(8.0)[:, np.newaxis]
    expected = evaluated(task, TEXTS, np.arange(8.0))
    for container in CONTAINERS.values():
        assert evaluated(task, *container(TEXTS, column)) == pytest.approx(expected, rel=1e-4)
    weighted = [
        task.evaluate(TEXTS, column, sample_weight=weight, verbose=0)
        for weight in (np.arange(8.0), column)
    ]
    assert weighted[0] == pytest.approx(weighted[1])
    with pytest.raises(ValueError, match=r"labels has shape \(None, 2\): pass one number per row"):
        task.fit(dataset(TEXTS, np.ones((8, 2))))
    with pytest.raises(ValueError, match="labels are strings, and must be numbers"):
        task.fit(dataset(TEXTS, TEXTS))
