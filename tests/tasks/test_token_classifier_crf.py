"""Token classification with a conditional random field: fitting, answers, files, exports."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import WordVectorBackbone
from keras_lm.objectives import IGNORED
from keras_lm.tasks import Task, TokenClassifier
from keras_lm.tasks.token_classifier import tag_rules
from keras_lm.tokenizers import WordTokenizer

NAMES = ["O", "B-X", "I-X"]
WORDS = ["<unk>", "<pad>", "x", "y", "z"]
# A word's label follows from the one before: y after x or y is inside, elsewhere it is not.
TEXTS = [["x", "y", "y", "z", "y"], ["y", "y"], ["z", "x", "y"], ["x", "x", "z"]] * 4
LABELS = [["B-X", "I-X", "I-X", "O", "O"], ["O", "O"], ["O", "B-X", "I-X"], ["B-X", "B-X", "O"]] * 4


def make(**options):
    keras.utils.set_random_seed(0)
    tokenizer = WordTokenizer(WORDS, unknown_token="<unk>", pad_token="<pad>")
    return TokenClassifier(
        WordVectorBackbone(len(WORDS), 8), tokenizer=tokenizer, class_names=NAMES, **options
    )


@pytest.fixture(scope="module")
def task():
    task = make(crf="bio")
    task.compile(optimizer=keras.optimizers.Adam(0.05), run_eagerly=True)
    task.fit(TEXTS, LABELS, batch_size=8, epochs=2, verbose=0)
    return task


@pytest.mark.thorough
def test_it_learns_what_single_words_cannot_say():
    task = make(crf="bio")
    task.compile(optimizer=keras.optimizers.Adam(0.05))
    history = task.fit(
        TEXTS * 5, LABELS * 5, batch_size=8, epochs=6, validation_split=0.25, verbose=0
    ).history
    assert history["loss"][-1] < 0.2 * history["loss"][0]
    assert history["val_accuracy"][-1] == 1.0
    assert task.tag(TEXTS[:4])["labels"] == LABELS[:4]
    plain = make()
    plain.compile(optimizer=keras.optimizers.Adam(0.05), run_eagerly=True)
    plain.fit(TEXTS * 5, LABELS * 5, batch_size=8, epochs=5, verbose=0)
    assert plain.evaluate(TEXTS, LABELS, verbose=0, return_dict=True)["accuracy"] < 1.0


def test_loss_and_scores_are_the_chains(task):
    packed, labels = task.preprocess_with_labels(
        task.columns(TEXTS[:4]), task.labels.prepare(np.array(LABELS[:4], object))
    )
    logits, mask = task(packed), np.asarray(labels) != IGNORED
    likelihood = np.asarray(task.crf.log_likelihood(logits, labels, mask))
    loss = task.test_on_batch(packed, labels, return_dict=True)["loss"]
    assert loss == pytest.approx(-likelihood.sum() / mask.sum(), rel=1e-4)
    weights = np.array([1.0, 0.0, 2.0, 0.5])
    expected = -(weights * likelihood).sum() / (weights * mask.sum(axis=1)).sum()
    loss = task.test_on_batch(packed, labels, sample_weight=weights, return_dict=True)["loss"]
    assert loss == pytest.approx(expected, rel=1e-4)
    marginals = np.asarray(task.crf.marginals(logits, mask, task.allowed))
    best = np.asarray(task.crf.decode(logits, mask, task.allowed))
    scores = task.tag(TEXTS[:4])["scores"]
    np.testing.assert_allclose(scores[0], marginals[0][np.arange(5), best[0]], atol=1e-5)


@pytest.mark.eager
def test_bio_answers_are_bio():
    task, free = make(crf="bio"), make(crf=True)
    for each in (task, free):  # nothing but I-X would be best
        each.head.logits.bias.assign([0.0, 0.0, 9.0])
    assert free.tag(TEXTS[:2])["labels"][1] == ["I-X", "I-X"]
    assert task.tag(TEXTS[:2])["labels"][1] == ["B-X", "I-X"]
    transitions, start, end = tag_rules(["I-B", "O", "B-A", "B-B", "I-A"], "bio")
    assert end.all()
    assert start.tolist() == [0, 1, 1, 1, 0]
    assert transitions[:, 0].tolist() == [1, 0, 0, 1, 0]
    assert transitions[:, 4].tolist() == [0, 0, 1, 0, 1]
    assert transitions[:, 1:4].all()


@pytest.mark.eager
def test_bioes_answers_are_whole():
    names = ["O", *(f"{prefix}-X" for prefix in "BIES")]
    keras.utils.set_random_seed(0)
    tokenizer = WordTokenizer(WORDS, unknown_token="<unk>", pad_token="<pad>")
    network = WordVectorBackbone(len(WORDS), 8)
    task = TokenClassifier(network, tokenizer=tokenizer, class_names=names, crf="bioes")
    task.head.logits.bias.assign([0.0, 3.0, 9.0, 0.0, 0.0])  # nothing but I-X would be best
    labels = task.tag(TEXTS[:2])["labels"]
    assert labels == [["B-X", "I-X", "I-X", "I-X", "E-X"], ["B-X", "E-X"]]
    transitions, start, end = tag_rules(
        ["O", "B-A", "I-A", "E-A", "S-A", "B-B", "E-B", "S-B"], "bioes"
    )
    assert start.tolist() == [1, 1, 0, 0, 1, 1, 0, 1]
    assert end.tolist() == [1, 0, 0, 1, 1, 0, 1, 1]
    assert transitions[1].tolist() == transitions[2].tolist() == [0, 0, 1, 1, 0, 0, 0, 0]
    assert transitions[3].tolist() == transitions[0].tolist() == [1, 1, 0, 0, 1, 1, 0, 1]
    assert transitions[5].tolist() == [0, 0, 0, 0, 0, 0, 1, 0]


@pytest.mark.slow
def test_files_and_exports(task, tmp_path):
    expected = task.tag(TEXTS[:4])
    task.save_to_preset(tmp_path / "preset")
    again = Task.from_preset(tmp_path / "preset")
    assert again.get_arguments() == task.get_arguments()
    assert again.tag(TEXTS[:4]) == expected
    task.save(tmp_path / "task.keras")
    loaded = keras.models.load_model(tmp_path / "task.keras")
    assert loaded.tag(TEXTS[:4]) == expected
    with pytest.warns(UserWarning, match="crf/end, crf/start, crf/transitions"):
        fewer = TokenClassifier.from_preset(tmp_path / "preset", class_names=["O", "B-X"], crf=True)
    assert fewer.crf.transitions.shape == (2, 2)

    served = tf.saved_model.load(str(task.export(tmp_path / "export"))).signatures
    texts = [" ".join(words) for words in TEXTS[:3]] + ["", "unseen \U0001f600 x", "x " * 300]
    texts = [*map(str.encode, texts), b"y \xff\xfe y"]
    actual, own = served["serving_default"](text=tf.constant(texts)), task.answer_all(texts)
    np.testing.assert_array_equal(actual["labels"].numpy().astype(str), own["labels"].astype(str))
    np.testing.assert_allclose(actual["scores"], own["scores"], atol=1e-5)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"crf": "BIO"}, "crf='BIO': use False, True, 'bio' or 'bioes'"),
        ({"crf": "bio", "class_names": ["O", "I-X"]}, "for each class X its B-X"),
        ({"crf": "bio", "class_names": ["O", "NOUN"]}, "or crf=True"),
        ({"crf": "bioes", "class_names": ["O", "B-X", "E-X"]}, "B-X and I-X and E-X and S-X"),
        ({"crf": "bio", "class_names": None, "num_classes": 3}, "class_names=None"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        TokenClassifier(WordVectorBackbone(5, 4), **{"class_names": NAMES} | options)
