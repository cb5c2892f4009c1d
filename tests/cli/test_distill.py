"""`keras-lm distill`: what is learned from which files, what is written, what is refused."""

import json

import numpy as np
import pytest

from keras_lm import tasks

pytestmark = pytest.mark.eager

TEXTS = ["the film was good", "the song was bad", "a good song", "a loud film ."] * 2
QUICK = ("--epochs", 1, "--batch-size", 4)


def test_a_student_of_the_teachers_layers_from_labelled_texts(run, write, critic, tmp_path):
    rows = "".join(f"{text},{'good' if 'good' in text else 'bad'}\n" for text in TEXTS)
    train, output = write("train.csv", "text,label\n" + rows), tmp_path / "small"
    said = run(
        *("distill", train, "--teacher", critic, "--student", critic, "--layers", 1),
        *("--output", output, "--validation-split", 0.25, "--sequence-length", 16, *QUICK),
    )
    assert "6 to train on, 2 held out" in said
    assert "validation accuracy" in said
    student = tasks.Task.from_preset(output)
    assert type(student) is tasks.TextClassifier
    assert student.class_names == ["bad", "good"]
    assert student.packing["sequence_length"] == 16
    config = json.loads((output / "keras_lm.json").read_text())
    assert config["backbone"]["arguments"]["num_layers"] == 1


@pytest.mark.slow
def test_a_size_learns_from_lines_with_the_teachers_vocabulary(run, fail, write, critic, tmp_path):
    train, output = write("train.txt", "\n".join(TEXTS) + "\n"), tmp_path / "tiny"
    command = ["distill", train, "--teacher", critic, "--output", output, *QUICK]
    said = run(*command, "--student", "bert_tiny_en_uncased", "--temperature", 2)
    assert "accuracy" not in said  # there are no labels
    student, teacher = (tasks.Task.from_preset(folder) for folder in (output, critic))
    assert student.backbone.config["vocabulary_size"] == teacher.tokenizer.vocabulary_size
    assert student.tokenizer.vocabulary == teacher.tokenizer.vocabulary
    message = fail(*command, "--student", "gpt2_base_en", "--overwrite")
    assert "BytePairTokenizer" in message and "give a preset" in message
    message = fail(*command, "--student", critic, "--validation-split", 0.5, "--overwrite")
    assert "train.txt has no labels, which validation measures on" in message


@pytest.mark.slow
def test_numbers_of_pairs(run, write, matcher, tiny, tmp_path):
    rows = [{"text": text, "text_pair": text[::-1], "label": 0.5} for text in TEXTS]
    train = write("train.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    command = ("distill", train, "--teacher", matcher, "--student", tiny, *QUICK)
    assert "mean_absolute_error" in run(*command, "--output", tmp_path / "new")
    student = tasks.Task.from_preset(tmp_path / "new")
    assert type(student) is tasks.TextRegressor
    assert np.isfinite(student.regress((["a film"], ["a song"]))["scores"]).all()


@pytest.mark.thorough
def test_words_and_choices(run, fail, write, make_backbone, tokenizer, tiny, tmp_path):
    tagger = tasks.TokenClassifier(
        make_backbone(), class_names=["O", "X"], crf=True, tokenizer=tokenizer
    )
    chooser = tasks.MultipleChoice(make_backbone(), tokenizer=tokenizer)
    words = "".join(f"{json.dumps({'words': text.split()})}\n" for text in TEXTS[:3])
    row = {"text": "a film", "choices": ["good", "a bad song"], "label": 1}
    for task, student, content in [
        (tagger, tmp_path / "teacher", words),  # without its CRF
        (chooser, tiny, f"{json.dumps(row)}\n" * 3),
    ]:
        task.save_to_preset(tmp_path / "teacher")
        train = write("train.jsonl", content)
        line = ["distill", train, "--teacher", tmp_path / "teacher", "--student", student, *QUICK]
        said = run(*line, "--output", tmp_path / "new", "--overwrite")
        assert ("accuracy" in said) == (task is chooser)  # the words have no labels
        small = tasks.Task.from_preset(tmp_path / "new")
        assert type(small) is type(task)
        assert not getattr(small, "crf", None)
    message = fail(*line, "--output", tmp_path / "other", "--text-pair", "choices")
    assert "--text-pair is not for" in message and "a MultipleChoice" in message


def test_what_cannot_be_is_refused(fail, write, critic, tiny, tmp_path):
    train, output = write("train.csv", "text,label\na film,loud\n"), tmp_path / "new"

    def refuse(*options, file=train):
        return fail("distill", file, "--student", tiny, "--output", output, *options)

    assert "no task: a teacher is a TextClassifier" in refuse("--teacher", tiny)
    assert "loud" in refuse("--teacher", critic)  # is no class of the teacher
    assert "layers 2: the teacher has 1" in refuse(
        *("--teacher", critic, "--layers", 2), file=write("a.txt", "a film\n")
    )
    assert "early-stopping looks at" in refuse("--teacher", critic, "--early-stopping", 1)
    assert "There is no folder" in refuse("--teacher", tmp_path / "nothing")
    assert not output.exists()
