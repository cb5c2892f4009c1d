"""`keras-lm pretrain`, and `finetune --task causal-lm`: runs on packed windows."""

import json

import keras
import numpy as np
import pytest

from keras_lm import data, presets, tasks
from keras_lm.tokenizers import BytePairTokenizer
from keras_lm.tokenizers.byte_pair.byte_pair_files import BYTES

END = "<|endoftext|>"
CORPUS = "the film was good\nthe song was loud\n\nbad film , good song\n" * 4
TINY = ["--num-layers", 1, "--hidden-dim", 8, "--num-heads", 2, "--sequence-length", 16]

pytestmark = pytest.mark.usefixtures("eagerly")


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary") / "bytes"
    tokenizer = BytePairTokenizer([END, *BYTES.values()], [], bos_token=END, eos_token=END)
    presets.save(folder, None, tokenizer=tokenizer)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    file = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    file.write_text(CORPUS, encoding="utf-8")
    return file


@pytest.fixture
def pretrain(vocabulary, corpus):
    """`pretrain(output, …)` are the arguments of a small run of seven steps."""

    def arguments(output, *more):
        options = ["--vocabulary", vocabulary, "--output", output, "--batch-size", 2]
        return ["pretrain", corpus, *options, "--save-every", 0, *TINY, *more]

    return arguments


@pytest.fixture
def interrupt(monkeypatch):
    """`interrupt(step)` has Ctrl-C come before a step of the next runs; None lets them be."""

    def at(step):
        class Interrupt(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                if batch == step:
                    raise KeyboardInterrupt

        monkeypatch.setattr(keras.callbacks, "TerminateOnNaN", Interrupt)

    yield at
    monkeypatch.undo()


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_pretrain_interrupted_and_not(run, fail, pretrain, interrupt, corpus, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    shown = run(*pretrain(whole, "--dropout", 0.1, "--validation", corpus))
    assert "GPT2Backbone" in shown and "validation perplexity" in shown

    interrupt(4)
    arguments = pretrain(parts, "--dropout", 0.1, "--validation", corpus)
    assert "The same command goes on" in fail(*arguments)
    assert not parts.exists()
    # Neither another run nor another preset gets into its way.
    assert "another batch_size" in fail(*arguments, "--batch-size", 4)
    assert "another text" in fail(*[arguments[0], __file__, *arguments[2:]])
    interrupt(None)
    assert "Going on with the run" in run(*arguments)
    assert weights(parts) == weights(whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "whole"]


def test_what_it_trains_is_a_task(run, pretrain, corpus, tmp_path, answers):
    preset = tmp_path / "preset"
    run(*pretrain(preset, "--dropout", 0))
    task = tasks.Task.from_preset(preset)
    assert type(task) is tasks.CausalLM
    assert task.backbone.config["intermediate_dim"] == 32
    assert task.backbone.config["max_sequence_length"] == 16

    [found] = answers(run("evaluate", preset, corpus, "--json"))
    documents = [line for line in CORPUS.splitlines() if line]
    assert found["tokens"] == sum(len(document) + 1 for document in documents)
    assert found["words"] == sum(len(document.split()) for document in documents)
    assert found["texts"] == len(documents)
    windows = data.token_windows(documents, task.tokenizer, 16, drop_remainder=False)
    scores = []
    for window in windows.as_numpy_iterator():
        logits = np.asarray(task({"token_ids": window[None, :-1]}))[0].astype("float64")
        shares = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        scores += shares[np.arange(len(window) - 1), window[1:]].tolist()
    assert len(scores) == found["tokens"]
    assert found["loss"] == pytest.approx(-np.mean(scores), rel=1e-5)
    assert found["perplexity"] == pytest.approx(np.exp(-np.mean(scores)), rel=1e-5)
    assert found["word_perplexity"] == pytest.approx(
        np.exp(-np.sum(scores) / found["words"]), rel=1e-4
    )


@pytest.mark.slow
def test_finetune_goes_on_where_it_was_interrupted(
    run, fail, pretrain, interrupt, corpus, tmp_path
):
    preset = tmp_path / "preset"
    run(*pretrain(preset))
    common = ["--task", "causal_lm", "--batch-size", 2, "--validation-split", 0.25]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    arguments = ["finetune", preset, corpus, *common, "--epochs", 2]
    shown = run(*arguments, "--output", whole)
    assert "tokens: " in shown and "validation perplexity" in shown
    assert json.loads((whole / "keras_lm.json").read_text())["task"]["class"] == "CausalLM"
    assert weights(whole) != weights(preset)

    # Nothing is saved within five minutes but at the end of an epoch: so stop in the second.

    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras.callbacks, "TerminateOnNaN", Interrupt)
        assert "The same command goes on" in fail(*arguments, "--output", parts)
    run(*arguments, "--output", parts)
    assert weights(parts) == weights(whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "preset", "whole"]


def test_mistakes_leave_nothing(fail, pretrain, tiny, corpus, tmp_path):
    new = tmp_path / "new"
    assert "or bert_base_en" in fail(*pretrain(new, "--size", "bert_base"))
    assert "gpt2_base_en" in fail(*pretrain(new, "--size", "bert_base_en"))
    assert "0 windows of 9999 tokens" in fail(*pretrain(new, "--sequence-length", 9999))
    assert "no special token" in fail(*pretrain(new, "--vocabulary", tiny))
    assert "no such file" in fail(*pretrain(new, "--validation", tmp_path / "absent.txt"))
    assert "lower --batch-size" in fail(*pretrain(new, "--batch-size", 999))
    assert "try a lower --learning-rate" in fail(*pretrain(new, "--learning-rate", 1e30))
    (tmp_path / "new.unfinished").mkdir()
    assert "is no unfinished run" in fail(*pretrain(new))
    (tmp_path / "new.unfinished").rmdir()
    assert not list(tmp_path.iterdir())
