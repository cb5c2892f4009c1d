"""`--format NAME`: files of published data sets through the commands, with their ids."""

import json

import numpy as np
import pytest

from keras_lm import tasks
from keras_lm.datasets.examples import check_file, read_examples
from keras_lm.datasets.row_files import check_targets
from keras_lm.evaluation import measure
from keras_lm.models import GPT2Backbone

pytestmark = pytest.mark.eager

COLUMNS = dict.fromkeys(["text", "text_pair", "labels", "choices"])
SNLI = [
    {"pairID": "1", "sentence1": "a film", "sentence2": "good", "gold_label": "entailment"},
    {"pairID": "2", "sentence1": "a song", "sentence2": "bad", "gold_label": "-"},
    {"pairID": "3", "sentence1": "a song", "sentence2": "loud", "gold_label": "neutral"},
    {"pairID": "4", "sentence1": "a film", "sentence2": "bad", "gold_label": "contradiction"},
]
SST2 = "index\tsentence\n7\ta good film\n8\tthe song\n"
CODAH = "o\ta film\tgood\tbad\tloud\tthe song\t1\n"
RACE = {"id": "r", "article": "a film", "questions": ["_ ?"], "options": [["good", "bad"]]}


@pytest.fixture
def snli(write):
    return write("snli.jsonl", "".join(json.dumps(row) + "\n" for row in SNLI))


def test_rows_of_each_task(write, snli):
    rows = read_examples(str(snli), "text-classifier", "snli")
    assert rows.texts == {
        "text": ["a film", "a song", "a film"],
        "text_pair": ["good", "loud", "bad"],
    }
    assert rows.rows.left_out == 1
    assert rows.targets(["contradiction", "entailment", "neutral"]).tolist() == [1, 2, 0]
    assert rows.targets(["0", "1", "2"]).tolist() == [0, 1, 2]  # a checkpoint without names

    path = str(write("sst2", "sentence\tlabel\na good film\t1\nbad\t0\n"))
    rows = read_examples(path, "text-classifier", "sst2")
    assert rows.targets(["positive", "negative"]).tolist() == [0, 1]
    assert rows.targets(["0", "1"]).tolist() == [1, 0]

    path = str(write("codah.tsv", CODAH))
    check_file(path, "codah", COLUMNS)
    rows = read_examples(path, "multiple-choice", "codah")
    assert rows.labels == [1]
    assert rows.texts["choices"] == [["good", "bad", "loud", "the song"]]

    path = str(write("conll", "Ada N NP I-PER\nsings V VP O\n"))
    rows = read_examples(path, "token-classifier", "conll2003")
    assert (rows.texts, rows.labels) == ({"text": [["Ada", "sings"]]}, [["B-PER", "O"]])

    folder = write("race/1.txt", json.dumps(RACE | {"answers": ["B"]})).parent
    rows = read_examples(str(folder), "multiple-choice", "race")
    assert (rows.texts["choices"], rows.labels) == ([["good ?", "bad ?"]], [1])


def test_a_set_decides_task_and_classes(snli, tiny, tmp_path, run, fail):
    output = tmp_path / "nli"
    said = run("finetune", tiny, snli, "--format", "snli", "--output", output, "--epochs", 1)
    assert "entailment, neutral, contradiction" in said
    answers = run("predict", output, "--input", snli, "--format", "snli")
    answers = [json.loads(line) for line in answers.splitlines()]
    assert [row["input"]["id"] for row in answers] == ["1", "2", "3", "4"]  # also without a label
    assert {row["answer"]["labels"] for row in answers} <= {
        "entailment",
        "neutral",
        "contradiction",
    }
    measures = json.loads(run("evaluate", output, snli, "--format", "snli", "--json"))
    assert measures["texts"] == 3
    assert "line 1" in fail("evaluate", output, snli, "--format", "race")


