"""Answers for files: all rows once, in their order, and what fails in a file of its own."""

import gzip
import json

import numpy as np
import pytest
import tiny

pytest.importorskip("apache_beam", reason="needs: pip install keras-lm[beam]")

import apache_beam as beam
from apache_beam.ml.inference import base
from apache_beam.testing.test_pipeline import TestPipeline
from apache_beam.testing.util import assert_that

from keras_lm import pipelines, tasks
from keras_lm.pipelines import answered_files as answers
from keras_lm.pipelines import beam_files

BAD = "refused"


class Model:
    """Answers with the length of a text, and refuses some."""

    inputs = ["text"]

    def __init__(self):
        self.batches = []

    def answer(self, columns):
        texts = columns["text"]
        self.batches.append([len(text) for text in texts])
        if any(BAD in text for text in texts):
            raise ValueError("one of them is refused")
        return {"length": [len(text) for text in texts]}


@pytest.fixture
def model(monkeypatch):
    model = Model()
    monkeypatch.setattr(answers, "open_predictor", lambda path, **options: model)
    monkeypatch.setattr(answers, "SHARD_ROWS", 5)
    return model


@pytest.fixture
def files(tmp_path):
    """Three files: CSV, JSONL with lines that are no rows, and packed lines."""
    (tmp_path / "a.csv").write_text(
        "id,text\n1,short\n2,much longer than short\n3,one,two\n4,refused here\n5,last\n"
    )
    lines = [json.dumps({"text": "a" * i, "id": i}) for i in range(12)]
    lines[3] = "{"
    lines[7] = json.dumps({"text": 7})
    content = "\n".join(lines).encode() + b"\n\xff\n"
    (tmp_path / "b.jsonl").write_bytes(content)
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"one\n\nthree\n"))
    return [tmp_path / "a.csv", tmp_path / "*.jsonl", tmp_path / "c.txt.gz"]


