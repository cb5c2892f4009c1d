"""`keras-lm finetune`, `evaluate` and `predict` on trees in brackets."""

import json

import pytest

from keras_lm import tasks

TREES = """
( (S (NP-SBJ (DT the) (NN film))
     (VP (VBD was) (ADJP (JJ good))) (. .)) )
(TOP (S (VP (VB like) (NP (PRP it)))))
"""


@pytest.mark.slow
@pytest.mark.eager
def test_a_parser_is_trained_and_measured(run, fail, tiny, tmp_path):
    path, preset = tmp_path / "train.mrg", tmp_path / "parser"
    path.write_text(TREES)
    arguments = ["--format", "penn", "--output", preset, "--epochs", 1, "--validation", path]
    shown = run("finetune", tiny, path, *arguments)
    assert "labels  ADJP, NP, S, S::VP, VP" in shown
    assert "validation f1" in shown
    measures = json.loads(run("evaluate", preset, path, "--format", "penn", "--json"))
    assert measures.keys() == {"texts", "loss", "precision", "recall", "f1", "complete_match"}
    lines = run("predict", preset, "--input", path, "--format", "penn").splitlines()
    task = tasks.ConstituencyParser.from_preset(preset)
    words = [["the", "film", "was", "good", "."], ["like", "it"]]
    assert [json.loads(line)["answer"]["text"] for line in lines] == task.parse(words)
    assert [json.loads(line)["input"]["words"] for line in lines] == words
    other = path.with_suffix(".jsonl")
    other.write_text('{"text": "like it", "label": "(S (VP (VB like) (NP (PRP it)))"}\n')
    message = fail("evaluate", preset, other)
    assert "line 1: 'label' is not a tree: a bracket is not closed" in message


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.mrg", "(S (NN a)", "line 1: the tree that begins here is cut off"),
        ("a.mrg", "(S (NN a b))", "line 1: 'a' has no brackets of its own"),
        ("a.mrg", "( (NP (-NONE- *)) )", "has no rows"),
    ],
)
def test_mistakes_are_named(fail, tiny, tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    arguments = ["--format", "penn", "--output", tmp_path / "parser"]
    assert message in fail("finetune", tiny, path, *arguments)
