"""Sources and their targets from files through `finetune`, `evaluate`, `translate`, `predict`."""

import json

import keras
import numpy as np
import pytest
import sacrebleu

from keras_lm import presets, tasks
from keras_lm.datasets.examples import read_examples
from keras_lm.models import T5Backbone

pytestmark = pytest.mark.eager

SOURCES = ["the film was good", "a song", "bad , loud", ""]
TARGETS = ["song was bad .", "the film", "good !", "a"]
# sacreBLEU's own default needs four words.
ROWS = [{"text": text, "translation": target} for text, target in zip(SOURCES, TARGETS)]


def read(path, targets=None, **columns):
    return read_examples(path, "seq2seq-lm", targets=targets and str(targets), **columns)


@pytest.fixture(scope="module")
def writer(tmp_path_factory, tokenizer):
    """A preset of an encoder-decoder without a task's weights."""
    keras.utils.set_random_seed(0)
    backbone = T5Backbone(tokenizer.vocabulary_size, 1, 2, 16, 24, num_buckets=8, dropout=0.0)
    folder = tmp_path_factory.mktemp("writers") / "t5"
    presets.save(folder, backbone, tokenizer=tokenizer)
    return folder


def test_columns_and_lines_are_the_same_rows(write):
    lines = write("a.en", "\n".join(SOURCES) + "\n"), write("a.de", "\r\n".join(TARGETS))
    columns = write("a.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS))
    named = write("a.tsv", "q\ta\n" + "".join(f"{a}\t{b}\n" for a, b in zip(SOURCES, TARGETS)))
    for examples in (read(*lines), read(columns), read(named, text="q", labels="a")):
        assert examples.texts == {"text": SOURCES}
        assert examples.labels == examples.targets() == TARGETS


def test_what_has_no_targets_is_refused(write):
    two, one = write("two.en", "a\nb\n"), write("one.de", "c\n")
    message = r"two.en has 2 lines, but .*one.de has 1: each line needs its target"
    with pytest.raises(ValueError, match=message):
        read(two, one)
    with pytest.raises(ValueError, match=r"two.en has 2 lines, but .*one.de has 1"):
        read(one, two)
    with pytest.raises(ValueError, match=r"lines without targets.*targets="):
        read(write("a.txt", "a\nb\n"))
    with pytest.raises(ValueError, match=r"no column 'labels' or .*'summary'.*labels="):
        read(write("a.csv", "text,other\na,b\n"))
    with pytest.raises(ValueError, match="line 1: 'label' is 3, not a string"):
        read(write("a.jsonl", '{"text": "a", "label": 3}'))


@pytest.fixture
def asked(monkeypatch):
    """What `generate` was asked for, which answers with the first of `TARGETS`."""
    calls = []

    def generate(self, x, **options):
        calls.append({"x": x} | {name: v for name, v in options.items() if v is not None})
        number = options.get("num_return_sequences", 1)
        texts = TARGETS[: len(x["text"])]
        if options.get("return_scores"):
            return texts, -np.arange(len(texts), dtype="float32") / 10
        return texts if number == 1 else [[text + "\n?"] * number for text in texts]

    monkeypatch.setattr(tasks.Seq2SeqLM, "generate", generate)
    return calls


@pytest.fixture(scope="module")
def preset(writer, tmp_path_factory):
    """A preset of a task that has not learnt anything."""
    arguments = {"sequence_length": 12, "target_length": 3}
    folder = tmp_path_factory.mktemp("writers") / "task"
    tasks.Seq2SeqLM.from_preset(writer, **arguments).save_to_preset(folder)
    return folder


@pytest.mark.slow
def test_a_translator_is_trained(run, write, writer, tmp_path):
    file, targets = write("a.en", "\n".join(SOURCES) + "\n"), write("a.de", "\n".join(TARGETS))
    preset = tmp_path / "translator"
    arguments = ["--epochs", 1, "--num-beams", 2, "--length-penalty", 0.5, "--coverage-penalty", 0]
    arguments += ["--sequence-length", 12, "--target-length", 5, "--label-smoothing", 0.1]
    files = ["--targets", targets, "--validation", file, "--validation-targets", targets]
    said = run("finetune", writer, file, *files, "--output", preset, *arguments)
    task = tasks.Seq2SeqLM.from_preset(preset)
    assert (task.num_beams, task.length_penalty, task.target_length) == (2, 0.5, 5)
    assert task.coverage_penalty == 0
    rows = dict(line.split()[-3:-1] if "," in line else line.rsplit(maxsplit=1)
                for line in said.splitlines()[-8:-1])  # fmt: skip
    expected = task.evaluate(SOURCES, TARGETS, verbose=0, return_dict=True)
    results = {name: float(rows[f"validation {name}"]) for name in ("perplexity", "accuracy")}
    assert results == {name: pytest.approx(expected[name], abs=2e-4) for name in results}
    assert abs(float(rows["validation loss"]) - expected["loss"]) > 1e-3  # it is the smoothed one


def test_a_translator_is_measured(run, fail, write, preset, critic, asked):
    file, targets = (
        write("a.en", "\n".join(SOURCES) + "\n"),
        write("a.de", "\n".join(TARGETS[::-1])),
    )
    search = ["--num-beams", 3, "--length-penalty", 0, "--coverage-penalty", 0.2]
    search_as_asked = {"num_beams": 3, "length_penalty": 0.0, "coverage_penalty": 0.2}
    message = json.loads(run("evaluate", preset, file, "--targets", targets, *search, "--json"))
    assert asked == [{"x": {"text": SOURCES}, "batch_size": 32} | search_as_asked]
    bleu, chrf = sacrebleu.metrics.BLEU(force=True), sacrebleu.metrics.CHRF()
    assert message["bleu"] == pytest.approx(bleu.corpus_score(TARGETS, [TARGETS[::-1]]).score)
    assert message["chrf"] == pytest.approx(chrf.corpus_score(TARGETS, [TARGETS[::-1]]).score)
    assert message["bleu_signature"] == str(bleu.get_signature())
    expected = tasks.Seq2SeqLM.from_preset(preset).evaluate(SOURCES, TARGETS[::-1], verbose=0)
    assert message["perplexity"] == pytest.approx(expected[1])

    article = {"text": "A cat. The film. It was! Or was it?", "summary": TARGETS[0]}
    chosen = ["--metric", "rouge", "--metric", "chrf"]
    table = run("evaluate", preset, write("a.jsonl", json.dumps(article)), *chosen)
    rows = dict(line.rsplit(maxsplit=1) for line in table.splitlines())
    assert [name for name in rows if name.startswith("rouge")] == [
        *("rouge1", "rouge2", "rougel", "rougelsum")
    ]
    assert float(rows["rouge2"]) == 1.0
    assert float(rows["lead3 rouge1"]) == pytest.approx(2 * 1 / (6 + 3), abs=1e-4)
    assert rows["chrf signature"] == message["chrf_signature"]
    assert "bleu" not in table
    assert "are for a Seq2SeqLM" in fail(
        "evaluate", critic, write("c.csv", "text,label\na,good"), "--metric", "bleu"
    )
    assert "tokenize='none-such': pass one of sacreBLEU's, none, zh, 13a" in fail(
        "evaluate", preset, file, "--targets", targets, "--bleu-tokenizer", "none-such"
    )


@pytest.mark.slow
def test_what_is_asked_for_is_what_python_answers(run, preset, tmp_path, write):
    (expected,) = tasks.Seq2SeqLM.from_preset(preset).generate(SOURCES[:1])
    file, output = write("a.en", SOURCES[0]), tmp_path / "a.out"
    run("translate", preset, "--input", file, "--format", "lines", "--output", output)
    assert output.read_text() == expected + "\n"
    (answer,) = map(json.loads, run("predict", preset, SOURCES[0]).splitlines())
    assert answer["answer"]["text"] == expected


def test_options_are_those_of_generate(run, fail, writer, preset, critic, asked):
    drawn = ["--num-beams", 1, "--temperature", 2.0, "--top-k", 3, "--seed", 1, "--prefix", "bad"]
    assert run("translate", preset, "a song", *drawn) == TARGETS[0] + "\n"
    (call,) = asked
    assert {
        "num_beams": 1,
        "temperature": 2.0,
        "top_k": 3,
        "seed": 1,
        "prefix": "bad",
    }.items() <= call.items()
    assert call["x"] == {"text": ["a song"]}
    several = ["--num-return-sequences", 2, "--json"]
    answers = run("translate", preset, *several, input="a\nb\n").splitlines()
    assert [json.loads(line) for line in answers] == [
        {"input": {"text": text}, "answer": {"text": [target + "\n?"] * 2}}
        for text, target in zip("ab", TARGETS)
    ]
    # As a published checkpoint, which states no task.
    assert run("translate", writer, "a song") == TARGETS[0] + "\n"
    searched = run("translate", preset, "a", "b", "--num-beams", 2, "--json", "--forbidden", "bad")
    assert [json.loads(line)["answer"] for line in searched.splitlines()] == [
        {"text": TARGETS[0], "scores": 0.0},
        {"text": TARGETS[1], "scores": -0.1},
    ]
    assert asked[-1]["forbidden"] == ("bad",)
    assert "holds TextClassifier, which does not write" in fail("translate", critic, "a")


def test_writing_is_a_form_of_predict(run, fail, preset, critic, asked):
    drawn = ["--temperature", 2.0, "--seed", 1]
    assert run("predict", preset, "a song", *drawn, "--lines") == TARGETS[0] + "\n"
    assert {"temperature": 2.0, "seed": 1}.items() <= asked[-1].items()
    (line,) = run("predict", preset, "a", "--num-beams", 2).splitlines()
    assert json.loads(line)["answer"] == {"text": TARGETS[0], "scores": 0.0}
    assert "holds TextClassifier, which does not write" in fail("predict", critic, "a", *drawn)
    assert "--lines is for answers" in fail("predict", critic, "a", "--lines")


def test_generates_errors_name_the_options(fail, preset):
    message = fail("translate", preset, "a", "--num-beams", 2, "--temperature", 1)
    assert "--num-beams 2 with --temperature 1.0" in message
