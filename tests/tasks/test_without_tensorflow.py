"""Keras on JAX where TensorFlow is not installed: one process that cannot import it."""

import importlib.util
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from keras_lm.models import GPT2Backbone, T5Backbone
from keras_lm.tasks import (
    CausalLM,
    FeatureExtractor,
    MaskedLM,
    MultipleChoice,
    QuestionAnswerer,
    Seq2SeqLM,
    TextClassifier,
    TokenClassifier,
)

PROGRAM = """
import os, sys
os.environ["KERAS_BACKEND"] = "jax"
for name in ("tensorflow", "tensorflow_text"):
    sys.modules[name] = None
import json
import keras
import numpy as np
import keras_lm
from keras_lm.tasks import CausalLM, FeatureExtractor, MaskedLM, Task, TextClassifier

folder, masked, causal, writer, translator = sys.argv[1:]
texts, labels = ["good film", "bad film, was unly"] * 4, [1, 0] * 4
task = Task.from_preset(folder)
results = {"before": task.predict(texts, verbose=0).tolist(), "ids": task.tokenizer(texts)}
results["pair"] = task.predict((texts, texts[::-1]), verbose=0).tolist()
classified = task.classify(texts, batch_size=5, verbose=0)
results["classified"] = {name: value.tolist() for name, value in classified.items()}
prompt = {"prompt": "Bad ", "lowercase": True}
results["embedded"] = FeatureExtractor(task.backbone, tokenizer=task.tokenizer, **prompt).embed(
    texts[:2], verbose=0
)["embedding"].tolist()
task.compile(optimizer=keras.optimizers.Adam(1e-2))
data = texts, labels
history = task.fit(*data, epochs=8, batch_size=4, verbose=0, validation_data=data)
results["losses"] = history.history["loss"]
results["accuracy"] = task.evaluate(*data, verbose=0, return_dict=True)["accuracy"]
results["after"] = task.predict(texts, verbose=0).tolist()
task.save_to_preset(folder + "-after")


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, place):
        return texts[:4], np.array(labels[:4])


other = Task.from_preset(folder)
results["streams"] = other.fit(Batches(), epochs=1, verbose=0).history["loss"]
rows = (batch for batch in [(texts, np.array(labels))] * 2)
results["streams"] += other.fit(rows, verbose=0).history["loss"]
results["streams"].append(float(other.train_on_batch(texts, np.array(labels))[0]))
task.save(folder + ".keras")
again = keras.saving.load_model(folder + ".keras")
results["again"] = again.predict(texts, verbose=0).tolist()
other = Task.from_preset(writer)
results["written"] = other.generate(texts[:2], 5, temperature=1.0, seed=[4, 2], verbose=0)
results["perplexity"] = other.score(texts[:2], verbose=0)["perplexity"].tolist()
results["translated"] = Task.from_preset(translator).generate(texts[:2], 4, verbose=0)
results["masked"] = Task.from_preset(masked).fit(texts, epochs=2, verbose=0).history["loss"]
writer = CausalLM.from_preset(causal, tokenizer=None)
ids = {"token_ids": np.arange(5, 29).reshape(3, 8), "padding_mask": np.ones((3, 8), "int32")}
results["continued"] = writer.generate(ids, 4, verbose=0)
results["causal"] = writer.fit(ids, epochs=2, verbose=0).history["loss"]
try:
    task.export(folder + "-export")
except (ImportError, RuntimeError) as error:
    results["export"] = str(error)
results["filled"] = Task.from_preset(masked).fill_mask(MASKS, batch_size=2, verbose=0)
chooser = Task.from_preset(os.path.join(folder, "../chooser"))
results["chosen"] = chooser.choose(CHOICES, batch_size=1, verbose=0)
results["choosing"] = chooser.fit(CHOICES, [0, 1], epochs=2, verbose=0).history["loss"]
for name in ("tagger", "crf"):
    tagger = Task.from_preset(os.path.join(folder, "..", name))
    results[name] = [tagger.tag(TAGGED, batch_size=2, verbose=0), tagger.entities(TAGGED)]
answerer = Task.from_preset(os.path.join(folder, "../answerer"))
results["answers"] = [
    answerer.answer(ASKED, batch_size=3, verbose=0),
    answerer.answer(ASKED, top_k=None, verbose=0),
]
try:
    tagger.tag(["a text"])
except ImportError as error:
    results["tagged"] = str(error)
try:
    keras_lm.tokenizers.ByteTokenizer()(["a"])
except (ImportError, ValueError) as error:
    results["bytes"] = str(error)
print(json.dumps(results, default=lambda array: array.tolist()))
"""
QUESTIONS = """
MASKS = ["good [MASK]", "[MASK] was [MASK] bad", "none", "un [MASK]"]
CHOICES = {"text": ["a film", "bad"], "choices": [["bad", "good", "not so"], ["a", "it"]]}
CONTEXTS = ["a good film was bad", "", "a story , un ly film was good \\n " * 5, "é bad  story"]
ASKED = {"question": ["was bad", "good", " film unly !", ""], "context": CONTEXTS}
TAGGED = [["good", "film"], ["bad", "unly", "was", "story"], ["it"] * 30, ["a"]]
"""
asked = {}
exec(QUESTIONS, asked)