@pytest.mark.slow
def test_relations_and_types(write, tiny, tmp_path, run, fail):
    """Text classifiers over texts with marks: the names of their tasks choose format and labels."""
    rows = [
        {"text": "a film was good", "head": [2, 6], "tail": [11, 15], "label": "no_relation"},
        {"text": "a bad song", "head": [6, 10], "tail": [2, 5], "label": "of"},
    ]
    path, output = write("r.jsonl", "".join(json.dumps(row) + "\n" for row in rows)), tmp_path / "r"
    run("finetune", tiny, path, "--task", "relation", "--output", output, "--epochs", 1)
    assert tasks.Task.from_preset(output).class_names == ["no_relation", "of"]
    measures = json.loads(run("evaluate", output, path, "--format", "relations", "--json"))
    assert 0 <= measures["micro_f1"] <= 1
    again = ("--config", output / "run.toml", "--output", tmp_path / "again")
    run("finetune", tiny, path, *again)
    assert "text-classifier" in (tmp_path / "again" / "run.toml").read_text()

    rows = [
        {"text": "a film", "mention": [2, 6], "labels": ["work", "film"]},
        {"text": "a song", "mention": [2, 6], "labels": ["work"]},
    ]
    path, output = write("t.jsonl", "".join(json.dumps(row) + "\n" for row in rows)), tmp_path / "t"
    run("finetune", tiny, path, "--task", "typing", "--output", output, "--epochs", 1)
    task = tasks.Task.from_preset(output)
    assert (task.class_names, task.multi_label) == (["film", "work"], True)
    measures = json.loads(run("evaluate", output, path, "--format", "typing", "--json"))
    assert {"loose_micro_f1", "loose_macro_f1"} < set(measures)
    message = fail("finetune", tiny, path, "--task", "relation", "--output", tmp_path / "x")
    assert "t.jsonl, line 1: there is no 'head'" in message


def test_documents_with_clusters(write):
    rows = [{"words": ["a", "film", "it"], "labels": [[[0, 2], [2, 3]]]}, {"words": ["a"]}]
    path = write("a.jsonl", "".join(json.dumps({"labels": []} | row) + "\n" for row in rows))
    actual = read_examples(str(path), "coreference-resolver")
    assert (actual.texts["text"], actual.labels[1]) == ([["a", "film", "it"], ["a"]], [])
    for labels, message in (
        ([[[0, 9]]], r"line 1: the mention \(0, 9\) is not within the text of 3 words"),
        ([[0, 2]], "line 1: 0 is not a mention"),
    ):
        wrong = str(write("wrong.jsonl", json.dumps(rows[0] | {"labels": labels})))
        with pytest.raises(ValueError, match=message):
            read_examples(wrong, "coreference-resolver")


@pytest.mark.slow
def test_coreference_by_commands(write, tiny, tmp_path, run, fail, answers):
    cells = ["(0", "0)", "(0)"]
    lines = [f"d 0 {n} film X * - - - - * {cell}" for n, cell in enumerate(cells)]
    lines = ["#begin document (d); part 000", *lines, "#end document", ""]
    path, output = write("v4_gold_conll", "\n".join(lines)), tmp_path / "resolver"
    run("finetune", tiny, path, "--format", "ontonotes-coref", "--output", output, "--epochs", 1)
    measures = json.loads(run("evaluate", output, path, "--format", "ontonotes-coref", "--json"))
    assert {"texts", "loss", "muc", "b_cubed", "ceaf_phi4", "conll_f1"} == set(measures)
    (actual,) = answers(run("predict", output, "--input", path, "--format", "ontonotes-coref"))
    assert actual["input"]["id"] == "d/0"
    assert set(actual["answer"]) == {"text", "start", "end", "cluster"}
    message = fail(
        "evaluate", output, write("cut", "\n".join(lines[:3])), "--format", "ontonotes-coref"
    )
    assert "cut off, the document of line 1" in message


def test_what_is_refused(write, critic, tiny, fail, tmp_path):
    write("folder/a.csv", "text,label\nx,a\n")
    folder = tmp_path / "folder"
    assert "is a directory" in fail("evaluate", critic, folder, "--format", "sst2")
    path = write("sst2.tsv", SST2)
    message = fail("finetune", tiny, path, "--format", "sst2", "--output", tmp_path / "x")
    assert "has no column 'labels'" in message
    message = fail("evaluate", critic, path, "--format", "cola ")
    assert "Invalid value for '--format'" in message


