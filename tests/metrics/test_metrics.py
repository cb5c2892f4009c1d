"""Metrics over what tasks give them, beside independent implementations."""

import keras
import numpy as np
import pytest
import sacrebleu
import tensorflow as tf
from rouge_score import rouge_scorer
from seqeval.metrics import f1_score
from seqeval.scheme import IOB2, IOBES
from sklearn.metrics import f1_score as sklearn_f1_score

from keras_lm import metrics
from keras_lm.metrics import EntityF1
from keras_lm.metrics.label_metrics import OneHotMetric
from keras_lm.objectives import IGNORED
from keras_lm.tasks.classes import metric_of_classes

BIO = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
BIOES = ["O", *(f"{prefix}-{name}" for prefix in "BIES" for name in ("PER", "LOC"))]


def draw(names, seed, shape=(20, 9)):
    """Labels (B, S), a part of them ignored, and logits that are often right."""
    random = np.random.default_rng(seed)
    labels = random.integers(len(names), size=shape)
    logits = (
        random.normal(size=(*shape, len(names))) + 2.0 * np.eye(len(names))[np.maximum(labels, 0)]
    )
    return np.where(random.random(shape) < 0.2, IGNORED, labels), logits.astype("float32")


@pytest.mark.parametrize("seed", range(3))
def test_entity_f1_equals_seqeval(seed):
    metric = EntityF1(BIO)
    truth, answers = [], []
    for batch in range(2):
        labels, logits = draw(BIO, 10 * seed + batch)
        metric.update_state(labels, logits)
        for row, actual in zip(labels, logits.argmax(-1)):
            truth.append([BIO[i] for i in row[row != IGNORED]])
            answers.append([BIO[i] for i in actual[row != IGNORED]])
    assert float(metric.result()) == pytest.approx(f1_score(truth, answers), abs=1e-6)


@pytest.mark.parametrize("names, scheme", [(BIO, IOB2), (BIOES, IOBES)])
def test_strict_entity_f1_equals_seqevals_strict_mode(names, scheme):
    metric = EntityF1.from_config(EntityF1(names, strict=True).get_config())
    labels, logits = draw(names, 7, shape=(60, 9))
    logits = logits + 0.5 * np.eye(len(names))[np.maximum(labels, 0)]
    metric.update_state(labels, logits)
    rows = [
        [[names[i] for i in row[mask]] for row, mask in zip(x, labels != IGNORED)]
        for x in (labels, logits.argmax(-1))
    ]
    expected = f1_score(*rows, mode="strict", scheme=scheme)
    assert 0.1 < expected < 1
    assert float(metric.result()) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("strict", [False, True])
def test_entity_f1_of_other_letters_and_dashes(strict):
    labels, logits = draw(BIOES, 5)
    results = []
    for names in (BIOES, [n.replace("I-", "M-").replace("S-", "W-") for n in BIOES]):
        for dash in "-_":
            metric = EntityF1([name.replace("-", dash) for name in names], strict=strict)
            metric.update_state(labels, logits)
            results.append(metric.scores())
    assert results[0]["f1"] > 0.1 and results == results[:1] * 4


def test_entity_f1_reads_richer_schemes_as_our_entities_do():
    from keras_lm.datasets.tag_schemes import entity_spans

    metric = EntityF1(BIOES)
    labels, logits = draw(BIOES, 5)
    metric.update_state(labels, logits)
    spans = [
        {
            (i, *span)
            for i, row in enumerate(rows)
            for span in entity_spans([BIOES[c] for c in row[labels[i] != IGNORED]])
        }
        for rows in (labels, logits.argmax(-1))
    ]
    both = spans[0] & spans[1]
    scores = metric.scores()
    assert scores["precision"] == pytest.approx(len(both) / len(spans[1]))
    assert scores["recall"] == pytest.approx(len(both) / len(spans[0]))
    assert scores["f1"] == pytest.approx(float(metric.result()))
    assert list(scores["classes"]) == ["LOC", "PER"]
    for name, row in scores["classes"].items():
        right, actual, marked = (sum(span[1] == name for span in x) for x in (both, *spans[::-1]))
        assert [*row.values()] == pytest.approx(
            [right / actual, right / marked, 2 * right / (actual + marked), marked]
        )


