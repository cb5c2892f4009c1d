"""`keras-lm evaluate --errors --confusion`: the rows that are answered wrongly, and for what."""

import csv
import json

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from keras_lm import tasks
from keras_lm.evaluation import Answered, write_confusion

TEXTS = ["a good film", "the song was bad", "loud , loud", "is the film bad", "good"]


def test_files_say_what_evaluate_counts(write, critic, task, run, fail, tmp_path):
    answer = task.classify(TEXTS)
    actual = list(answer["labels"])
    scores = [dict(zip(answer["class_names"], map(float, row))) for row in answer["scores"]]
    other = {"good": "bad", "bad": "good"}
    labels = [other[label] if n in (1, 3) else label for n, label in enumerate(actual)]
    rows = [
        {"id": n, "text": text, "label": label, "by": "me"}
        for n, (text, label) in enumerate(zip(TEXTS, labels))
    ]
    path = write("a.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    errors, confusion = tmp_path / "errors.jsonl", tmp_path / "confusion.csv"
    said = run("evaluate", critic, path, "--errors", errors, "--confusion", confusion, "--json")
    assert (json.loads(said)["errors"], json.loads(said)["accuracy"]) == (2, pytest.approx(0.6))
    assert [json.loads(line) for line in errors.read_text().splitlines()] == [
        {
            "line": n + 1,
            "input": {"text": TEXTS[n]},
            "label": labels[n],
            "answer": actual[n],
            "scores": {name: pytest.approx(scores[n][name], abs=1e-5) for name in ("bad", "good")},
            "columns": {"id": n, "by": "me"},
        }
        for n in (1, 3)
    ]
    header, *table = csv.reader(confusion.read_text().splitlines())
    names = header[1:]
    assert [row[0] for row in table] == names == sorted({*labels, *actual})
    counts = np.array([row[1:] for row in table], int)
    np.testing.assert_array_equal(counts, confusion_matrix(labels, actual, labels=names))
    assert "exists" in fail("evaluate", critic, path, "--errors", errors)
    run("evaluate", critic, path, "--confusion", tmp_path / "confusion.png")
    assert (tmp_path / "confusion.png").read_bytes().startswith(b"\x89PNG")
    said = fail("evaluate", critic, path, "--confusion", tmp_path / "confusion.json")
    assert "confusion.json: name a file that ends in .csv" in said
    with pytest.raises(ValueError, match=r"json': name a file that ends in \.csv"):
        write_confusion("a.json", Answered(["a"], ["a"], []))


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
    actual = tagger.tag([["a", "film"], ["song"]])["labels"]
    wrong = [row for row, right in zip(actual, [["O", "B-X"], ["B-X"]]) if row != right]
    rows = [json.loads(x) for x in errors.read_text().splitlines()]
    assert [row["answer"] for row in rows] == wrong
    assert [len(row["scores"]) for row in rows] == [len(row) for row in wrong]
    assert all("columns" not in row for row in rows)
    _, *table = csv.reader(confusion.read_text().splitlines())
    assert sum(int(n) for row in table for n in row[1:]) == 3
    assert "holds a TextRegressor" in fail("evaluate", matcher, path, "--errors", tmp_path / "x")


@pytest.mark.eager
def test_choices_and_several_labels(write, make_backbone, tokenizer, run, tmp_path):
    chooser = tasks.MultipleChoice(make_backbone(), tokenizer=tokenizer)
    chooser.save_to_preset(tmp_path / "chooser")
    actual = int(chooser.choose({"text": ["a film"], "choices": [["good", "bad"]]})["labels"][0])
    path = write("a.csv", f"id,text,choice0,choice1,label\n7,a film,good,bad,{1 - actual}\n")
    errors = tmp_path / "errors.jsonl"
    run("evaluate", tmp_path / "chooser", path, "--errors", errors)
    (row,) = map(json.loads, errors.read_text().splitlines())
    assert (row["label"], row["answer"]) == (str(1 - actual), str(actual))
    assert row["columns"] == {"id": "7"}
    assert row["scores"][str(actual)] > row["scores"][str(1 - actual)]

    several = tasks.TextClassifier(
        make_backbone(), tokenizer=tokenizer, class_names=["bad", "good"], multi_label=True
    )
    several.save_to_preset(tmp_path / "several")
    (labels,) = several.classify(["a film"])["labels"]
    wrong = [name for name in ("bad", "good") if name not in labels]
    path = write("b.jsonl", json.dumps({"text": "a film", "labels": wrong, "id": 1}))
    run("evaluate", tmp_path / "several", path, "--errors", errors, "--overwrite")
    (row,) = map(json.loads, errors.read_text().splitlines())
    assert (row["label"], row["answer"]) == (wrong, sorted(labels))
    assert row["scores"].keys() == {"bad", "good"} and row["columns"] == {"id": 1}
