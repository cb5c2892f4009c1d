"""The board of GLUE: what of a folder is trained on, what is written, and how it goes on."""

import json
import zipfile

import numpy as np
import pytest
from click.testing import CliRunner

from glue import baselines, report
from glue import tasks as glue_tasks
from glue.board import Setting
from glue.command import GRIDS, glue_command, list_settings
from glue.published import PUBLISHED_ROWS, ScoredRow
from glue.tasks import TASKS, find_tasks
from glue.vectors import learn_vectors, write_vectors
from keras_lm import tasks
from keras_lm.converters import read_word_vectors

pytestmark = pytest.mark.eager

SENTENCES = ["the film was good", "the song was bad", "a good song !", "a loud film ."] * 2


def invoke(*arguments):
    return CliRunner().invoke(glue_command, [*map(str, arguments)])


@pytest.fixture
def run():
    def run(*arguments):
        result = invoke(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


@pytest.fixture
def fail():
    def fail(*arguments):
        result = invoke(*arguments)
        assert result.exit_code in (1, 2), result.output
        return " ".join(result.stderr.split())

    return fail


NAMES = ("entailment", "neutral", "contradiction")


def table(*header, rows):
    return "".join("\t".join(map(str, row)) + "\n" for row in ([header] if header else []) + rows)


@pytest.fixture
def data(tmp_path):
    """GLUE in small: CoLA, STS-B and MNLI whole, AX, RTE with a dev set alone."""
    cola = [("gj04", int("good" in text), "*", text) for text in SENTENCES[:6]]
    pairs = [(n, text, text[::-1], NAMES[n % 3]) for n, text in enumerate(SENTENCES)]
    scores = [("g", "f", "2012", n, 0.5 * n, text, text) for n, text in enumerate(SENTENCES)]
    unlabelled = table("index", "sentence1", "sentence2", rows=[row[:3] for row in pairs[:3]])
    labelled = table("index", "sentence1", "sentence2", "gold_label", rows=pairs)
    for name, content in {
        "CoLA/train.tsv": table(rows=cola),
        "CoLA/dev.tsv": table(rows=cola),
        "CoLA/test.tsv": table("index", "sentence", rows=[(7, "a film"), (8, "a song")]),
        "stsb/sts-train.csv": table(rows=scores),
        "stsb/sts-dev.csv": table(rows=scores),
        "MNLI/train.tsv": labelled,
        "MNLI/dev_matched.tsv": labelled,
        "MNLI/dev_mismatched.tsv": labelled,
        "MNLI/test_mismatched.tsv": unlabelled,
        "diagnostic/diagnostic.tsv": unlabelled,
        "RTE/dev.tsv": labelled.replace("gold_label", "label"),
    }.items():
        path = tmp_path / "glue_data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path / "glue_data"


@pytest.mark.slow
def test_a_board_and_going_on_with_it(run, fail, tiny, data, tmp_path, monkeypatch):
    monkeypatch.setattr(glue_tasks, "SMALL", 8)  # only CoLA has fewer rows
    board = tmp_path / "board"
    command = (tiny, "--data", data, "--output", board, "--epochs", 1)
    said = run(*command, "--restarts", 2)
    assert "RTE is left out" in said and "has no training file" in said
    assert "QQP is left out" in said
    assert "The leaderboard also wants SST-2.tsv, MRPC.tsv, STS-B.tsv, QQP.tsv, MNLI-m.tsv" in said
    assert "| tiny (2) | dev |" in said and "| BERT-base (" in said

    runs = sorted((board / "runs" / "tiny" / "CoLA").iterdir())
    assert [path.stem for path in runs] == ["batch32-epochs1-seed0", "batch32-epochs1-seed1"]
    assert len([*(board / "runs" / "tiny" / "MNLI").iterdir()]) == 1  # only small sets have several
    actual = json.loads((board / "scores.json").read_text())
    assert actual["tasks"] == ["CoLA", "STS-B", "MNLI"]
    rows = {row["name"]: row for row in actual["rows"]}
    best = max(json.loads(path.read_text())["scores"]["matthews"] for path in runs)
    assert rows["tiny"]["scores"]["CoLA"] == {"matthews": best}
    assert {*rows["tiny"]["scores"]["MNLI"]} == {"matched", "mismatched"}
    frequent = rows["most frequent answer"]["scores"]
    assert frequent["CoLA"] == {"matthews": 0.0}
    assert frequent["MNLI"]["matched"] == pytest.approx(37.5)
    assert (board / "scores.png").read_bytes().startswith(b"\x89PNG")

    # What is kept is what was measured, and what was answered.
    kept = tasks.TextClassifier.from_preset(board / "presets" / "tiny" / "MNLI")
    with zipfile.ZipFile(board / "submission" / "tiny" / "submission.zip") as archive:
        assert archive.namelist() == ["CoLA.tsv", "MNLI-mm.tsv", "AX.tsv"]
        lines = archive.read("AX.tsv").decode().split("\n")
        assert archive.read("CoLA.tsv").decode().startswith("index\tprediction\n7\t")
    pairs = (SENTENCES[:3], [text[::-1] for text in SENTENCES[:3]])
    answers = [f"{n}\t{label}" for n, label in enumerate(kept.classify(pairs)["labels"])]
    assert lines == ["index\tprediction", *answers, ""]

    # Again, after a run and a file got lost: these are made once more, and nothing else.
    content = runs[1].read_text()
    runs[1].unlink()
    (board / "submission" / "tiny" / "CoLA.tsv").unlink()
    again = run(*command, "--restarts", 2)
    assert again.count("tiny, batch") == 1 and "MNLI-mm.tsv" not in again.partition("# GLUE")[0]
    assert json.loads(runs[1].read_text()) == json.loads(content)
    assert (board / "submission" / "tiny" / "CoLA.tsv").is_file()

    message = fail(*command, "--rows", 4)
    assert "holds runs with another rows, None" in message
    message = fail(*command, "--sequence-length", 8)
    assert "holds runs with another sequence_length" in message
    assert "holds no board" in fail(*command[:-3], data, "--epochs", 1)


def test_a_small_board_by_a_grid(run, tiny, data, tmp_path):
    board = tmp_path / "board"
    line = (tiny, "--data", data, "--output", board, "--tasks", "cola", "--rows", 3)
    said = run(*line, "--grid", "gpt", "--name", "small")
    assert not (board / "submission").exists()
    assert "3 rows of each file" in said
    (path,) = (board / "runs" / "small" / "CoLA").iterdir()
    assert path.stem == "batch32-epochs3-rate6.25e-05-seed0"
    assert json.loads(path.read_text())["rows"] == 3


@pytest.mark.slow
def test_baselines_stand_in_the_same_table(run, tiny, data, tmp_path, monkeypatch):
    small = {"num_layers": 1, "hidden_dim": 4, "cell_dim": 4, "characters_per_word": 6}
    monkeypatch.setattr(baselines, "ELMO", small)
    monkeypatch.setattr(baselines, "FILTERS", [(1, 4), (2, 4)])
    monkeypatch.setattr(baselines, "HIDDEN_DIM", 8)
    monkeypatch.setattr(baselines, "EPOCHS", 1)
    board = tmp_path / "board"
    line = (tiny, "--data", data, "--output", board, "--rows", 4, "--tasks", "STS-B")
    said = run(*line, "--epochs", 1, "--baselines")
    assert "word vectors: learned from 16 texts" in said and "ELMo: learned from 16 texts" in said
    rows = json.loads((board / "scores.json").read_text())["rows"]
    own = {row["name"]: row for row in rows if "4 rows of each file" in row["note"]}
    words, contexts = ("CBoW", "BiLSTM + attention", "ESIM"), ("BiLSTM + attention", "ESIM")
    assert {*words, *(f"{name} + ELMo" for name in contexts)} < {*own}
    assert all("learned from the board's own texts" in own[name]["note"] for name in words)
    assert "learned" not in run(*line, "--epochs", 1, "--baselines").partition("# GLUE")[0]


def test_words_that_stand_for_each_other_have_vectors_alike(tmp_path):
    random = np.random.default_rng(0)
    people, things = ["she", "he", "bob"], ["tea", "milk", "soup"]
    texts = [
        f"{random.choice(people)} drank {random.choice(['hot', 'cold'])} {random.choice(things)} ."
        for _ in range(200)
    ]
    words, vectors = learn_vectors(texts, embedding_dim=4, window=2)
    write_vectors(tmp_path / "vectors.txt", words, vectors)
    again, read = read_word_vectors(tmp_path / "vectors.txt")
    assert again == words
    np.testing.assert_allclose(read, vectors, atol=1e-3)
    unit = read / np.maximum(np.linalg.norm(read, axis=1, keepdims=True), 1e-9)
    near = {one: {two: unit[words.index(one)] @ unit[words.index(two)] for two in words}
            for one in ("tea", "she")}  # fmt: skip
    assert near["tea"]["milk"] > 0.9 > near["tea"]["she"]
    assert near["she"]["bob"] > 0.9 > near["she"]["hot"]


def test_grids_are_those_of_the_papers():
    none = dict.fromkeys(("batch_size", "epochs", "learning_rate"))
    sizes = {grid: len(list_settings(grid, 0, none)) for grid in GRIDS}
    assert sizes == {"bert": 4, "bert-appendix": 18, "gpt": 1, "roberta": 6}
    assert list_settings(None, 7, none) == [Setting(32, 3, None, 7)]


def test_what_cannot_be_is_refused(fail, write, tiny, data, tmp_path):
    line = (tiny, "--data", data, "--output", tmp_path / "board")
    assert "Did you mean cola?" in fail(*line, "--tasks", "CoLa,Colla")
    assert "has its own --epochs" in fail(*line, "--grid", "bert", "--epochs", 2)
    assert "--elmo is for --baselines" in fail(*line, "--elmo", tiny)
    assert "cannot be the name of a folder" in fail(*line, "--name", "a/b")
    assert "has nothing to train on" in fail(*line, "--tasks", "RTE")
    (data / "CoLA" / "train.tsv").write_text("no table")
    assert "CoLA/train.tsv, line 1" in fail(*line)
    (data / "CoLA" / "train.tsv").write_text("")
    assert "has no rows" in fail(*line)
    assert not (tmp_path / "board").exists()


def test_what_is_left_out_and_why(data):
    (data / "CoLA" / "dev.tsv").write_text("index\tsentence\n0\ta film\n")
    actual, skipped = find_tasks(data, [*TASKS])
    assert [each.task.name for each in actual] == ["STS-B", "MNLI"]
    assert "dev.tsv has no labels" in skipped["CoLA"]
    assert "it has dev.tsv" in skipped["RTE"]
    (data / "MNLI" / "dev_matched.tsv").unlink()
    actual, skipped = find_tasks(data, ["MNLI"])
    assert {*actual[0].dev} == {"mismatched"} and {*actual[0].test} == {"MNLI-mm.tsv", "AX.tsv"}
    (data / "MNLI" / "train.tsv").unlink()
    assert skipped == {} and {*find_tasks(data, ["MNLI"])[1]} == {"MNLI", "AX"}


def test_answers_are_those_that_the_leaderboard_reads(tmp_path):
    one = np.array([[0.0, 1.0], [3.0, 1.0]])
    three = np.eye(3)[[2, 0]]
    for name, outputs, ids, wanted in [
        ("RTE", one, ["4", "5"], ["4\tnot_entailment", "5\tentailment"]),
        ("WNLI", one, None, ["0\t1", "1\t0"]),
        ("MNLI", three, ["9e", "8n"], ["0\tcontradiction", "1\tentailment"]),
        ("STS-B", np.array([[5.3], [-0.1]]), None, ["0\t5.000", "1\t0.000"]),
    ]:
        report.write_answers(tmp_path / "a.tsv", TASKS[name], outputs, ids)
        lines = (tmp_path / "a.tsv").read_text().splitlines()
        assert lines == ["index\tprediction", *wanted]
    files = {f"{name}.tsv" for name in ("CoLA", "SST-2", "MRPC", "STS-B", "MNLI-m", "MNLI-mm")}
    files |= {f"{name}.tsv" for name in ("QNLI", "QQP", "RTE", "WNLI", "AX")}
    assert {*glue_tasks.SUBMITTED} == files


def test_averages():
    """Those that were published come out of their rows."""
    rows = {(row.name, row.measured_on): row for row in PUBLISHED_ROWS}
    for name, average in [
        ("people", 87.1),
        ("T5", 90.3),
        ("ELECTRA", 89.4),
        ("BERT-large", 80.5),
        ("mean of word vectors (CBoW)", 58.9),
        ("BiLSTM + attention, ELMo", 66.5),
    ]:
        assert rows[name, "test"].average([*TASKS]) == pytest.approx(average, abs=0.06)
    assert rows["BERT-base", "test"].average([*TASKS]) is None
    assert ScoredRow("none", "dev", {}).average([]) is None