@pytest.mark.parametrize("strict", [False, True])
def test_entity_f1_of_plain_classes(strict):
    names = ["PER", "O", "LOC"]
    metric = EntityF1.from_config(EntityF1(names, strict=strict).get_config())
    labels, logits = draw(names, 3)
    metric.update_state(labels, logits)
    rows = [
        [[f"I-{names[i]}".replace("I-O", "O") for i in row[mask]] for row, mask in zip(x, mask_)]
        for x, mask_ in ((labels, labels != IGNORED), (logits.argmax(-1), labels != IGNORED))
    ]
    assert float(metric.result()) == pytest.approx(f1_score(*rows), abs=1e-6)
    assert {*metric.scores()["classes"]} == {"PER", "LOC"}


def test_entity_f1_in_xla():
    labels = np.array([[1, 2, 0, 1], [3, IGNORED, 4, 0]])
    logits = np.eye(len(BIO), dtype="float32")[np.array([[1, 2, 0, 0], [3, 1, 4, 1]])]
    plain, compiled = EntityF1(BIO), EntityF1(BIO)
    plain.update_state(labels, logits)
    update = tf.function(lambda *batch: compiled.update_state(*batch), jit_compile=True)
    update(tf.constant(labels), tf.constant(logits))
    assert compiled.scores() == plain.scores()
    assert 0 < plain.scores()["f1"] < 1


def test_entity_f1_of_nothing_is_zero_and_needs_entities():
    metric = EntityF1(BIO)
    assert float(metric.result()) == 0.0
    metric.update_state(np.full([2, 3], IGNORED), np.zeros([2, 3, 5], "float32"))
    assert float(metric.result()) == 0.0
    assert metric.scores() == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "classes": {}}
    with pytest.raises(ValueError, match="mark no entity"):
        EntityF1(["noun", "verb"])


def test_keras_metrics_over_numbers_and_logits():
    labels, logits = draw("abc", 1, shape=(50,))
    labels = np.abs(labels) % 3
    metric = metric_of_classes(keras.metrics.F1Score(average="macro"))
    metric.update_state(labels, logits)
    expected = sklearn_f1_score(labels, logits.argmax(-1), average="macro")
    assert float(metric.result()) == pytest.approx(expected, abs=1e-6)
    metric.reset_state()
    assert float(metric.result()) == 0.0

    labels, logits = draw("abc", 2)
    metric = metric_of_classes(keras.metrics.F1Score(average="macro"))
    metric.update_state(labels, logits)
    known = labels != IGNORED
    expected = sklearn_f1_score(labels[known], logits.argmax(-1)[known], average="macro")
    assert float(metric.result()) == pytest.approx(expected, abs=1e-6)
    weights = np.abs(draw("de", 3, shape=known.shape)[1][..., 0]).astype("float32")
    for given in (weights, weights[:, 0]):  # of each word, or of all in a row
        metric.reset_state()
        metric.update_state(labels, logits, sample_weight=given)
        weight = np.broadcast_to(given.reshape(len(given), -1), known.shape)[known]
        expected = sklearn_f1_score(
            labels[known], logits.argmax(-1)[known], average="macro", sample_weight=weight
        )
        assert float(metric.result()) == pytest.approx(expected, abs=1e-6)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    assert isinstance(copy, OneHotMetric)
    assert copy.metric.average == "macro"


def test_keras_metrics_over_several_labels():
    random = np.random.default_rng(3)
    labels = random.integers(2, size=(40, 3)).astype("float32")
    logits = (random.normal(size=labels.shape) + labels).astype("float32")
    metric = metric_of_classes(
        keras.metrics.F1Score(average="macro", threshold=0.5), multi_label=True
    )
    metric.update_state(labels, logits)
    expected = sklearn_f1_score(labels, logits > 0, average="macro")
    assert float(metric.result()) == pytest.approx(expected, abs=1e-6)


# By the rules of SQuAD's script: answer, right answers, exact match, F1, rightly (not) answered.
ANSWERS = [
    ("The Broncos", ["Denver Broncos", "Broncos"], 1, 1, 1),
    ("an  apple, a day!", ["apple day"], 1, 1, 1),
    ("AC/DC", ["ac dc", "acdc"], 1, 1, 1),
    ("in the year 1066", ["1066"], 0, 2 * (1 / 3) * 1 / (1 / 3 + 1), 1),
    ("cat cat dog", ["cat dog dog"], 0, 2 / 3, 1),
    ("x y", ["y z", "x"], 0, 2 / 3, 1),
    ("theatre", ["atre"], 0, 0, 1),
    ("Zoë’s", ["zoës"], 0, 0, 1),  # only ASCII's marks are left out
    ("", [], 1, 1, 1),
    ("Ada", [], 0, 0, 0),
    ("the", [], 1, 1, 1),
    ("", ["Ada"], 0, 0, 0),
    ("", ["", "a"], 1, 1, 1),
    ("Ada", ["", "ada"], 1, 1, 1),  # an empty one beside others is padding
]


