"""`ClassReport`: measures of classes, and the matrix of confusions, as scikit-learn has them."""

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, f1_score, precision_recall_fscore_support

from keras_lm.evaluation import ClassReport

NAMES = ["bad", "fair", "good", "none"]
RANDOM = np.random.default_rng(0)
LABELS, FOUND = (RANDOM.choice(NAMES[:3], 50).tolist() for _ in range(2))


@pytest.mark.parametrize("names", [None, NAMES, NAMES[::-1]])
def test_measures_are_those_of_scikit_learn(names):
    report = ClassReport(LABELS, np.array(FOUND, object), names)
    order = names or NAMES[:3]
    assert report.class_names == order
    expected = precision_recall_fscore_support(LABELS, FOUND, labels=order, zero_division=0)
    results = [[*each.values()] for each in report.classes.values()]
    np.testing.assert_allclose(results, np.array(expected).T)
    np.testing.assert_array_equal(report.confusion, confusion_matrix(LABELS, FOUND, labels=order))
    assert report.accuracy == np.mean([a == b for a, b in zip(LABELS, FOUND)])
    expected = f1_score(LABELS, FOUND, labels=order, average="macro", zero_division=0)
    assert report.macro_f1 == pytest.approx(expected)


def test_labels_may_be_positions_and_bytes():
    numbers = [NAMES.index(label) for label in LABELS]
    expected = ClassReport(LABELS, FOUND, NAMES).classes
    assert ClassReport(np.array(numbers), [x.encode() for x in FOUND], NAMES).classes == expected
    assert ClassReport([0, 1, 1], [0, 0, 1]).class_names == ["0", "1"]


def test_words_and_texts_with_several_labels():
    words = ClassReport([["O", "B-X"], ["O"]], [["O", "O"], ["O"]])
    assert words.accuracy == pytest.approx(2 / 3)
    np.testing.assert_array_equal(words.confusion, [[0, 1], [0, 2]])
    several = ClassReport([["a", "b"], []], [["a"], []], multi_label=True)
    assert several.accuracy == 0.5 and several.confusion is None
    assert several.classes["b"] == {"precision": 0, "recall": 0, "f1": 0, "number": 1}
    with pytest.raises(ValueError, match=r"multi_label=True: .* no such matrix"):
        several.draw()


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match="labels has 1 labels and found 2"):
        ClassReport(["a"], ["a", "b"])
    with pytest.raises(ValueError, match=r"labels\[1\] has 1 labels and found\[1\] 2"):
        ClassReport([["O"], ["O"]], [["O"], ["O", "O"]])
    with pytest.raises(ValueError, match="labels has 0 labels"):
        ClassReport([], [])
    with pytest.raises(ValueError, match="'c' is not one of class_names="):
        ClassReport(["a"], ["c"], ["a", "b"])
    with pytest.raises(ValueError, match="pass class_names=task"):
        ClassReport([0, 1], ["a", "b"])


def test_it_is_printed_and_drawn(tmp_path):
    report = ClassReport(LABELS, FOUND)
    lines = str(report).splitlines()
    assert lines[0].split() == ["class", "precision", "recall", "F1", "number"]
    assert lines[1].split()[0] == "bad" and lines[-2].startswith("accuracy")
    path = report.draw().save(tmp_path / "confusion.svg")
    assert path.read_bytes().startswith(b"<?xml")
    many = [str(number) for number in range(100)]
    report = ClassReport(many, many)
    assert not report.draw().figure.axes[0].texts  # they would not be readable


def test_numbers_of_a_table_that_names_them():
    """They were positions in `class_names`, whatever the table called them."""
    column = type("Column", (list,), {"features": type("ClassLabel", (), {"names": ["b", "a"]})()})
    report = ClassReport(column([0, 1, 1]), ["b", "a", "b"], class_names=["a", "b"])
    assert report.accuracy == pytest.approx(2 / 3)
    assert report.classes == ClassReport(["b", "a", "a"], ["b", "a", "b"]).classes
