"""Weights of classes, TensorBoard and early stopping: what `finetune` has Keras do."""

import json
import re
import sys
import tomllib

import click
import numpy as np
import pytest
from click.testing import CliRunner

from keras_lm import tasks
from keras_lm.cli import main
from keras_lm.cli.finetune import check_class_weight
from keras_lm.models import BertBackbone

pytestmark = pytest.mark.eager

CSV = "text,label\n" + "the film was good,good\nthe song was bad,bad\na loud song,bad\n" * 3


def test_weights_name_known_classes():
    for weights in ({"c": 3.0}, "balanced", None):
        check_class_weight(weights, ["a", "b", "c"])
    with pytest.raises(click.UsageError, match="--class-weight names 'd', and the classes are a,"):
        check_class_weight({"d": 3.0}, ["a", "b", "c"])


def test_a_class_without_weight_is_not_learnt(run, write, tiny, tmp_path):
    arguments = ["finetune", tiny, write("train.csv", CSV), "--output", tmp_path / "new"]
    options = ["--class-weight", "bad=0,good=2", "--learning-rate", 0.05, "--epochs", 2]
    run(*arguments, *options)
    task = tasks.TextClassifier.from_preset(tmp_path / "new")
    assert list(task.classify(["the song was bad", "a loud song"])["labels"]) == ["good"] * 2


def test_empty_rows_are_left_out_if_asked_for(run, fail, write, tiny, tmp_path):
    train = write("train.csv", CSV + ",good\na song,\n  ,bad\n")
    arguments = ["finetune", tiny, train, "--output", tmp_path / "new", "--epochs", 1]
    message = fail(*arguments)
    assert "There are 3 such rows, lines 11, 12, 13. --skip-empty leaves them out" in message
    assert "9 to train on" in run(*arguments, "--skip-empty")
    assert "skip-empty = true" in (tmp_path / "new" / "run.toml").read_text()
    evaluate = ["evaluate", str(tmp_path / "new"), str(train), "--json"]
    result = CliRunner().invoke(main, [*evaluate, "--skip-empty"])
    assert "train.csv: 3 rows left out, which are empty" in result.stderr
    assert json.loads(result.stdout)["texts"] == 9
    assert "line 12: the label is empty" in fail(*evaluate)  # texts may be


@pytest.mark.slow
def test_the_best_epoch_is_kept(run, write, tiny, tmp_path):
    train = write("train.csv", CSV)
    swapped = CSV.replace(",good", ",x").replace(",bad", ",good").replace(",x", ",bad")
    validation = write("validation.csv", swapped)
    arguments = ["finetune", tiny, train, "--output", tmp_path / "new", "--validation", validation]
    options = ["--early-stopping", 2, "--epochs", 9, "--learning-rate", 0.02, "--batch-size", 9]
    shown = run(*arguments, *options, "--tensorboard", tmp_path / "logs")
    # What is held out says the opposite: each epoch makes it worse.
    best, last = map(int, re.search(r"kept +epoch (\d) of (\d)", shown).groups())
    assert last == best + 2
    loss = float(re.search(r"validation loss +([0-9.]+)", shown)[1])
    message = json.loads(run("evaluate", tmp_path / "new", validation, "--json"))
    assert message["loss"] == pytest.approx(loss, abs=1e-3)
    card = (tmp_path / "new" / "README.md").read_text()
    assert f"After epoch {best}, the best one of `fit`" in card
    stated = float(re.search(r"\| val_loss \| ([0-9.]+) \|", card)[1])
    assert stated == pytest.approx(message["loss"], abs=1e-3)
    assert {path.name for path in (tmp_path / "logs").iterdir()} == {"train", "validation"}


def test_run_toml_has_the_rate_of_random_weights(run, write, tmp_path, tokenizer):
    random = tmp_path / "random"
    backbone = BertBackbone(tokenizer.vocabulary_size, 1, 2, 8, 8, max_sequence_length=8)
    tasks.TextClassifier(backbone, num_classes=2, tokenizer=tokenizer).save_to_preset(random)
    with_rate = tasks.TextClassifier.from_preset(random).backbone.learning_rate
    arguments = ["finetune", random, write("train.csv", CSV), "--output", tmp_path / "new"]
    run(*arguments, "--epochs", 1)
    after = tasks.TextClassifier.from_preset(tmp_path / "new").backbone.learning_rate
    stated = tomllib.loads((tmp_path / "new" / "run.toml").read_text())["learning-rate"]
    assert stated == with_rate != after


def test_without_tensorboard_nothing_begins(fail, write, tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    arguments = ["finetune", tiny, write("train.csv", CSV), "--output", tmp_path / "new"]
    shown = fail(*arguments, "--tensorboard", tmp_path / "logs")
    assert "pip install 'keras-lm[tensorboard]'" in shown
    assert not (tmp_path / "new").exists()


def test_lora_trains_few_weights(run, write, tiny, tmp_path):
    arguments = ["finetune", tiny, write("train.csv", CSV), "--output", tmp_path / "new"]
    run(*arguments, "--lora", 2, "--learning-rate", 0.05, "--epochs", 2)
    before, after = (
        {v.path: v.numpy() for v in tasks.FeatureExtractor.from_preset(source).backbone.weights}
        for source in (tiny, tmp_path / "new")
    )
    changed = {path for path in before if not np.array_equal(before[path], after[path])}
    assert changed == {path for path in before if path.endswith("query_key_value/kernel")}


@pytest.mark.slow
def test_adapters_train_few_weights(run, write, tiny, tmp_path):
    arguments = ["finetune", tiny, write("train.csv", CSV), "--output", tmp_path / "new"]
    run(*arguments, "--adapters", 2, "--learning-rate", 0.05, "--epochs", 2)
    before, after = (
        {v.path: v.numpy() for v in tasks.FeatureExtractor.from_preset(source).backbone.weights}
        for source in (tiny, tmp_path / "new")
    )
    assert {path for path in after.keys() - before.keys() if "/adapter/" not in path} == set()
    changed = {path for path in before if not np.array_equal(before[path], after[path])}
    assert changed == {path for path in before if path.endswith(("/gamma", "/beta"))}


def test_lora_or_adapters(fail, write, tiny, tmp_path):
    arguments = ["finetune", tiny, write("train.csv", CSV), "--output", tmp_path / "new"]
    assert "drop one" in fail(*arguments, "--lora", 2, "--adapters", 2)