@pytest.mark.parametrize("form", ["lists", "ragged", "padded", "graph", "weights"])
def test_answers_equal_the_rules_of_squad(form):
    texts, labels, *expected = map(list, zip(*ANSWERS))
    weights = np.arange(len(texts)) if form == "weights" else np.ones(len(texts))
    if form in ("ragged", "graph"):
        labels = tf.ragged.constant(labels, tf.string, ragged_rank=1)
    elif form == "padded":
        labels = tf.ragged.constant(labels, tf.string, ragged_rank=1).to_tensor("")
    classes = (metrics.ExactMatch, metrics.AnswerF1, metrics.NoAnswerAccuracy)
    for cls, values in zip(classes, expected):
        metric = cls.from_config(cls().get_config())
        update = metric.update_state
        update = tf.function(update, autograph=False) if form == "graph" else update
        update(labels, tf.constant(texts), weights if form == "weights" else None)
        assert float(metric.result()) == pytest.approx(np.average(values, weights=weights))
        metric.reset_state()
        metric.update_state(["an Ada"], ["Ada"])  # one right answer each
        assert float(metric.result()) == 1.0


# === Translations and summaries ===

WRITTEN = ["The cat sat on a mat .", "", "\u4f60\u597d world", "A small house", "one"]
RIGHT = [
    ["The cat sat on the mat.", "A cat was sitting on the mat."],
    ["Nothing at all"],
    ["hello world"],
    ["a small House"],
    [""],
]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (metrics.Bleu(), sacrebleu.metrics.BLEU()),
        (metrics.Bleu("char", lowercase=True), sacrebleu.metrics.BLEU(True, tokenize="char")),
        (metrics.ChrF(), sacrebleu.metrics.CHRF()),
        (metrics.ChrF(word_order=2), sacrebleu.metrics.CHRF(word_order=2)),
    ],
)
def test_translations_score_as_by_sacrebleu(metric, expected):
    metric = type(metric).from_config(metric.get_config())
    streams = [[right[i] if i < len(right) else None for right in RIGHT] for i in range(2)]
    score = expected.corpus_score(WRITTEN, streams).score
    assert 0 < score < 100
    for part in (slice(0, 2), slice(2, 5)):  # counts add up, where means of scores would not
        metric.update_state(RIGHT[part], WRITTEN[part])
    assert float(metric.result()) == pytest.approx(score, rel=1e-6)
    assert metric.signature.startswith("nrefs:")
    assert metric.signature.partition("|")[2] == str(expected.get_signature()).partition("|")[2]
    metric.reset_state()
    update = tf.function(metric.update_state, autograph=False)
    one_each = [right[0] for right in RIGHT]
    update(tf.constant(one_each), tf.constant(WRITTEN))
    score = expected.corpus_score(WRITTEN, [one_each]).score
    assert float(metric.result()) == pytest.approx(score, rel=1e-6)
    with pytest.raises(ValueError, match="takes no weights"):
        metric.update_state(["a"], ["a"], [1.0])


@pytest.mark.parametrize("kind", ["rouge1", "rouge2", "rougeL", "rougeLsum"])
def test_summaries_score_as_by_rouge_score(kind):
    written, right = "A cat sits.\nIt was on mats.", "It is a cat.\nThe cats sat on a mat."
    for stem in (True, False):
        metric = metrics.Rouge(kind, stem=stem)
        metric = metrics.Rouge.from_config(metric.get_config())
        metric.update_state([["no", right], ["b"]], [written, ""])
        scorer = rouge_scorer.RougeScorer([kind], use_stemmer=stem)
        expected = scorer.score(right, written)[kind].fmeasure / 2
        assert 0 < expected == pytest.approx(float(metric.result()), rel=1e-6)
    with pytest.raises(ValueError, match="rouge7x"):
        metrics.Rouge("rouge7x")