def read(folder, kind):
    paths = sorted(folder.glob(f"{kind}-*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_every_row_is_answered_once_or_says_why_not(model, files, tmp_path):
    index = pipelines.answer_files("model", files, tmp_path / "out", batch_size=2)
    actual = read(tmp_path / "out", "answers")
    assert [row["input"] for row in actual] == [
        {"id": "1", "text": "short"},
        {"id": "2", "text": "much longer than short"},
        {"id": "5", "text": "last"},
        *({"text": "a" * i, "id": i} for i in range(12) if i not in (3, 7)),
        *({"text": text} for text in ("one", "", "three")),
    ]
    assert all(row["answer"] == {"length": len(row["input"]["text"])} for row in actual)
    failed = read(tmp_path / "out", "failed")
    assert [(row["file"].rpartition("/")[2], row["line"]) for row in failed] == [
        ("a.csv", 4),
        ("a.csv", 5),
        ("b.jsonl", 4),
        ("b.jsonl", 8),
        ("b.jsonl", 13),
    ]
    reasons = ["3 fields", "one of them is refused", "not JSON", "not a string", "not UTF-8"]
    assert all(reason in row["reason"] for reason, row in zip(reasons, failed, strict=True))
    assert failed[1]["input"] == {"id": "4", "text": "refused here"}
    assert (index["rows"], index["failed"]) == (5 + 13 + 3, 5)
    assert [shard["rows"] for shard in index["shards"]] == [5, 5, 5, 3, 3]
    named = {shard[kind] for shard in index["shards"] for kind in ("name", "failures")}
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == named - {None} | {"answers.json"}


def test_empty_rows_are_left_out_and_counted(model, files, tmp_path):
    index = pipelines.answer_files("model", files, tmp_path / "out", skip_empty=True)
    results = [row["input"]["text"] for row in read(tmp_path / "out", "answers")]
    assert "" not in results and "three" in results
    usual = pipelines.answer_files("model", files, tmp_path / "usual")
    assert index["left_out"] == [
        row["input"]["text"].strip() for row in read(tmp_path / "usual", "answers")
    ].count("")
    assert index["rows"] + index["left_out"] == usual["rows"] and usual["left_out"] == 0


def test_texts_of_like_lengths_run_together():
    model, handler = Model(), pipelines.TextModelHandler("model", batch_size=2)
    texts = [{"text": "a" * length} for length in (9, 1, 8, 2, 7)]
    assert [answer["length"] for answer in handler.run_inference(texts, model)] == [9, 1, 8, 2, 7]
    assert model.batches == [[9, 8], [7, 2], [1]]
    texts = [{"text": text} for text in ("fine", BAD, "also fine", "good")]
    handler = pipelines.TextModelHandler("model", batch_size=4)
    actual = handler.run_inference(texts, model)
    assert actual[1] == answers.Failure("one of them is refused")
    assert [actual[i]["length"] for i in (0, 2, 3)] == [4, 9, 4]


def test_strings_are_the_first_input():
    model, handler = Model(), pipelines.TextModelHandler("model")
    actual = handler.run_inference(["one", {"text": "three"}], model)
    assert [answer["length"] for answer in actual] == [3, 5]
    with pytest.raises(ValueError, match="an element has review, and text is missing: the model"):
        handler.run_inference([{"review": "one"}], model)


@pytest.mark.slow
def test_run_inference_of_exports(tokenizer_of, tmp_path):
    tokenizer = tokenizer_of("wordpiece")
    backbone = tiny.make_backbone("BertBackbone", tokenizer.vocabulary_size)
    task = tasks.TextClassifier(backbone, tokenizer=tokenizer, class_names=["bad", "good"])
    texts = ["a film", "a longer text about a film", ""]
    expected = task.classify(texts)
    task.export(tmp_path / "exported")
    task.export(tmp_path / "critic.tflite")
    for name in ("exported", "critic.tflite"):
        handler = base.KeyedModelHandler(pipelines.TextModelHandler(tmp_path / name))

        def check(actual):
            actual = [answer for _, answer in sorted(actual, key=lambda pair: pair[0])]
            assert [answer["labels"] for answer in actual] == expected["labels"].tolist()
            scores = [answer["scores"] for answer in actual]
            assert np.array(scores) == pytest.approx(expected["scores"], abs=1e-5)

        with TestPipeline() as pipeline:
            answered = pipeline | beam.Create([*enumerate(texts)]) | base.RunInference(handler)
            assert_that(answered, check)


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on(model, files, monkeypatch, tmp_path):
    pipelines.answer_files("model", files, tmp_path / "whole")
    write, calls = beam_files.write_json, []

    def write_some(path, content):
        calls.append(path)
        if len(calls) == 3:
            raise RuntimeError("killed")
        write(path, content)

    monkeypatch.setattr(beam_files, "write_json", write_some)
    with pytest.raises(RuntimeError, match="killed"):
        pipelines.answer_files("model", files, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    model.batches.clear()
    pipelines.answer_files("model", files, tmp_path / "out")
    assert len(calls) == 3 + 3 + 1  # what was finished is not written again
    assert 0 < sum(map(len, model.batches)) < 16
    contents = [
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("whole", "out")
    ]
    assert contents[0] == contents[1]
    with pytest.raises(FileExistsError, match="choose another folder"):
        pipelines.answer_files("model", files, tmp_path / "out")


def test_mistakes_are_sentences(model, tmp_path):
    (tmp_path / "a.csv").write_text("id,review\n1,short\n")
    with pytest.raises(ValueError, match=r"^[^⟦]*a\.csv has no column 'text'"):
        pipelines.answer_files("model", tmp_path / "a.csv", tmp_path / "out")
    index = pipelines.answer_files("model", tmp_path / "a.csv", tmp_path / "out", text="review")
    assert index["rows"] == 1
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"one\n" * 99)[:-9])
    with pytest.raises(ValueError, match=r"b\.txt\.gz cannot be unpacked"):
        pipelines.answer_files("model", tmp_path / "b.txt.gz", tmp_path / "new")
    with pytest.raises(ValueError, match="format="):
        pipelines.answer_files("model", __file__, tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "b.txt.gz", "out"]
