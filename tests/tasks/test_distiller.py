"""`Distiller`: what a student learns from a teacher, with which loss, and what is left of it."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors import safe_open

from keras_lm.models import LSTMBackbone, WordVectorBackbone
from keras_lm.packers.rows import LOWEST
from keras_lm.tasks import (
    Distiller,
    MaskedLM,
    MultipleChoice,
    Task,
    TextClassifier,
    TextRegressor,
    TokenClassifier,
)
from keras_lm.tokenizers import WordTokenizer

WORDS = ["the", "film", "story", "cast", "was", "is", "very", "so", "good", "bad", "dull", "fine"]


@pytest.fixture(scope="module")
def words():
    return WordTokenizer(
        ["<unk>", "<pad>", *WORDS], unknown_token="<unk>", pad_token="<pad>", lowercase=True
    )


@pytest.fixture
def teach(make):
    """`teach(TextClassifier, …)` is a task of strong opinions."""

    def make_teacher(cls, **options):
        task = make(cls, **options)
        for number, weight in enumerate(task.weights):
            weight.assign_add(0.5 * keras.random.normal(weight.shape, seed=number))
        return task

    return make_teacher


def values(task):
    return [weight.numpy() for weight in task.weights]


@pytest.mark.thorough
@pytest.mark.eager
def test_an_lstm_learns_from_a_bert(teach, words, texts, tmp_path):
    teacher = teach(TextClassifier, class_names=["bad", "fair", "good"])
    backbone = LSTMBackbone(len(words.vocabulary), num_layers=1, hidden_dim=8, dropout=0.0)
    student = TextClassifier(backbone, num_classes=3, tokenizer=words)
    before = values(teacher)
    distiller = Distiller(student, teacher, temperature=2.0)
    distiller.compile(optimizer=keras.optimizers.Adam(0.02), run_eagerly=True)
    history = distiller.fit(texts, batch_size=5, epochs=3, verbose=0).history
    assert set(history) == {"loss"}
    assert history["loss"][-1] < history["loss"][0]
    for old, new in zip(before, values(teacher), strict=True):
        np.testing.assert_array_equal(old, new)

    # From here on it is a task like any other.
    student.save_to_preset(tmp_path / "preset")
    with safe_open(tmp_path / "preset" / "model.safetensors", "numpy") as file:
        assert set(file.keys()) == {weight.path for weight in student.weights}
    again = Task.from_preset(tmp_path / "preset")
    assert again.class_names == teacher.class_names
    expected = student.classify(texts)
    np.testing.assert_allclose(again.classify(texts)["scores"], expected["scores"], atol=1e-6)
    again.compile(run_eagerly=True)
    again.fit(texts, ["good", "bad"] * 5, verbose=0)


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


@pytest.mark.eager
@pytest.mark.parametrize("label_weight", [0.0, 0.25])
def test_the_loss_is_the_teachers_and_that_of_labels(teach, words, texts, labels, label_weight):
    teacher = teach(TextClassifier, num_classes=2)
    student = TextClassifier(
        WordVectorBackbone(len(words.vocabulary), 4), num_classes=2, tokenizer=words
    )
    distiller = Distiller(student, teacher, temperature=2.0, label_weight=label_weight)
    distiller.compile(optimizer=keras.optimizers.SGD(0.0), run_eagerly=True)
    history = distiller.fit(
        texts, labels, batch_size=5, verbose=0, validation_data=(texts, labels)
    ).history
    own = student.evaluate(texts, labels, verbose=0, return_dict=True)
    wanted, actual = (task.predict_on_batch(texts) for task in (teacher, student))
    soft = -4 * (softmax(wanted / 2) * np.log(softmax(actual / 2))).mean()
    assert history["loss"] == pytest.approx([soft + label_weight * own["loss"]], rel=1e-5)
    assert history["val_loss"] == pytest.approx([own["loss"]], rel=1e-5)
    assert history["accuracy"] == history["val_accuracy"] == pytest.approx([own["accuracy"]])


@pytest.mark.eager
def test_numbers_of_pairs_and_any_number_of_classes(teach, words, texts):
    backbone = WordVectorBackbone(len(words.vocabulary), 4)
    for cls, options, x in [
        (TextRegressor, {}, (texts, texts[::-1])),
        (TextClassifier, {"num_classes": 2, "multi_label": True}, texts),
    ]:
        teacher, student = teach(cls, **options), cls(backbone, tokenizer=words, **options)
        distiller = Distiller(student, teacher)
        distiller.compile(optimizer=keras.optimizers.SGD(0.0), run_eagerly=True)
        history = distiller.fit(x, verbose=0).history
        wanted, actual = (task.predict_on_batch(x) for task in (teacher, student))
        if cls is TextRegressor:
            expected = np.square(wanted - actual).mean()
            assert student.text_pair
        else:
            p, q = (1 / (1 + np.exp(-x)) for x in (wanted, actual))
            expected = -(p * np.log(q) + (1 - p) * np.log(1 - q)).mean()
        assert history["loss"] == pytest.approx([expected], rel=1e-4)


def distilled(student, teacher, x, y, **options):
    """The loss of a step on all rows, and the weights after it; the student stays as it was."""
    before = student.get_weights()
    distiller = Distiller(student, teacher, label_weight=0.25)
    distiller.compile(optimizer=keras.optimizers.SGD(0.5), run_eagerly=True, **options)
    [loss] = distiller.fit(x, y, batch_size=9, shuffle=False, verbose=0).history["loss"]
    after = student.get_weights()
    student.set_weights(before)
    return loss, after


def learns(student, teacher, x, y, wanted, actual):
    """Compare a step with what both answer, (N, classes), and with the same step in parts."""
    own = student.evaluate(x, y, batch_size=9, verbose=0, return_dict=True)["loss"]
    loss, after = distilled(student, teacher, x, y)
    known = (wanted > LOWEST) & (actual > LOWEST)
    soft = -(softmax(wanted) * np.log(softmax(actual) + 1e-30))[known].mean()
    assert loss == pytest.approx(soft + 0.25 * own, rel=1e-4)
    again, same = distilled(student, teacher, x, y, micro_batch_size=2)
    assert again == pytest.approx(loss, rel=1e-5)
    assert any((a != b).any() for a, b in zip(after, student.get_weights()))
    for one, other in zip(after, same, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.eager
@pytest.mark.parametrize("crf", ["bio", False])
def test_a_tagger_learns_word_by_word_from_other_pieces(make, teach, words, crf):
    texts = [
        ["The", "films", ",", "dull"],
        ["so", "very", "very", "good", "film", "!"],
        ["unloved"],
    ]
    labels = [["O", "B-X", "O", "O"], ["O"] * 4 + ["B-X", "O"], ["O"]]
    names = ["O", "B-X", "I-X"]
    teacher = teach(TokenClassifier, class_names=names, crf=crf, sequence_length=7)
    student = TokenClassifier(
        WordVectorBackbone(len(words.vocabulary), 4), 3, tokenizer=words, sequence_length=8
    )
    student.compile(run_eagerly=True)
    wanted, actual = (task.word_logits(texts).values.numpy() for task in (teacher, student))
    assert wanted.shape == (11, 3)
    assert np.flatnonzero((wanted == LOWEST).any(axis=1)).tolist() == [9]  # it was cut off
    student.class_names = names
    learns(student, teacher, texts, labels, wanted, actual)
    if crf:
        tagged = teacher.answer(teacher.columns(texts[:1]))
        best = [names.index(label.decode()) for label in tagged["labels"][0].numpy()]
        np.testing.assert_allclose(
            np.exp(wanted[np.arange(4), best]), tagged["scores"][0], rtol=1e-4
        )
        with pytest.raises(ValueError, match=r"student has crf='bio'.*crf=False"):
            Distiller(make(TokenClassifier, class_names=names, crf=crf), teacher)


def test_a_tagger_learns_from_strings_in_a_graph(make, teach, words):
    """They are split into the words that are there as lists, of which it learns the same."""
    losses, names = [], ["O", "B-X", "I-X"]
    teacher = teach(TokenClassifier, class_names=names, crf="bio")
    student = TokenClassifier(
        WordVectorBackbone(len(words.vocabulary), 4), class_names=names, tokenizer=words
    )
    for eagerly, x in [(False, ["so, so!", "dull"]), (True, [["so", ",", "so", "!"], ["dull"]])]:
        distiller = Distiller(student, teacher)
        sgd = keras.optimizers.SGD(0.0)
        distiller.compile(optimizer=sgd, micro_batch_size=1, run_eagerly=eagerly)
        losses += distiller.fit(x, verbose=0).history["loss"]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.slow
@pytest.mark.eager
def test_choices(make, teach):
    teacher, student = teach(MultipleChoice), make(MultipleChoice)
    x = {"text": ["the film", "a story", "it"], "choices": [["good", "bad"], ["dull"], ["so"] * 3]}
    wanted, results = (task.predict_on_batch(x) for task in (teacher, student))
    learns(student, teacher, x, [1, 0, 2], wanted, results)
    with pytest.raises(ValueError, match=r"choices\[1\] has no such choice"):
        Distiller(student, teacher).fit(x, [1, 1, 2])


@pytest.mark.thorough
def test_a_student_ends_near_its_teacher(make, make_backbone, texts, labels, eagerly):
    # Not `teach`: from weights as large as its, a student may find no way to tell two texts apart.
    teacher = make(TextClassifier, num_classes=2, backbone=make_backbone(num_layers=2))
    teacher.compile(optimizer=keras.optimizers.Adam(0.01))
    teacher.fit(texts * 20, labels * 20, batch_size=10, epochs=3, shuffle=False, verbose=0)
    student = make(TextClassifier, teacher.backbone.with_layers(1), num_classes=2)
    with eagerly():
        wanted, before = (task.classify(texts)["scores"] for task in (teacher, student))
    assert np.abs(before - wanted).max() > 0.3
    distiller = Distiller(student, teacher)
    distiller.compile(optimizer=keras.optimizers.Adam(0.003))
    distiller.fit(texts * 20, batch_size=5, epochs=5, verbose=0)
    with eagerly():
        np.testing.assert_allclose(student.classify(texts)["scores"], wanted, atol=0.05)


@pytest.mark.eager
def test_wrong_pairs_are_refused(make, words, texts):
    teacher = make(TextClassifier, class_names=["bad", "good"])
    backbone = WordVectorBackbone(len(words.vocabulary), 4)

    def refuse(match, other=teacher, cls=TextClassifier, more=None, **options):
        task = cls(backbone, tokenizer=words, **options)
        with pytest.raises(ValueError, match=match):
            Distiller(task, other, **(more or {}))

    names = ["good", "bad"]
    refuse("student has num_classes=3, and the teacher 2", num_classes=3)
    refuse(r"student has class_names=\['good', 'bad'\], .*same order", class_names=names)
    refuse("student has multi_label=True", num_classes=2, multi_label=True)
    refuse("student is a TextRegressor, and the teacher a TextClassifier", cls=TextRegressor)
    refuse(
        "teacher is a MaskedLM: what is distilled is one of TextClassifier",
        other=make(MaskedLM),
        num_classes=2,
    )
    refuse("temperature=0: pass a number above 0", num_classes=2, more={"temperature": 0})
    refuse("label_weight=-1 is negative", num_classes=2, more={"label_weight": -1})
    with pytest.raises(ValueError, match="same object"):
        Distiller(teacher, teacher)
    with pytest.raises(ValueError, match="student has no tokenizer"):
        Distiller(TextClassifier(backbone, num_classes=2), teacher)
    distiller = Distiller(TextClassifier(backbone, num_classes=2, tokenizer=words), teacher)
    for x in (tf.data.Dataset.from_tensors(texts), {"token_ids": np.ones((1, 3), "int32")}):
        with pytest.raises(ValueError, match=r"x is a .*: pass lists or arrays of raw strings"):
            distiller.fit(x)