def test_predictions_keep_ids(write, critic, make_backbone, tokenizer, tmp_path, run, answers):
    chooser, tagger = tmp_path / "chooser", tmp_path / "tagger"
    tasks.MultipleChoice(make_backbone(), tokenizer=tokenizer).save_to_preset(chooser)
    names = {"class_names": ["O", "B-X"], "tokenizer": tokenizer}
    tasks.TokenClassifier(make_backbone(), **names).save_to_preset(tagger)
    path = write("sst2.tsv", SST2)
    actual = answers(run("predict", critic, "--input", path, "--format", "sst2"))
    assert [row["input"]["id"] for row in actual] == ["7", "8"]
    path = write("codah.tsv", CODAH)
    (actual,) = answers(run("predict", chooser, "--input", path, "--format", "codah"))
    assert len(actual["answer"]["scores"]) == 4
    path = write("wikiann", "en:a\tO\nen:film\tO\n\nen:song\tB-X\n")
    actual = answers(run("predict", tagger, "--input", path, "--format", "wikiann"))
    assert [row["answer"]["tokens"][0] for row in actual] == ["a", "song"]


def test_texts_for_texts(write, tmp_path):
    def read(path, name, targets=None):
        rows = read_examples(str(path), "seq2seq-lm", name, targets=targets)
        return rows.texts, rows.labels

    source = write("src.sgm", '<srcset><doc docid="a"><seg id="1">a film</seg></doc></srcset>')
    target = write("ref.sgm", '<refset><doc docid="a"><seg id="1">good</seg></doc></refset>')
    check_targets(str(source), str(target), "wmt")
    assert read(source, "wmt", str(target)) == ({"text": ["a film"]}, ["good"])
    with pytest.raises(ValueError, match=r"src.sgm has lines without targets.*targets="):
        read(source, "wmt")
    with pytest.raises(ValueError, match=r"ref.sgm: cut off, the last tag does not"):
        read(source, "wmt", str(write("ref.sgm", "<refset><doc>")))
    with pytest.raises(ValueError, match="but format=snli: leave one"):
        check_targets(str(source), str(target), "snli")

    folder = write("stories/1.story", "A film\n\n@highlight\n\ngood").parent
    check_file(str(folder), "cnn-dailymail", COLUMNS)
    assert read(folder, "cnn-dailymail") == ({"text": ["A film."]}, ["good."])
    write("stories/2.story", "A film\n\n@highlight")
    with pytest.raises(ValueError, match=r"2.story: cut off, there is no @highlight"):
        read(folder, "cnn-dailymail")


def test_questions_of_other_sets(write):
    turn = {"turn_id": 1, "input_text": "good", "span_start": 2, "span_end": 6}
    story = {"id": "s", "story": "a film", "questions": [turn], "answers": [turn]}
    path = str(write("coqa.json", json.dumps({"data": [story]})))
    rows = read_examples(path, "question-answerer", "coqa")
    assert rows.texts == {"question": ["good"], "context": ["a film"]}
    assert rows.labels == [[{"text": "film", "start": 2}]]


def test_last_words(write, tokenizer, fail, tiny, tmp_path, monkeypatch):
    path = write("lambada.txt", "the film was loud . good film\na song is good\n")
    message = fail("finetune", tiny, path, "--format", "lambada", "--output", tmp_path / "x")
    assert "keras-lm evaluate asks for" in message
    backbone = GPT2Backbone(tokenizer.vocabulary_size, 1, 2, 16, 24, max_sequence_length=16)
    task = tasks.CausalLM(backbone, tokenizer=tokenizer)
    examples = read_examples(str(path), "causal-lm", "lambada")
    assert examples.labels == ["film", "good"]
    monkeypatch.setattr(type(task), "generate", lambda self, texts, **_: [" film .", " film"])
    actual = measure(task, examples, batch_size=2)
    texts = examples.texts["text"]
    scores = task.score_continuations(texts, [[" film"], [" good"]])["scores"]
    assert actual["last_word_perplexity"] == pytest.approx(np.exp(-scores.mean()), rel=1e-5)
    assert (actual["texts"], actual["last_word_accuracy"]) == (2, 0.5)
