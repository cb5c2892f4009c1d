"""`keras-lm prepare`, and `pretrain` on what it wrote."""

import json
import time

import pytest

pytest.importorskip("apache_beam", reason="needs: pip install keras-lm[beam]")

from keras_lm import data, tasks

SENTENCES = "the film was good\na bad song\nis it loud ?\n\nthe song was loud\ngood film !\n\n"

pytestmark = pytest.mark.eager


@pytest.fixture
def corpus(write):
    return write("texts.txt", SENTENCES * 3 + "a loud film was bad\n")


@pytest.fixture
def prepare(tiny, corpus, tmp_path):
    """`prepare(…)` are the arguments of a command that writes shards for a tiny BERT."""

    def arguments(*more):
        where = ["--from", tiny, "--output", tmp_path / "shards"]
        size = ["--sequence-length", 16, "--shards", 1, "--duplicates", "keep"]
        return ["prepare", corpus, *where, *size, *more]

    return arguments


@pytest.mark.slow
def test_prepare_then_pretrain(run, fail, prepare, tiny, corpus, tmp_path):
    shards, preset = tmp_path / "shards", tmp_path / "preset"
    shown = run(*prepare("--document", "block", "--objective", "next-sentence"))
    assert "next_sentence" in (shards / "tokens.json").read_text()
    number = sum(shard["windows"] for shard in data.read_token_index(shards)["shards"])
    assert f"{number} of 16 tokens" in shown and "near duplicates" in shown
    assert "choose another folder" in fail(*prepare())

    going_on = ["pretrain", shards, "--from", tiny, "--output", preset, "--batch-size", 2]
    shown = run(*going_on, "--validation", shards)
    assert "validation loss" in shown and "objective  masked-lm, next-sentence" in shown
    assert type(tasks.Task.from_preset(preset)) is tasks.Pretrainer
    stored = (preset / "run.toml").read_text()
    assert 'form = "next-sentence"' in stored and "sequence-length = 16" in stored

    # What has been decided cannot be decided again.
    other = [*going_on[:-3], tmp_path / "other", "--batch-size", 2]
    assert "--form is for text files" in fail(*other, "--form", "single")
    assert "--sequence-length 24 differs" in fail(*other, "--sequence-length", 24)
    assert "is not what --objective sentence-order reads" in fail(
        *other, "--objective", "sentence-order"
    )
    assert "give one folder" in fail(*other, shards)
    index = json.loads((shards / "tokens.json").read_text())
    index["template"]["single"] = "$A:0"
    (shards / "tokens.json").write_text(json.dumps(index))
    assert "rows for another model than BertBackbone" in fail(*other)
    (shards / "tokens.json").unlink()
    assert "a folder without tokens.json" in fail(*other)
    assert not (tmp_path / "other").exists()


def test_training_says_which_shard_differs(run, fail, prepare, tiny, tmp_path):
    run(*prepare("--form", "single"))
    shard = tmp_path / "shards" / "tokens-00000-of-00001.tfrecord"
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    message = fail("pretrain", shard.parent, "--from", tiny, "--output", tmp_path / "preset")
    assert "tokens-00000-of-00001.tfrecord has changed since" in message
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shards", "texts.txt"]


def test_mistakes_are_sentences(fail, prepare, tiny, write, tmp_path):
    def refused(*more):
        return fail(*prepare(*more))

    assert "Say what to prepare for" in refused("--vocabulary", tiny)
    bare = ["prepare", "texts.txt", "--output", tmp_path / "new", "--sequence-length", 16]
    assert "go together" in fail(*bare, "--vocabulary", tiny)
    assert "is not a size" in fail(*bare, "--vocabulary", tiny, "--size", "bert_bass")
    assert "--processes is for --runner DirectRunner" in refused(
        "--runner", "FlinkRunner", "--processes", 2
    )
    assert "add --split-sentences" in refused("--objective", "next-sentence")
    assert "no option --flink_mistress" in refused("--", "--flink_mistress=localhost")
    bad = write("bad.txt", b"one\n\xff\n")
    assert "bad.txt, line 2: not UTF-8" in fail("prepare", bad, *prepare()[2:])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.txt", "texts.txt"]


@pytest.mark.slow
def test_a_model_of_either_direction_has_rows_by_its_objective(run, fail, tiny, corpus, tmp_path):
    shards = tmp_path / "shards"
    size = ["--size", "reformer_enwik8_en", "--vocabulary", tiny, "--sequence-length", 16]
    line = ["prepare", corpus, *size, "--shards", 1, "--output", shards]
    assert "'eos' has no special token" in fail(*line)  # which separates texts of causal models
    assert not shards.exists()
    run(*line, "--objective", "masked-lm")
    index = data.read_token_index(shards)
    assert index["template"]["single"] == "$A:0"
    assert index["settings"]["form"] == "doc_sentences"


@pytest.mark.slow
def test_processes_that_are_killed_and_started_again(run, installed, prepare, corpus, tmp_path):
    """Bytes are those of one process, whatever number there is, and wherever it was killed."""
    corpus.write_text(
        "\n".join(f"the film number {i} was good and the song {i} loud" for i in range(400))
    )
    shards, unfinished = tmp_path / "shards", tmp_path / "shards.unfinished"
    arguments = ["4" if part == 1 else part for part in prepare()]
    run(*arguments)
    expected = {path.name: path.read_bytes() for path in shards.iterdir()}
    several = [*arguments, "--overwrite", "--processes", 2]
    process = installed(*several)
    while process.poll() is None and not any(unfinished.glob("*.tfrecord*")):
        time.sleep(0.05)
    process.kill()
    process.communicate()
    assert {path.name: path.read_bytes() for path in shards.iterdir()} == expected
    process = installed(*several)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert {path.name: path.read_bytes() for path in shards.iterdir()} == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shards", "texts.txt"]