@pytest.mark.slow
def test_a_task_is_trained_and_kept(make, tokenizer, goldens, tmp_path):
    if importlib.util.find_spec("jax") is None:
        pytest.skip("needs jax")
    task = make(TextClassifier, num_classes=2)
    task.save_to_preset(tmp_path / "task")
    masked, chooser = make(MaskedLM), make(MultipleChoice)
    masked.save_to_preset(tmp_path / "masked")
    chooser.save_to_preset(tmp_path / "chooser")
    answerer = make(QuestionAnswerer, stride=5, num_answers=7, max_answer_length=6)
    for weight in answerer.weights:  # so that tokens differ
        weight.assign(4 * weight.value)
    answerer.save_to_preset(tmp_path / "answerer")
    taggers = {}
    for name, crf in (("tagger", False), ("crf", "bio")):
        taggers[name] = make(TokenClassifier, class_names=["O", "B-X", "I-X"], crf=crf)
        for weight in taggers[name].weights:  # so that words have other labels
            weight.assign(4 * weight.value)
        taggers[name].save_to_preset(tmp_path / name)
    size = {"vocabulary_size": tokenizer.vocabulary_size, "num_layers": 1, "num_heads": 2}
    size |= {"hidden_dim": 8, "intermediate_dim": 16, "dropout": 0.0}
    for cls, backbone in [(CausalLM, GPT2Backbone), (Seq2SeqLM, T5Backbone)]:
        cls(backbone(**size), tokenizer=tokenizer).save_to_preset(tmp_path / cls.__name__)
    texts = ["good film", "bad film, was unly"] * 4
    command = [sys.executable, "-W", "ignore", "-c", QUESTIONS + PROGRAM]
    folders = [tmp_path / "task", tmp_path / "masked", goldens("gpt2")]
    folders += [tmp_path / "CausalLM", tmp_path / "Seq2SeqLM"]
    # Optimizations take longer than such small networks.
    env = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    done = subprocess.run([*command, *map(str, folders)], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    message = json.loads(done.stdout.splitlines()[-1])
    assert message["ids"] == task.tokenizer(texts).to_list()
    np.testing.assert_allclose(message["before"], task.predict(texts, verbose=0), atol=1e-5)
    pairs = task.predict((texts, texts[::-1]), verbose=0)
    np.testing.assert_allclose(message["pair"], pairs, atol=1e-5)
    classified = task.classify(texts, verbose=0)
    assert message["classified"]["labels"] == classified["labels"].tolist()
    np.testing.assert_allclose(message["classified"]["scores"], classified["scores"], atol=1e-5)
    prompt = {"prompt": "Bad ", "lowercase": True}
    extractor = FeatureExtractor(task.backbone, tokenizer=tokenizer, **prompt)
    vectors = extractor.embed(texts[:2], verbose=0)["embedding"]
    np.testing.assert_allclose(message["embedded"], vectors, atol=1e-5)
    writer = CausalLM.from_preset(tmp_path / "CausalLM")
    sampled = {"temperature": 1.0, "seed": [4, 2]}
    assert message["written"] == writer.generate(texts[:2], 5, **sampled)
    perplexity = writer.score(texts[:2], verbose=0)["perplexity"]
    np.testing.assert_allclose(message["perplexity"], perplexity, rtol=1e-5)
    translator = Seq2SeqLM.from_preset(tmp_path / "Seq2SeqLM")
    assert message["translated"] == translator.generate(texts[:2], 4)
    ids = {"token_ids": np.arange(5, 29).reshape(3, 8)}
    published = CausalLM.from_preset(goldens("gpt2"), tokenizer=None)
    assert message["continued"] == published.generate(ids, 4)
    assert message["losses"][-1] < message["losses"][0]
    assert message["accuracy"] == 1.0
    assert message["again"] == message["after"]
    after = TextClassifier.from_preset(tmp_path / "task-after")
    np.testing.assert_allclose(after.predict(texts, verbose=0), message["after"], atol=1e-5)
    for losses in (message["masked"], message["causal"], message["streams"]):
        assert np.isfinite(losses).all()
    assert "TensorFlow" in message["export"]
    assert "pip install tensorflow" in message["bytes"]
    check_alike(message["filled"], masked.fill_mask(asked["MASKS"], verbose=0))
    check_alike(message["chosen"], chooser.choose(asked["CHOICES"], verbose=0))
    assert np.isfinite(message["choosing"]).all()
    for name, tagger in taggers.items():
        expected = [tagger.tag(asked["TAGGED"], verbose=0), tagger.entities(asked["TAGGED"])]
        check_alike(message[name], expected)
    each = asked["ASKED"]
    expected = [answerer.answer(each, verbose=0), answerer.answer(each, top_k=None, verbose=0)]
    check_alike(message["answers"], expected)
    assert {label for row in message["tagger"][0]["labels"] for label in row} > {"O", ""}
    assert "Splitting texts into words needs TensorFlow" in message["tagged"]


def check_alike(actual, expected):
    """Assert that nested answers have the same strings, and numbers to 1e-5."""
    expected = json.loads(json.dumps(expected, default=lambda array: array.tolist()))
    actual, expected = dict(leaves(actual)), dict(leaves(expected))
    assert {*actual} == {*expected}
    for path, value in expected.items():
        alike = value if isinstance(value, str) else pytest.approx(value, 1e-5, 1e-5)
        assert actual[path] == alike, path


def leaves(value, path=()):
    """Yield the path and the value of all leaves of nested lists and dicts."""
    if not isinstance(value, (dict, list)):
        yield path, value
        return
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        yield from leaves(each, (*path, key))
