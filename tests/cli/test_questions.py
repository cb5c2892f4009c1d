"""Questions on contexts, from SQuAD's files and columns through the commands."""

import json
import re

import pytest

from keras_lm import tasks
from keras_lm.datasets.examples import read_examples

CONTEXT = "a film was good . a song was loud ."
ROWS = [
    {"id": "1", "question": "film ?", "answers": [{"text": "good", "answer_start": 11}]},
    {"id": "2", "question": "song ?", "answers": [{"text": "loud", "answer_start": 29}]},
    {"id": "3", "question": "the ?", "answers": []},
    {"id": "4", "question": "bad ?", "answers": [], "is_impossible": True},
]
SQUAD = json.dumps({"data": [{"paragraphs": [{"context": CONTEXT, "qas": ROWS}]}]})
COLUMNS = [{**row, "context": CONTEXT} for row in ROWS]


def read(path, **columns):
    return read_examples(path, "question-answerer", **columns)


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_huggingface(row):
    answers = row["answers"]
    texts, starts = ([a[name] for a in answers] for name in ("text", "answer_start"))
    return row | {"answers": {"text": texts, "answer_start": starts}}


def with_other_names(row):
    return {"q": row["question"], "c": row["context"], "a": row["answers"]}


@pytest.mark.parametrize(
    "name, content, columns",
    [
        ("a.json", SQUAD, {}),
        ("a.jsonl", lines(COLUMNS), {}),
        ("a.jsonl", lines(map(as_huggingface, COLUMNS)), {}),
        (
            "a.jsonl",
            lines(map(with_other_names, COLUMNS)),
            {"text": "q", "text_pair": "c", "labels": "a"},
        ),
    ],
)
def test_files(write, name, content, columns):
    examples = read(write(name, content), **columns)
    assert examples.texts["question"] == [row["question"] for row in ROWS]
    assert examples.texts["context"] == [CONTEXT] * 4
    assert examples.targets() == [
        [{"text": "good", "start": 11}],
        [{"text": "loud", "start": 29}],
        [],
        [],
    ]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.json", SQUAD[:-2], "a.json: not JSON, or cut off"),
        ("a.jsonl", lines([COLUMNS[0] | {"answers": "good"}]), "line 1: write an answer as"),
        ("a.jsonl", lines([COLUMNS[0] | {"answers": {"text": ["a"]}}]), "as many starts as texts"),
        ("a.jsonl", lines([COLUMNS[0] | {"question": None}]), "line 1: there is no 'question'"),
        ("a.jsonl", lines([COLUMNS[0]])[:-9], "line 1: not JSON"),
        ("a.jsonl", lines([{"question": "?"}]), "no column 'context'.*text_pair="),
    ],
)
def test_bad_files(write, name, content, message):
    with pytest.raises(ValueError, match=message):
        read(write(name, content))


@pytest.mark.slow
@pytest.mark.eager
def test_a_reader_is_trained_measured_and_asked(run, fail, write, tiny, tmp_path):
    file, preset = write("train.json", SQUAD), tmp_path / "reader"
    arguments = ["--task", "question-answerer", "--epochs", 1, "--batch-size", 8]
    said = run("finetune", tiny, file, "--validation", file, "--output", preset, *arguments)
    assert "validation exact match" in said.replace("_", " ") and "null threshold" in said
    actual = json.loads(run("evaluate", preset, file, "--json"))
    task = tasks.QuestionAnswerer.from_preset(preset)
    examples = read(file)
    assert actual["f1"] == pytest.approx(task.score(examples.texts, examples.labels)["f1"])
    assert actual["texts"] == 4
    for measure in ("exact_match", "f1", "no_answer_accuracy"):  # those of the saved threshold
        value = float(re.search(rf"validation {measure} +([\d.]+)", said)[1])
        assert value == pytest.approx(actual[measure], abs=1e-4)
        assert f"| val_{measure} | {actual[measure]:.4g} |" in (preset / "README.md").read_text()
    answers = [json.loads(line) for line in run("predict", preset, "--input", file).splitlines()]
    assert [row["input"]["id"] for row in answers] == ["1", "2", "3", "4"]
    best = [row[0] for row in task.answer(examples.texts)]
    assert [row["answer"]["text"][0] for row in answers] == [answer["text"] for answer in best]

    always = write("always.jsonl", lines(COLUMNS[:2]))
    run("finetune", tiny, always, "--output", tmp_path / "always", *arguments)
    assert tasks.QuestionAnswerer.from_preset(tmp_path / "always").null_threshold is None
    wrong = write("wrong.jsonl", lines([COLUMNS[0] | {"question": "x", "context": "y"}]))
    message = fail("finetune", tiny, wrong, "--output", tmp_path / "wrong", *arguments)
    assert "labels[0]: the answer 'good' is not at start=11" in message
