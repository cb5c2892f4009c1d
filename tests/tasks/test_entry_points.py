"""Every entry point of a task × every form of text: all give the same as packed dicts."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models.backbone import are_random
from keras_lm.tasks import (
    FeatureExtractor,
    MaskedLM,
    TextClassifier,
    TextRegressor,
    TokenClassifier,
)
from keras_lm.training import AdamW, WarmupLinearDecay

TEXTS = ["the film was good", "awful", "i loved it !", "a very dull cast and story ."]
PAIRS = ["so", "it is a film", "nice", "not"]
LABELS = [1, 0, 1, 0]


@pytest.fixture(scope="module")
def traced_classifier(make):
    return make(TextClassifier, num_classes=2, in_graph=True)


@pytest.fixture
def reader(traced_classifier):
    """A classifier for tests that change no more than `text_pair`; it has seen no data yet."""
    traced_classifier.text_pair = None
    return traced_classifier


def dataset(*parts):
    return tf.data.Dataset.from_tensor_slices(parts[0] if len(parts) == 1 else parts).batch(2)


def frame(column):
    return pytest.importorskip("pandas").Series(column, index=range(7, 7 + len(column)))


def losses_of(logits):
    labels = np.array(LABELS)
    return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True).numpy()


SINGLE = {
    "list": list,
    "objects": lambda x: np.array(x, dtype=object),
    "array": np.array,
    "bytes": lambda x: [text.encode() for text in x],
    "bytes array": lambda x: np.array(x, dtype="S"),
    "tensor": tf.constant,
    "dict": lambda x: {"text": x},
    "series": frame,
    "dataset": dataset,
    "dataset of dicts": lambda x: dataset({"text": x}),
    "generator": lambda x: (x[i : i + 1] for i in range(len(x))),
}
PAIR = {
    "tuple": lambda a, b: (a, b),
    "tuple of arrays": lambda a, b: (np.array(a), np.array(b, dtype=object)),
    "list of pairs": lambda a, b: list(zip(a, b)),
    "list of lists": lambda a, b: [list(row) for row in zip(a, b)],
    "dict": lambda a, b: {"text": a, "text_pair": b},
    "series": lambda a, b: (frame(a), frame(b)),
    "dataset of dicts": lambda a, b: dataset({"text": a, "text_pair": b}),
    "dataset of tuples": lambda a, b: tf.data.Dataset.from_tensors(((a, b),)),
}


def forms(kinds):
    """Forms of data, of which `predict` makes batches in a graph if they differ in that."""
    in_graph = ("list", "tuple", "generator", *(kind for kind in kinds if "dataset" in kind))
    return [
        kind if kind in in_graph else pytest.param(kind, marks=pytest.mark.eager) for kind in kinds
    ]


def logits_of(task, x):
    """What `predict` returns; all data in memory become what a list becomes before any batch."""
    if tf.config.functions_run_eagerly():
        return task.predict_on_batch(x)
    return task.predict(x, batch_size=2, verbose=0)


@pytest.mark.slow
@pytest.mark.parametrize("form", forms(SINGLE))
def test_predict_takes_every_form_of_text(reader, form):
    expected = reader(reader.preprocess({"text": tf.constant(TEXTS)}))
    actual = logits_of(reader, SINGLE[form](TEXTS))
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert actual.dtype == "float32"


@pytest.mark.parametrize("form", forms(PAIR))
def test_predict_takes_every_form_of_pair(reader, form):
    columns = {"text": tf.constant(TEXTS), "text_pair": tf.constant(PAIRS)}
    expected = reader(reader.preprocess(columns))
    actual = logits_of(reader, PAIR[form](TEXTS, PAIRS))
    np.testing.assert_allclose(actual, expected, atol=1e-5)
    assert reader.text_pair is True


@pytest.mark.eager
@pytest.mark.parametrize("keys", [["token_ids"], ["token_ids", "padding_mask", "segment_ids"]])
def test_packed_dicts_pass_through(classifier, keys):
    packed = classifier.preprocess({"text": tf.constant(["a film", "good film"])})
    packed = {key: packed[key] for key in keys}
    expected = classifier(packed)
    arrays = {key: value.numpy() for key, value in packed.items()}
    np.testing.assert_allclose(classifier.predict(arrays, verbose=0), expected, atol=1e-5)
    np.testing.assert_allclose(classifier.predict(dataset(arrays), verbose=0), expected, atol=1e-5)
    np.testing.assert_allclose(classifier.predict_on_batch(arrays), expected, atol=1e-5)
    history = classifier.fit(arrays, [0, 1], verbose=0).history
    assert np.isfinite(history["loss"][0])


@pytest.mark.eager
def test_every_entry_point_gives_the_same_loss(classifier):
    weights = [1.0, 0.5, 2.0, 0.0]
    logits = classifier(classifier.preprocess({"text": tf.constant(TEXTS)}))
    losses = losses_of(logits)
    plain, weighted = losses.mean(), (losses * weights).mean()
    options = {"return_dict": True, "verbose": 0}
    classifier.compile(optimizer=keras.optimizers.SGD(0.0), run_eagerly=True)

    def close(result, expected):
        assert result["loss"] == pytest.approx(expected, rel=1e-4)

    close(classifier.evaluate(TEXTS, LABELS, **options), plain)
    close(classifier.evaluate(TEXTS, LABELS, sample_weight=weights, **options), weighted)
    close(classifier.evaluate(dataset(TEXTS, LABELS), **options), plain)
    close(classifier.evaluate(dataset(TEXTS, LABELS, weights), **options), weighted)
    close(classifier.test_on_batch(TEXTS, LABELS, return_dict=True), plain)
    close(classifier.test_on_batch(TEXTS, LABELS, weights, return_dict=True), weighted)
    close(classifier.train_on_batch(TEXTS, LABELS, return_dict=True), plain)
    close(
        classifier.train_on_batch(TEXTS, LABELS, class_weight={0: 0.0, 1: 2.0}, return_dict=True),
        (losses * [2, 0, 2, 0]).mean(),
    )
    generator = ((TEXTS[i : i + 2], LABELS[i : i + 2]) for i in (0, 2))
    close(classifier.evaluate(generator, **options), plain)

    def fitted(*data, **options):
        return {"loss": classifier.fit(*data, verbose=0, **options).history["loss"][0]}

    close(fitted(TEXTS, LABELS, batch_size=2), plain)
    close(fitted(TEXTS, LABELS, sample_weight=weights, batch_size=2), weighted)
    close(fitted(TEXTS, LABELS, class_weight={0: 0.0, 1: 2.0}), (losses * [2, 0, 2, 0]).mean())
    close(fitted(dataset(TEXTS, LABELS)), plain)
    close(fitted(dataset(TEXTS, LABELS, weights)), weighted)
    np.testing.assert_allclose(classifier.predict_on_batch(TEXTS), logits, atol=1e-5)


@pytest.mark.eager
@pytest.mark.parametrize(
    "validation",
    [
        lambda: (TEXTS, LABELS),
        lambda: [TEXTS, LABELS],
        lambda: (TEXTS, LABELS, [1.0] * 4),
        lambda: dataset(TEXTS, LABELS),
        lambda: ((TEXTS[i : i + 1], LABELS[i : i + 1]) for i in range(4)),
    ],
)
def test_validation_data(classifier, validation):
    classifier.compile(optimizer=keras.optimizers.SGD(0.0), run_eagerly=True)
    expected = losses_of(classifier(classifier.preprocess(TEXTS))).mean()
    history = classifier.fit(
        TEXTS, LABELS, validation_data=validation(), validation_batch_size=1, verbose=0
    ).history
    assert history["val_loss"][0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.eager
@pytest.mark.parametrize(
    "x",
    [TEXTS, (TEXTS, PAIRS), {"text": TEXTS, "text_pair": PAIRS}, list(zip(TEXTS, PAIRS))],
    ids=["list", "tuple", "dict", "pairs"],
)
def test_validation_split_holds_out_the_last_rows(classifier, x):
    classifier.compile(optimizer=keras.optimizers.SGD(0.0), run_eagerly=True)
    history = classifier.fit(x, tuple(LABELS), validation_split=0.25, verbose=0).history
    columns = {"text": tf.constant(TEXTS)}
    if x is not TEXTS:
        columns["text_pair"] = tf.constant(PAIRS)
    logits = classifier(classifier.preprocess(columns))
    losses = losses_of(logits)
    assert history["loss"][0] == pytest.approx(losses[:3].mean(), rel=1e-4)
    assert history["val_loss"][0] == pytest.approx(losses[3], rel=1e-4)


@pytest.mark.eager
def test_validation_split_of_a_series_with_weights(classifier):
    history = classifier.fit(
        frame(TEXTS), frame(LABELS), sample_weight=frame([1.0] * 4), validation_split=0.5, verbose=0
    ).history
    assert np.isfinite(history["val_loss"][0])


@pytest.mark.eager
@pytest.mark.parametrize("x", [TEXTS, (TEXTS, PAIRS)])
def test_validation_split_without_labels(make, x):
    history = make(MaskedLM).fit(x, validation_split=0.5, verbose=0).history
    assert np.isfinite(history["val_loss"][0])


@pytest.mark.eager
@pytest.mark.parametrize("data", [TEXTS, (TEXTS,)], ids=["list", "tuple"])
def test_validation_data_without_labels(make, data):
    task = make(MaskedLM)
    history = task.fit(TEXTS, validation_data=data, verbose=0).history
    assert np.isfinite(history["val_loss"][0])


@pytest.mark.eager
def test_callbacks_see_logs(classifier):
    seen = []
    callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs))
    classifier.fit(TEXTS, LABELS, epochs=2, callbacks=[callback], verbose=0)
    assert [set(logs) for logs in seen] == [{"loss", "accuracy"}] * 2


@pytest.mark.eager
def test_generators_may_vary_in_width_at_any_time(classifier):
    def batches():
        for text in ["a", "good", "a very dull cast and story .", "the film"] * 2:
            yield [text], [1]

    history = classifier.fit(batches(), epochs=2, steps_per_epoch=4, verbose=0).history
    assert len(history["loss"]) == 2
    assert np.isfinite(history["loss"]).all()


@pytest.mark.parametrize(
    ("cls", "form"),
    [
        (MaskedLM, "list"),
        (MaskedLM, "dataset"),
        (MaskedLM, "generator"),
        (FeatureExtractor, "list"),
        pytest.param(FeatureExtractor, "dataset", marks=pytest.mark.thorough),
        pytest.param(FeatureExtractor, "generator", marks=pytest.mark.thorough),
    ],
)
def test_sequences_of_different_widths_are_padded_alike(make, cls, form):
    task = make(cls, **({"pooling": "none"} if cls is FeatureExtractor else {}))
    packed = task.preprocess({"text": tf.constant(TEXTS)})
    expected, real = task(packed).numpy(), packed["padding_mask"].numpy() == 1
    actual = task.predict(SINGLE[form](TEXTS), batch_size=1, verbose=0)
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual[real], expected[real], atol=1e-5)


@pytest.mark.slow
def test_packed_rows_without_a_mask_stay_real_when_widened(make):
    task = make(MaskedLM)
    rows = [np.array([[2, 7, 3]], "int32"), np.array([[2, 7, 8, 9, 3]], "int32")]
    data = tf.data.Dataset.from_generator(
        lambda: ({"token_ids": row} for row in rows),
        output_signature={"token_ids": tf.TensorSpec([None, None], tf.int32)},
    )
    actual = task.predict(data, verbose=0)
    for row, logits in zip(rows, actual):
        width = row.shape[1]
        np.testing.assert_allclose(logits[:width], task({"token_ids": row})[0], atol=1e-5)


@pytest.mark.eager
def test_predict_with_mask_positions(make):
    task = make(MaskedLM)
    packed = task.preprocess({"text": tf.constant(TEXTS)})
    packed["mask_positions"] = tf.constant([[1, 2], [1, 0], [3, 1], [0, 0]])
    arrays = {key: value.numpy() for key, value in packed.items()}
    actual = task.predict(arrays, batch_size=2, verbose=0)
    assert actual.shape[:2] == (4, 2)
    np.testing.assert_allclose(actual, task(packed), atol=1e-5)


@pytest.mark.eager
def test_predict_stops_after_steps(make):
    task = make(MaskedLM)
    endless = dataset(TEXTS).repeat()
    assert len(task.predict(endless, steps=2, verbose=0)) == 4


@pytest.mark.eager
def test_one_text_and_no_text_among_others(reader):
    assert reader.predict(["good"], verbose=0).shape == (1, 2)
    assert np.isfinite(reader.predict(["", "good", "   ", "\x00", "日本"], verbose=0)).all()


@pytest.mark.eager
def test_longer_texts_are_truncated(make):
    task = make(TextClassifier, num_classes=2, sequence_length=5)
    logits = task.predict(["the film was", "the film was good and fine"], verbose=0)
    np.testing.assert_allclose(logits[0], logits[1], atol=1e-6)


@pytest.mark.eager
def test_default_metrics_are_those_that_users_report(make):
    tagger = make(TokenClassifier, class_names=["O", "B-X", "I-X"])
    logs = tagger.fit([["a", "film"], ["good"]], [["O", "B-X"], ["O"]], verbose=0).history
    assert {"accuracy", "entity_f1"} <= set(logs)
    words = make(TokenClassifier, class_names=["noun", "verb"])  # which mark no entities
    assert [metric.name for metric in words.default_metrics()] == ["accuracy"]
    several = make(TextClassifier, class_names=["x", "y", "z"], multi_label=True)
    texts, labels = ["a film", "good", "the film"], [["x"], ["y", "z"], []]
    measured = several.evaluate(texts, labels, verbose=0, return_dict=True)
    right = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0]])
    actual = several.predict(texts, verbose=0) > 0
    expected = 2 * (right * actual).sum() / max(right.sum() + actual.sum(), 1)
    assert measured["micro_f1"] == pytest.approx(expected)


@pytest.mark.eager
def test_fit_tells_whether_texts_are_pairs(classifier):
    assert classifier.text_pair is None
    classifier.predict(["good"], verbose=0)
    classifier.fit((TEXTS, PAIRS), LABELS, verbose=0)
    assert classifier.text_pair is True
    classifier.predict(["good"], verbose=0)
    assert classifier.text_pair is True


@pytest.mark.eager
def test_pairs_for_a_task_of_single_texts_are_warned_of(classifier):
    pairs = {"text": ["a film"], "text_pair": ["a song"]}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*text_pair")
        classifier.classify(pairs)  # what it was trained on is not known
        classifier.fit(["a film", "a song"], [0, 1], verbose=0)
        classifier.classify(["a film"])
    for ask in (classifier.classify, lambda x: classifier.predict(x, verbose=0)):
        with pytest.warns(UserWarning, match="was made for single texts, or trained on them"):
            ask(pairs)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*text_pair")
        classifier.fit(pairs, [1], verbose=0)
        classifier.classify(pairs)


def test_a_stated_pair_stays_as_stated(make):
    task = make(TextClassifier, num_classes=2, text_pair=True)
    task.fit(TEXTS, LABELS, verbose=0)
    assert task.text_pair is True


# === The schedule ===


@pytest.fixture
def learner(make, make_backbone):
    """A classifier of which only the head is trained: its steps are quick, its rates the same."""
    backbone = make_backbone()
    backbone.trainable = False
    return make(TextClassifier, backbone, num_classes=2)


def schedule_of(task):
    return task.optimizer._learning_rate


class Rates(keras.callbacks.Callback):
    """The learning rate before every step."""

    def __init__(self):
        super().__init__()
        self.rates = []

    def on_train_batch_begin(self, batch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate))


def rates(task, *data, **options):
    callback = Rates()
    task.fit(*data, verbose=0, callbacks=[callback], **options)
    return callback.rates


@pytest.mark.slow
@pytest.mark.eager
def test_fit_lays_the_schedule_over_its_steps(learner):
    expected = [float(WarmupLinearDecay(1e-3, total_steps=6)(step)) for step in range(6)]
    for _ in range(2):  # a second fit starts anew
        actual = rates(learner, TEXTS, LABELS, batch_size=2, epochs=3)
        np.testing.assert_allclose(actual, expected, rtol=1e-5)
    resumed = rates(learner, TEXTS, LABELS, batch_size=2, epochs=3, initial_epoch=1)
    np.testing.assert_allclose(resumed, expected[2:], rtol=1e-5)
    endless = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(1).repeat()
    actual = rates(learner, endless, epochs=2, steps_per_epoch=3)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_the_weights_follow_the_planned_rate_in_each_fit(make):
    """What is traced into the train step, once, must be the numbers of this very fit."""
    task = make(TextClassifier, num_classes=2, in_graph=True)
    task.compile(optimizer=AdamW(1e-3, weight_decay=0.0))
    traced = []

    def step(data):
        traced.append(data)
        return TextClassifier.train_step(task, data)

    task.train_step = step
    for epochs in (1, 3):
        before = task.backbone.get_weights()[0]
        task.fit(TEXTS, LABELS, batch_size=1, epochs=epochs, verbose=0)
        assert np.abs(task.backbone.get_weights()[0] - before).max() > 1e-4
    assert len(traced) == 1


@pytest.mark.slow
def test_an_unknown_length_holds_the_peak(classifier):
    classifier.fit(TEXTS, LABELS, verbose=0)
    generator = ((TEXTS[i : i + 1], LABELS[i : i + 1]) for i in range(3))
    np.testing.assert_allclose(rates(classifier, generator)[:3], [1e-3] * 3)
    classifier.fit(TEXTS, LABELS, verbose=0)
    before = classifier.backbone.get_weights()[0]
    classifier.train_on_batch(TEXTS, LABELS)  # after the end of the schedule it would not learn
    assert (classifier.backbone.get_weights()[0] != before).any()


@pytest.mark.eager
def test_gradient_accumulation_counts_as_the_schedule_does(learner):
    learner.compile(optimizer=AdamW(5e-5, gradient_accumulation_steps=2), run_eagerly=True)
    for _ in range(2):
        actual = rates(learner, TEXTS, LABELS, batch_size=1, epochs=1)
        expected = [float(WarmupLinearDecay(5e-5, total_steps=4)(step)) for step in range(4)]
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.eager
def test_the_users_own_schedule_and_optimizer_stay(learner):
    own = WarmupLinearDecay(1e-3, total_steps=100)
    learner.compile(optimizer=AdamW(own), run_eagerly=True)
    learner.fit(TEXTS, LABELS, verbose=0)
    assert schedule_of(learner) is own
    assert (own.start, own.total_steps) == (0, 100)
    learner.compile(optimizer=keras.optimizers.SGD(0.5), run_eagerly=True)
    assert rates(learner, TEXTS, LABELS) == [0.5]


def test_compile_keeps_defaults_for_what_is_left_out(make):
    task = make(TextRegressor)
    task.compile(loss="mean_absolute_error", metrics=["mean_squared_error"])
    assert isinstance(task.optimizer, AdamW)
    result = task.evaluate(["a", "good"], [1.0, 2.0], return_dict=True, verbose=0)
    assert set(result) == {"loss", "mean_squared_error"}


# === What people have at hand ===


@pytest.mark.eager
def test_data_frames_are_read_by_column_names(make):
    import pandas

    task = make(TextClassifier, class_names=["bad", "good"])
    columns = {"id": [7, 8], "label": ["good", "bad"], "text": ["good film", "bad"]}
    frame = pandas.DataFrame(columns)
    expected = task.predict_on_batch(columns["text"])
    np.testing.assert_allclose(task.predict(frame, verbose=0), expected, atol=1e-6)
    for x in (frame, frame[["text"]], frame["text"]):
        np.testing.assert_array_equal(task.predict_on_batch(x), expected)
    task.fit(frame, frame["label"], validation_split=0.5, verbose=0)
    pairs = frame.rename(columns={"text": "text_pair"}).assign(text=["a", "the"])
    np.testing.assert_array_equal(
        task.predict_on_batch(pairs), task.predict_on_batch((["a", "the"], columns["text"]))
    )
    with pytest.raises(
        ValueError, match=r"columns \['id', 'label', 'review'\], and 'text' is missing"
    ):
        task.predict(frame.rename(columns={"text": "review"}))


@pytest.mark.slow
@pytest.mark.eager
def test_class_weights_go_by_name(make):
    task = make(TextClassifier, class_names=["bad", "good"])
    x, y = ["a", "film", "good", "cast"], ["good", "bad", "bad", "bad"]

    def loss(weights):
        task.compile(optimizer=keras.optimizers.SGD(0.0), run_eagerly=True)
        return task.fit(x, y, class_weight=weights, shuffle=False, verbose=0).history["loss"]

    weighted = loss({"good": 3})
    assert weighted == pytest.approx(loss({b"bad": 1, 1: 3.0}))
    assert weighted != pytest.approx(loss(None))
    for wrong in ("goood", 2):
        with pytest.raises(ValueError, match=f"class_weight has the key {wrong!r}"):
            loss({wrong: 1.0})
    x, weights = x[:2], {"good": 3.0}
    by_hand = task.train_on_batch(x, y[:2], np.array([0.0, 1.0]), class_weight=weights)[0]
    without = task.train_on_batch(x, y[:2], np.array([0.0, 1.0]))[0]
    assert by_hand == pytest.approx(without)  # the first alone is good
    with pytest.raises(ValueError, match="labels are missing, which TextClassifier compares with"):
        task.train_on_batch(x, class_weight=weights)
    several = make(TextClassifier, class_names=["x", "y"], multi_label=True)
    with pytest.raises(ValueError, match=r"class_weight .* pass sample_weight"):
        several.fit(["a"], [["x"]], class_weight={"x": 2.0})
    with pytest.raises(ValueError, match="TextRegressor has none: pass sample_weight"):
        make(TextRegressor).fit(["a"], [1.0], class_weight={0: 2.0})


def test_preprocess_takes_what_predict_takes(make):
    task = make(TextClassifier, num_classes=2)
    expected = task.preprocess({"text": tf.constant(["a film", "good"])})
    for x in (["a film", "good"], np.array(["a film", "good"]), {"text": ["a film", "good"]}):
        packed = task.preprocess(x)
        assert all((packed[name].numpy() == expected[name].numpy()).all() for name in expected)
    with pytest.raises(ValueError, match="single example"):
        task.preprocess("a film")


@pytest.mark.eager
def test_keras_metrics_fit_the_outputs(make, tmp_path):
    task = make(TextClassifier, class_names=["bad", "good"])
    x, y = ["a", "film", "good", "cast"], [1, 0, 0, 1]
    metrics = [
        "accuracy",
        "auc",
        keras.metrics.F1Score(average="macro"),
        keras.metrics.Precision(class_id=1, name="precision"),
    ]
    task.compile(
        metrics=metrics, weighted_metrics=[keras.metrics.Recall(name="recall")], run_eagerly=True
    )
    actual = task.evaluate(x, y, sample_weight=[1, 1, 0, 1], verbose=0, return_dict=True)
    logits = task.predict(x, verbose=0)
    answers, hot = np.eye(2)[logits.argmax(-1)], np.eye(2)[y]
    right = (answers * hot).sum(0)
    expected = {
        "accuracy": (answers * hot).sum() / 4,
        "f1_score": np.mean(2 * right / (answers.sum(0) + hot.sum(0))),
        "precision": right[1] / max(answers[:, 1].sum(), 1),
        "recall": (answers * hot)[[0, 1, 3]].sum() / 3,
    }
    assert {name: actual[name] for name in expected} == pytest.approx(expected, abs=1e-5)
    assert 0 <= actual["auc"] <= 1
    task.save(tmp_path / "task.keras")
    copy = keras.saving.load_model(tmp_path / "task.keras")
    again = copy.evaluate(x, y, sample_weight=[1, 1, 0, 1], verbose=0, return_dict=True)
    assert again == pytest.approx(actual, abs=1e-5)


@pytest.mark.parametrize(
    ("width", "of_random", "rate"),
    [(16, 1e-3, 3e-4), (384, 2.83e-4, 2e-4), (768, 1e-4, 5e-5)],
)
def test_default_rate_follows_the_width(make, make_backbone, width, of_random, rate):
    backbone = make_backbone(hidden_dim=width)

    def peak():
        return make(TextClassifier, backbone, num_classes=2).optimizer._learning_rate.peak

    assert peak() == pytest.approx(of_random, rel=1e-3)
    backbone.set_weights([weight + 0.01 for weight in backbone.get_weights()])
    assert peak() == pytest.approx(rate)


def test_default_rate_is_that_of_the_weights(make, texts, labels, tmp_path):
    """Chosen after they are loaded; training makes them others, and nothing else does."""
    task = make(TextClassifier, num_classes=2)
    assert are_random(task.backbone.weights)
    task.save_to_preset(tmp_path / "random")
    again = TextClassifier.from_preset(tmp_path / "random")
    assert again.optimizer._learning_rate.peak == task.optimizer._learning_rate.peak == 1e-3
    task.fit(texts, labels, epochs=1, verbose=0)
    assert not are_random(task.backbone.weights)
    task.save_to_preset(tmp_path / "trained")
    again = TextClassifier.from_preset(tmp_path / "trained")
    assert again.optimizer._learning_rate.peak == 3e-4
    task.save(tmp_path / "task.keras")
    again = keras.saving.load_model(tmp_path / "task.keras")
    assert again.optimizer._learning_rate.peak == 1e-3  # as it was compiled


def test_callbacks_set_the_learning_rate_of_a_default_task(make, texts, labels):
    task = make(TextClassifier, num_classes=2, in_graph=True)
    task.compile(optimizer=AdamW(1.0))
    rates = [0.0, 1e-3]
    kernel = task.head.trainable_variables[0]
    moved = []

    class Watch(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.before = kernel.numpy()

        def on_epoch_end(self, epoch, logs=None):
            moved.append(np.abs(kernel.numpy() - self.before).max())

    callbacks = [keras.callbacks.LearningRateScheduler(lambda epoch: rates[epoch]), Watch()]
    history = task.fit(texts, labels, batch_size=5, epochs=2, callbacks=callbacks, verbose=0)
    assert history.history["learning_rate"] == pytest.approx(rates)
    assert moved[0] == 0.0  # the traced step reads the rate
    assert 0 < moved[1] < 3e-3
    # Two epochs without any progress halve it.
    plateau = keras.callbacks.ReduceLROnPlateau("loss", 0.5, patience=1, min_delta=100.0)
    task.fit(texts, labels, epochs=2, callbacks=[plateau], verbose=0)
    assert float(task.optimizer.learning_rate) == pytest.approx(5e-4)


def test_predict_traces_the_text_pipeline_once_for_a_form_of_text(classifier, monkeypatch):
    traced = []
    pack = type(classifier.packer).__call__
    monkeypatch.setattr(
        type(classifier.packer),
        "__call__",
        lambda packer, columns, *more: (
            traced.append(sorted(columns)) or pack(packer, columns, *more)
        ),
    )
    classifier.forget_answers()
    for texts in (TEXTS, TEXTS[:1], (TEXTS, PAIRS), (TEXTS[2:], PAIRS[2:])):
        classifier.predict(texts, verbose=0)
    assert traced == [["text"], ["text", "text_pair"]]
