"""A run on rows, with masks and next sentences: killed and begun again, it ends the same."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm import data, training
from keras_lm.data.shards import is_own
from keras_lm.models import BertBackbone
from keras_lm.tasks import MaskedLM, Pretrainer
from keras_lm.training.runs import Run
from keras_lm.utils.processes import Workers

WORDS = ["the film was good", "a loud song", "bad , bad song !", "is a song a film ."]
DOCUMENTS = ["\n".join(WORDS[i % 4 :] + WORDS[: i % 3 + 1]) for i in range(7)]


@pytest.fixture
def make(tokenizer):
    def make(seed, cls=Pretrainer):
        keras.utils.set_random_seed(seed)
        backbone = BertBackbone(
            tokenizer.vocabulary_size, 1, 2, 8, 8, max_sequence_length=16, dropout=0.2
        )
        task = cls(backbone, tokenizer=tokenizer)
        task.compile(optimizer=training.AdamW(1e-2), run_eagerly=True)
        return task

    return make


def state(task):
    seeds = [variable for objective in task.objectives for variable in objective.variables]
    variables = [*task.variables, *task.optimizer.variables, *seeds]
    return [keras.ops.convert_to_numpy(variable) for variable in variables]


def fit(run, task, **options):
    rows = {"form": "next_sentence", "short_share": 0.1}
    options = {"rows": rows, "minutes": 0, "epochs": 2, "batch_size": 4, "verbose": 0} | options
    return run.fit(task, DOCUMENTS, **options)


@pytest.mark.slow
def test_killed_run_on_rows_ends_in_the_same_weights(make, tmp_path, capsys, interrupt_before):
    task = make(seed=1)
    history = fit(Run(tmp_path / "whole", {}), task, validation=DOCUMENTS[:2])
    assert "val_next_sentence_logits_accuracy" in history
    output = capsys.readouterr().out
    steps = int(output.split("tokens: ")[1].split(" rows of 16")[0]) // 4
    assert steps > 2

    with pytest.raises(KeyboardInterrupt, match="The same command goes on"):
        fit(Run(tmp_path / "killed", {}), make(seed=1), callbacks=[interrupt_before(steps + 1)])
    again = make(seed=100)  # by another seed: what is restored is not made again by luck
    fit(Run(tmp_path / "killed", {}), again)
    for ours, expected in zip(state(again), state(task), strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_rows_are_for_a_task(make):
    task = make(1, MaskedLM)
    columns = ["token_ids", "segment_ids", "padding_mask"]
    row = dict.fromkeys(columns, np.ones(16, "int32")) | {"next_sentence_labels": 0}
    with pytest.raises(ValueError, match="rows with next_sentence_labels, which no objective of"):
        training.fit_windows(task, tf.data.Dataset.from_tensors(row))
    windows = tf.data.Dataset.from_tensors(np.zeros(17, "int32"))
    with pytest.raises(ValueError, match="language model, which MaskedLM is not: pass rows"):
        training.fit_windows(task, windows)


def test_each_worker_may_read_shards_of_its_own(make, tmp_path, monkeypatch):
    task, read = make(seed=1, cls=MaskedLM), []
    rows = task.tokenizer, task.packer.template, 16
    data.write_row_shards(DOCUMENTS, *rows, tmp_path / "shards", num_shards=2, form="single")

    def fit_windows(task, windows, **options):
        assert not is_own(options["validation_windows"])
        read.append(([row["token_ids"].numpy().tolist() for row in windows], is_own(windows)))
        return {}

    monkeypatch.setattr("keras_lm.training.runs.fit_windows", fit_windows)
    shards, run = tmp_path / "shards", Run(tmp_path / "preset", {})
    run.fit(task, shards, validation=shards, rows={})
    for index in range(2):
        workers = Workers(2, index, 1)
        monkeypatch.setattr("keras_lm.training.runs.workers_of", lambda strategy, is_=workers: is_)
        run.fit(task, shards, validation=shards, rows={}, own_shards=True)
    (everything, all_is_own), (first, first_is_own), (second, _) = read
    assert first_is_own and not all_is_own
    assert first + second == everything and abs(len(first) - len(second)) < 2
