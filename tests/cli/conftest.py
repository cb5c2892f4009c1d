"""A tiny preset, what becomes of it by the commands, and the ways to call them."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from click.testing import CliRunner

from keras_lm import presets, tasks
from keras_lm.cli import main
from keras_lm.models import BertBackbone
from keras_lm.tokenizers import WordPieceTokenizer
from keras_lm.training.runs import Run

COMMAND = Path(sys.executable).with_name("keras-lm")
VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("a", "the", "film", "song", "was", "is", "good", "bad", "loud", ".", ",", "!"),
]


def invoke(*arguments, input=None):
    """Run a command in this process; an exception that is no message to the user is raised."""
    result = CliRunner().invoke(main, [*map(str, arguments)], input=input)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture(scope="session")
def run():
    """`run(*arguments)` returns what a command printed, and sees that it went well."""

    def run(*arguments, input=None):
        result = invoke(*arguments, input=input)
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


@pytest.fixture(scope="session")
def fail():
    """`fail(*arguments)` returns the message of a command that goes wrong."""

    def fail(*arguments, input=None):
        result = invoke(*arguments, input=input)
        assert result.exit_code in (1, 2), result.output
        assert "Error: " in result.stderr
        return " ".join(result.stderr.split())

    return fail


@pytest.fixture(scope="session")
def installed():
    """`installed(*arguments)` starts the installed command in a process of its own."""

    def installed(*arguments, **variables):
        # Without what the tests themselves set for TensorFlow: the command has to see to that.
        env = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
        pipes = dict.fromkeys(["stdin", "stdout", "stderr"], subprocess.PIPE)
        return subprocess.Popen([COMMAND, *map(str, arguments)], env=env | variables, **pipes)

    return installed


@pytest.fixture
def interrupt(monkeypatch, interrupt_before):
    """`interrupt(step)` has Ctrl-C come before this step of a run; each step is saved."""
    monkeypatch.setattr(Run, "fit_texts", functools.partialmethod(Run.fit_texts, minutes=0))
    usual = keras.callbacks.TerminateOnNaN

    def at(step):
        def callback():
            monkeypatch.setattr(keras.callbacks, "TerminateOnNaN", usual)
            return interrupt_before(step)

        monkeypatch.setattr(keras.callbacks, "TerminateOnNaN", callback)

    return at


@pytest.fixture(scope="session")
def answers():
    """`answers(output)` is a list of the objects in JSONL."""
    return lambda output: [json.loads(line) for line in output.splitlines()]


@pytest.fixture(scope="session")
def make_backbone():
    def make():
        keras.utils.set_random_seed(1)
        backbone = BertBackbone(len(VOCABULARY), 1, 2, 16, 32, max_sequence_length=24, dropout=0.0)
        for weight in backbone.weights:
            weight.assign_add(keras.random.normal(weight.shape, stddev=0.3))
        return backbone

    return make


@pytest.fixture(scope="session")
def tokenizer():
    return WordPieceTokenizer(VOCABULARY, lowercase=True)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("presets")


@pytest.fixture(scope="session")
def tiny(folder, make_backbone, tokenizer):
    """A preset of a backbone and its tokenizer."""
    presets.save(folder / "tiny", make_backbone(), tokenizer=tokenizer)
    return folder / "tiny"


@pytest.fixture(scope="session")
def task(make_backbone, tokenizer):
    return tasks.TextClassifier(
        make_backbone(), tokenizer=tokenizer, class_names=["bad", "good"], text_pair=False
    )


@pytest.fixture(scope="session")
def critic(folder, task):
    """A preset of a classifier."""
    task.save_to_preset(folder / "critic")
    return folder / "critic"


@pytest.fixture(scope="session")
def matcher(folder, make_backbone, tokenizer):
    """A preset of a regressor of pairs."""
    task = tasks.TextRegressor(make_backbone(), tokenizer=tokenizer, text_pair=True)
    task.save_to_preset(folder / "matcher")
    return folder / "matcher"


@pytest.fixture(scope="session")
def exported(folder, critic, run):
    """The folder of versions of an exported classifier, with one version."""
    run("export", critic, folder / "exported")
    return folder / "exported"


@pytest.fixture(scope="session")
def tflite(folder, critic, run):
    run("export", critic, folder / "critic.tflite")
    return folder / "critic.tflite"


@pytest.fixture
def write(tmp_path):
    """`write("name.csv", text)` is the path of a file that holds this."""

    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture(scope="session")
def expect():
    """`expect(task, texts)` is what the library answers, as JSON shows it."""

    def expect(task, texts):
        answer = task.answer_all(texts)
        return [
            {
                "labels": label,
                "scores": pytest.approx(np.array(scores, "float64"), abs=1e-5),
                "class_names": list(names),
            }
            for label, scores, names in zip(
                answer["labels"], answer["scores"], answer["class_names"]
            )
        ]

    return expect
