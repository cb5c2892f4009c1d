"""The CoNLL F1 of clusters, beside what scorch 0.2.0 (on PyPI) computes of the same clusterings."""

import sys

import keras
import pytest

from keras_lm.metrics import CoreferenceF1


def words(*places):
    return [(place, place + 1) for place in places]


# Right clusters, those that were found, and recall, precision and F1 of MUC, B³ and CEAF-φ4.
GOLDENS = {
    "equal": (
        [words(0, 1, 2), words(3, 4)],
        [words(3, 4), words(0, 1, 2)],
        [(1, 1, 1), (1, 1, 1), (1, 1, 1)],
    ),
    "split": (
        [words(0, 1, 2, 3)],
        [words(0, 1), words(2, 3)],
        [(0.666667, 1, 0.8), (0.5, 1, 0.666667), (0.666667, 0.333333, 0.444444)],
    ),
    "merged": (
        [words(0, 1), words(2, 3, 4)],
        [words(0, 1, 2, 3, 4)],
        [(1, 0.75, 0.857143), (1, 0.52, 0.684211), (0.375, 0.75, 0.5)],
    ),
    "missing": (
        [words(0, 1, 2), words(3, 4, 5)],
        [words(0, 1), words(4, 5)],
        [(0.5, 1, 0.666667), (0.444444, 1, 0.615385), (0.8, 0.8, 0.8)],
    ),
    "spurious": (
        [words(0, 1, 2)],
        [words(0, 1, 2, 7), words(8, 9)],
        [(1, 0.5, 0.666667), (1, 0.375, 0.545455), (0.857143, 0.428571, 0.571429)],
    ),
    "singletons": (
        [words(0), words(1, 2), words(3)],
        [words(0, 1), words(2), words(3), words(4)],
        [(0, 0, 0), (0.75, 0.6, 0.666667), (0.777778, 0.583333, 0.666667)],
    ),
    "mixed": (
        [words(0, 1, 2, 3), words(4, 5, 6), words(7, 8)],
        [words(0, 1, 4), words(2, 3, 9), words(5, 6), words(7, 8, 10, 11)],
        [
            (0.666667, 0.5, 0.571429),
            (0.62963, 0.5, 0.557377),
            (0.679365, 0.509524, 0.582313),
        ],
    ),
    "disjoint": ([words(0, 1)], [words(2, 3)], [(0, 0, 0)] * 3),
    "none found": ([words(0, 1, 2)], [], [(0, 0, 0)] * 3),
    "none there": ([], [words(0, 1, 2)], [(0, 0, 0)] * 3),
    "empty": ([], [], [(0, 0, 0)] * 3),
}
# "split", "merged", "singletons" and "none found" as one corpus: all counts are summed.
TOGETHER = [
    (0.555556, 0.714286, 0.625),
    (0.625, 0.685714, 0.653951),
    (0.535714, 0.535714, 0.535714),
]


def check(metric, expected):
    scores = metric.scores()
    for name, (recall, precision, f1) in zip(("muc", "b_cubed", "ceaf_phi4"), expected):
        results = {"recall": recall, "precision": precision, "f1": f1}
        assert scores[name] == pytest.approx(results, abs=1e-6)
    mean = sum(f1 for _, _, f1 in expected) / 3
    assert float(metric.result()) == pytest.approx(mean, abs=1e-6)
    assert scores["conll_f1"] == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize("name", GOLDENS)
def test_as_scorch(name):
    right, results, expected = GOLDENS[name]
    metric = CoreferenceF1()
    metric.update_state([right], [results])
    check(metric, expected)
    swapped = CoreferenceF1()
    swapped.update_state([results], [right])
    check(swapped, [(precision, recall, f1) for recall, precision, f1 in expected])


def test_counts_of_documents_are_summed():
    metric = CoreferenceF1()
    for name in ("split", "merged", "singletons", "none found"):
        right, actual, _ = GOLDENS[name]
        metric.update_state([right], [[[{"start": s, "end": e} for s, e in c] for c in actual]])
    check(metric, TOGETHER)
    metric.reset_state()
    assert metric.result() == 0.0
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
    again.update_state([[words(0, 1)]], [[words(0, 1)]])
    assert again.result() == 1.0


def test_errors(monkeypatch):
    metric = CoreferenceF1()
    with pytest.raises(ValueError, match="labels has 2 documents, but clusters has 1"):
        metric.update_state([[], []], [[]])
    with pytest.raises(ValueError, match="clusters: a mention is in two clusters"):
        metric.update_state([[]], [[words(0, 1), words(1, 2)]])
    with pytest.raises(ValueError, match="takes no weights"):
        metric.update_state([[]], [[]], sample_weight=[1.0])
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(ImportError, match=r"needs scipy: pip install 'keras-lm\[coreference\]'"):
        CoreferenceF1()
