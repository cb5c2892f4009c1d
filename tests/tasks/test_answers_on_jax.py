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
    "Seq2SeqLM": lambda task: translated(task),
    "CausalLM": lambda task: continued(task),
    "LongMemory": lambda task: task.generate(["good", "a film was"], 4),
}
PROMPTS = ["good", "a film was", "bad"]


def continued(task):
    """What a language model writes: greedily, by seeds, by beams, until a string; and scores."""
    sampled = {"temperature": 1.5, "seed": [3, 1, 2], "top_p": 0.9, "num_return_sequences": 2}
    limits = {"repetition_penalty": 1.5, "no_repeat_ngram_size": 2}
    results = {
        "greedy": task.generate(PROMPTS, 6),
        "sampled": task.generate(PROMPTS, 6, **sampled, **limits),
        "beams": task.generate(PROMPTS, 6, num_beams=3, num_return_sequences=2),
        "scored": task.score([*PROMPTS, "", "a good film was bad " * 12], stride=7),
        "choices": task.score_continuations(PROMPTS[:2], [[" a film", " bad"], [" good"]]),
    }
    stop = results["greedy"][0][3:5]
    results["stopped"] = task.generate(PROMPTS, 6, stop=stop)
    results["pieces"] = "".join(task.stream("good", 6, stop=stop))
    assert results["pieces"] == results["stopped"][0] != results["greedy"][0]
    return results


def translated(task):
    beams = {"num_beams": 2, "return_scores": True, "forbidden": ["bad"]}
    return {
        "score": task.score(["good film"], ["bad"]),
        "beams": task.generate(PROMPTS, 6, **beams),
        "sampled": task.generate(PROMPTS, 6, prefix="good", temperature=1.0, seed=7),
    }


def answers(folder):
    """Return what the task of each preset in a folder says, as lists and dicts of JSON."""
    from keras_lm import tasks

    results = {name: ask(tasks.Task.from_preset(folder / name)) for name, ask in ASKED.items()}
    return json.loads(json.dumps(results, default=lambda value: np.asarray(value).tolist()))


def main(folder):
    print(json.dumps(answers(Path(folder))))


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
    from keras_lm.models import GPT2Backbone, T5Backbone, TransformerXLBackbone

    options = {
        "TextClassifier": {"class_names": ["bad", "good"]},
        "TokenClassifier": {"class_names": ["O", "B-X", "I-X"]},
    }
    for name in ASKED.keys() - {"CausalLM", "LongMemory", "Seq2SeqLM"}:
        make(getattr(tasks, name), **options.get(name, {})).save_to_preset(tmp_path / name)
    size = {"vocabulary_size": tokenizer.vocabulary_size, "num_layers": 1, "num_heads": 2}
    size |= {"hidden_dim": 12, "intermediate_dim": 16, "dropout": 0.0}
    gpt2, t5 = GPT2Backbone(**size, max_sequence_length=20), T5Backbone(**size)
    for cls, backbone in [(tasks.CausalLM, gpt2), (tasks.Seq2SeqLM, t5)]:
        for weight in backbone.weights:  # so that tokens differ
            weight.assign(3 * weight.value)
        cls(backbone, tokenizer=tokenizer).save_to_preset(tmp_path / cls.__name__)
    memory = TransformerXLBackbone(**size, memory_length=8)
    tasks.CausalLM(memory, tokenizer=tokenizer).save_to_preset(tmp_path / "LongMemory")
    done = subprocess.run(
        [sys.executable, __file__, tmp_path],
        # Optimizations take longer than such small networks.
        env=os.environ | {"KERAS_BACKEND": "jax", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    actual, expected = flat(json.loads(done.stdout.splitlines()[-1])), flat(answers(tmp_path))
    assert {*actual} == {*expected}
    for path, value in expected.items():
        assert actual[path] == (
            value if isinstance(value, str) else pytest.approx(value, 1e-5, 1e-5)
        )
