"""`finetune` and `distill` of rows: killed and begun again, they end in the same weights."""

import sys
import time

import numpy as np
import pytest

from keras_lm import presets, tasks
from keras_lm.models import BertBackbone
from keras_lm.utils import files

CSV = "text,label\n" + "".join(
    f"{text},{label}\n"
    for text, label in [
        ("the film was good", "good"),
        ("the song was bad", "bad"),
        ("a loud song", "bad"),
        ("a good song is good", "good"),
        ("the film is bad !", "bad"),
    ]
    * 2
)
OPTIONS = ["--epochs", 3, "--batch-size", 3, "--learning-rate", 0.02, "--validation-split", 0.3]


def weights(preset):
    return (preset / "model.safetensors").read_bytes()


def words_and_labels(write):
    rows = '{"words": ["the", "film", "was", "good"], "labels": ["O", "B-F", "O", "O"]}\n'
    return write("train.jsonl", rows * 9)


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize(
    "more",
    [
        ["--early-stopping", 2, "--class-weight", "balanced"],
        ["--lora", 2],
    ],
    ids=["stopping", "lora"],
)
def test_a_classifier_goes_on(run, fail, interrupt, write, tiny, tmp_path, more):
    train = write("train.csv", CSV)
    line = ["finetune", tiny, train, *OPTIONS, *more, "--output"]
    said = run(*line, tmp_path / "whole")
    interrupt(5)
    assert "The same command goes on" in fail(*line, tmp_path / "new")
    assert "with another --batch-size" in fail(*line, tmp_path / "new", "--batch-size", 2)
    went_on = run(*line, tmp_path / "new")
    assert "Going on with the run in" in went_on
    assert weights(tmp_path / "new") == weights(tmp_path / "whole")
    assert not (tmp_path / "new.unfinished").exists()
    # What is said of the epochs, and of the best, is of all.
    of_validation = [part for part in said.splitlines() if part.startswith(("kept", "validation"))]
    assert of_validation and all(part in went_on for part in of_validation)


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("kind", ["token-classifier", "masked-lm", "question-answerer", "distill"])
def test_others_go_on(run, fail, interrupt, write, tiny, critic, tmp_path, kind):
    if kind == "distill":
        line = ["distill", write("train.csv", CSV), "--teacher", critic, "--student", tiny]
    elif kind == "token-classifier":
        line = ["finetune", tiny, words_and_labels(write), "--task", kind]
    elif kind == "question-answerer":
        row = '{"question": "film ?", "context": "a film was good", "answers": '
        row += '[{"text": "good", "start": 11}]}\n'
        line = ["finetune", tiny, write("train.jsonl", row * 9), "--task", kind]
    else:
        line = ["finetune", tiny, write("lines.txt", "a good film\na loud song\n" * 5)]
        line += ["--task", "masked-lm"]
    line += ["--epochs", 3, "--batch-size", 2, "--learning-rate", 0.02, "--output"]
    run(*line, tmp_path / "whole")
    interrupt(7)
    assert "The same command goes on" in fail(*line, tmp_path / "new")
    run(*line, tmp_path / "new")
    assert weights(tmp_path / "new") == weights(tmp_path / "whole")


@pytest.mark.eager
def test_a_run_that_saved_nothing_may_change(run, write, tiny, tmp_path):
    train = write("train.csv", CSV)
    unfinished = tmp_path / "new.unfinished"
    unfinished.mkdir()
    (unfinished / "run.json").write_text('{"epochs": 3}')
    run("finetune", tiny, train, "--epochs", 1, "--output", tmp_path / "new")
    assert not unfinished.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "where"), [("finetune", ""), ("distill", ""), ("distill", "file://")]
)
def test_killed_and_started_again(
    run, installed, write, tokenizer, critic, tmp_path, command, where
):
    train, tiny = write("train.csv", CSV), tmp_path / "tiny"
    backbone = BertBackbone(
        tokenizer.vocabulary_size, 1, 2, 8, 16, max_sequence_length=24, dropout=0.2
    )
    presets.save(tiny, backbone, tokenizer=tokenizer)
    if command == "finetune":
        line = ["finetune", tiny, train]
    else:
        line = ["distill", train, "--teacher", critic, "--student", tiny]
    line += [*OPTIONS[2:], "--epochs", 6, "--output"]
    run(*line, tmp_path / "whole")
    state = tmp_path / "new.unfinished" / "state.safetensors"
    line.append(f"{where}{tmp_path}/new")
    process = installed(*line)
    while process.poll() is None and not state.is_file():
        time.sleep(0.02)
    process.kill()
    process.communicate()
    assert state.is_file() and not (tmp_path / "new").exists()
    process = installed(*line)
    said, errors = process.communicate()
    assert process.returncode == 0, errors
    assert b"Going on with the run" in said
    actual, expected = (tasks.Task.from_preset(tmp_path / name) for name in ("new", "whole"))
    for ours, other in zip(actual.weights, expected.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), other.numpy(), err_msg=ours.path)
    assert not state.parent.exists()


@pytest.mark.slow
@pytest.mark.eager
@pytest.mark.parametrize("by", ["memory", "file", "tensorflow"])
def test_an_output_at_an_address(run, fail, interrupt, write, tiny, tmp_path, monkeypatch, by):
    """By fsspec, or by TensorFlow's filesystem; the state lies there, too, beside the preset."""
    if by == "tensorflow":
        monkeypatch.setitem(sys.modules, "fsspec", None)
    train = write("train.csv", CSV)
    line = ["finetune", tiny, train, *OPTIONS, "--seed", 1, "--output"]
    run(*line, tmp_path / "whole")
    address = f"{'memory' if by == 'memory' else 'file'}://{tmp_path}/new"
    logs = tmp_path / "logs"
    line = [*line[:-1], "--tensorboard", f"file://{logs}", "--output"]
    interrupt(5)
    message = fail(*line, address)
    assert f"The same command goes on from what {address}.unfinished holds" in message
    assert not files.as_path(f"{address}/keras_lm.json").exists()
    assert f"Going on with the run in {address}.unfinished" in run(*line, address)
    copy = files.local_copy(address)
    assert weights(copy) == weights(tmp_path / "whole")
    assert f'output = "{address}"' in (copy / "run.toml").read_text()
    names = {path.name for path in (tmp_path / "whole").iterdir()}
    assert {path.name for path in copy.iterdir()} == names
    assert not files.find_remote(f"{address}.unfinished/*")
    assert "is a preset already" in fail(*line, address)
    assert [*logs.rglob("events.*")]
