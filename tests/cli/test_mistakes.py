"""`keras-lm evaluate --errors --confusion`: the rows that are answered wrongly, and for what."""

import csv
import json

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from keras_lm import tasks

TEXTS = ["a good film", "the song was bad", "loud , loud", "is the film bad", "good"]


def test_files_say_what_evaluate_counts(write, critic, task, run, fail, tmp_path):
    found = list(task.classify(TEXTS)["labels"])
    other = {"good": "bad", "bad": "good"}
    labels = [other[label] if n in (1, 3) else label for n, label in enumerate(found)]
    rows = zip(TEXTS, labels)
    path = write("a.jsonl", "".join(json.dumps({"text": t, "label": x}) + "\n" for t, x in rows))
    errors, confusion = tmp_path / "errors.jsonl", tmp_path / "confusion.csv"
    said = run("evaluate", critic, path, "--errors", errors, "--confusion", confusion, "--json")
    assert (json.loads(said)["errors"], json.loads(said)["accuracy"]) == (2, pytest.approx(0.6))
    assert [json.loads(line) for line in errors.read_text().splitlines()] == [
        {"line": n + 1, "input": {"text": TEXTS[n]}, "label": labels[n], "answer": found[n]}
        for n in (1, 3)
    ]
    header, *table = csv.reader(confusion.read_text().splitlines())
    names = header[1:]
    assert [row[0] for row in table] == names == sorted({*labels, *found})
    counts = np.array([row[1:] for row in table], int)
    np.testing.assert_array_equal(counts, confusion_matrix(labels, found, labels=names))
    assert "exists" in fail("evaluate", critic, path, "--errors", errors)


@pytest.mark.eager
def test_words_and_what_has_no_classes(
    write, make_backbone, tokenizer, matcher, run, fail, tmp_path
):
    names = {"class_names": ["O", "B-X"], "tokenizer": tokenizer}
    tagger = tasks.TokenClassifier(make_backbone(), **names)
    tagger.save_to_preset(tmp_path / "tagger")
    path = write("a.conll", "a O\nfilm B-X\n\nsong B-X\n")
    errors, confusion = tmp_path / "errors.jsonl", tmp_path / "confusion.csv"
    run("evaluate", tmp_path / "tagger", path, "--errors", errors, "--confusion", confusion)
    found = tagger.tag([["a", "film"], ["song"]])["labels"]
    wrong = [row for row, right in zip(found, [["O", "B-X"], ["B-X"]]) if row != right]
    assert [json.loads(x)["answer"] for x in errors.read_text().splitlines()] == wrong
    _, *table = csv.reader(confusion.read_text().splitlines())
    assert sum(int(n) for row in table for n in row[1:]) == 3
    assert "holds a TextRegressor" in fail("evaluate", matcher, path, "--errors", tmp_path / "x")
