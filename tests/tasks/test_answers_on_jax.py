"""Tasks on Keras's JAX backend answer as on TensorFlow's, which has their text.

A process has one backend, so that of JAX runs this file as a script.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

CONTEXT = ["a good film was bad", "bad"]
ASKED = {
    "TextClassifier": lambda task: task.classify(["good film", "bad story was bad", ""]),
    "TextRegressor": lambda task: {"scores": task.regress(["good film", "bad story was bad"])},
    "MultipleChoice": lambda task: task.choose({"text": ["a film"], "choices": [["bad", "good"]]}),
    "TokenClassifier": lambda task: {"tags": task.tag(["good film", "bad story was bad"])},
    "QuestionAnswerer": lambda task: {"answers": task.answer((["was bad", "good"], CONTEXT))},
    "MaskedLM": lambda task: task.fill_mask(["good [MASK]", "[MASK] was [MASK] bad"]),
    "FeatureExtractor": lambda task: {"vectors": task.embed(["good film", "bad story was bad"])},
    "Seq2SeqLM": lambda task: task.score(["good film"], ["bad"]),
}


def answers(folder):
    """Return what the task of each preset in a folder says, as lists and dicts of JSON."""
    from keras_lm import tasks

    found = {name: ask(tasks.Task.from_preset(folder / name)) for name, ask in ASKED.items()}
    return json.loads(json.dumps(found, default=lambda value: np.asarray(value).tolist()))


def main(folder):
    from keras_lm import tasks

    folder = Path(folder)
    print(json.dumps(answers(folder)))
    for name, ask in [
        ("CausalLM", lambda task: task.generate(["good"])),
        ("CausalLM", lambda task: task.score(["good"])),
        ("Seq2SeqLM", lambda task: task.generate(["good"])),
    ]:
        with pytest.raises(RuntimeError, match="KERAS_BACKEND=tensorflow"):
            ask(getattr(tasks, name).from_preset(folder / name))


if __name__ == "__main__":
    main(*sys.argv[1:])


def flat(value, path=""):
    """Return the leaves of nested lists and dicts by their paths."""
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {key: leaf for k, v in items for key, leaf in flat(v, f"{path}/{k}").items()}
    return {path: value}


@pytest.mark.slow
def test_answers_are_those_of_tensorflow(make, tokenizer, tmp_path):
    if importlib.util.find_spec("jax") is None:
        pytest.skip("needs jax")
    from keras_lm import tasks
    from keras_lm.models import GPT2Backbone, T5Backbone

    options = {
        "TextClassifier": {"class_names": ["bad", "good"]},
        "TokenClassifier": {"class_names": ["O", "B-X", "I-X"]},
    }
    for name in ASKED.keys() - {"Seq2SeqLM"}:
        make(getattr(tasks, name), **options.get(name, {})).save_to_preset(tmp_path / name)
    size = {"vocabulary_size": tokenizer.vocabulary_size, "num_layers": 1, "num_heads": 2}
    size |= {"hidden_dim": 12, "intermediate_dim": 16, "dropout": 0.0}
    for cls, backbone in [(tasks.CausalLM, GPT2Backbone), (tasks.Seq2SeqLM, T5Backbone)]:
        cls(backbone(**size), tokenizer=tokenizer).save_to_preset(tmp_path / cls.__name__)
    done = subprocess.run(
        [sys.executable, __file__, tmp_path],
        env=os.environ | {"KERAS_BACKEND": "jax"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    found, expected = flat(json.loads(done.stdout.splitlines()[-1])), flat(answers(tmp_path))
    assert {*found} == {*expected}
    for path, value in expected.items():
        assert found[path] == (
            value if isinstance(value, str) else pytest.approx(value, 1e-5, 1e-5)
        )
