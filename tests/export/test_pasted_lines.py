"""Lines of the guides that people paste run as they stand, in processes without this library."""

import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from keras_lm import models, tasks
from keras_lm.tokenizers import Tokenizer, WordPieceTokenizer

DOCS = Path(__file__).parents[2] / "docs"
TEXTS = ["never a dull moment", "naïve", "loud and long"]  # those of the guides

pytestmark = pytest.mark.slow


def lines(page, begin):
    """Return the first block of lines after some words of a page."""
    text = (DOCS / page).read_text(encoding="utf-8")
    _, words, rest = text.partition(begin)
    assert words, f"{page} does not say {begin!r}"
    return textwrap.dedent(re.search(r"\n\n((?: {4}.*\n|\n)+)", rest)[1]).strip()


def run(program, folder, without):
    """Run a program of Python where some packages are not, in a folder; return what it printed."""
    hidden = f"import sys; sys.modules.update(dict.fromkeys({without!r}))\n"
    done = subprocess.run(
        [sys.executable, "-c", hidden + program], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def task(minilm):
    tokenizer = Tokenizer.from_preset(minilm)
    assert isinstance(tokenizer, WordPieceTokenizer)
    backbone = models.BertBackbone(tokenizer.vocabulary_size, 1, 2, 16, 32)
    return tasks.TextClassifier(backbone, class_names=["bad", "good"], tokenizer=tokenizer)


def check(printed, task, texts):
    """Labels and scores that a program prints are those of the task."""
    expected = task.classify(texts, verbose=0)
    assert re.findall(r"bad|good", printed.partition("]")[0]) == expected["labels"].tolist()
    numbers = re.findall(r"\d\.\d+(?:e-\d+)?", printed.partition("]")[2])
    scores = np.array(numbers, float).reshape(len(texts), 2)
    np.testing.assert_allclose(scores, expected["scores"], atol=1e-5)


def test_python_asks_a_tflite_in_bytes(task, tmp_path):
    task.export(tmp_path / "film-critic.tflite", tokenizer="bytes")
    program = lines("phones.md", "Taggers return at least one column. In Python,")
    printed = run(program, tmp_path, ["keras_lm", "tensorflow", "tensorflow_text"])
    check(printed, task, ["never a dull moment", "naïve"])


def test_python_asks_a_saved_model_with_tensorflow_alone(task, tmp_path):
    task.export(tmp_path / "exported", operations="tensorflow")
    program = lines("serving.md", "In **Python**, with TensorFlow alone:")
    printed = run(program, tmp_path, ["keras_lm", "tensorflow_text", "keras"])
    check(printed, task, ["never a dull moment", "loud and long"])


@pytest.fixture(scope="module")
def onnx_folder(task, tmp_path_factory):
    """A folder with the files that the lines about ONNX read."""
    for package in ("tf2onnx", "onnxruntime", "tokenizers"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("onnx")
    task.export(folder / "film-critic-ids.onnx", tokenizer=None)
    task.export(folder / "film-critic.onnx", tokenizer="bytes")
    task.save_to_huggingface(folder / "film-critic-hf")
    return folder


@pytest.mark.parametrize("packages", ["`onnxruntime`", "`onnxruntime` and `tokenizers`"])
def test_python_asks_an_onnx_file(packages, task, onnx_folder):
    program = lines("onnx.md", f"In **Python**, with {packages} alone:")
    printed = run(program, onnx_folder, ["keras_lm", "tensorflow", "keras"])
    expected = task.classify(["never a dull moment", "loud and long"], verbose=0)
    assert re.findall(r"bad|good", printed) == expected["labels"].tolist()


@pytest.mark.thorough
def test_node_asks_an_onnx_file(task, onnx_folder):
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("needs Node and npm")
    packages = ["onnxruntime-web", "@huggingface/tokenizers"]
    command = [npm, "install", "--no-fund", "--no-audit", "--ignore-scripts", *packages]
    installed = subprocess.run(command, cwd=onnx_folder, capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"npm cannot install {packages}")
    program = lines("onnx.md", "In **JavaScript**, in Node or a page,")
    asked = "for (const text of {}) console.log(JSON.stringify([...(await scores(text))]));"
    (onnx_folder / "ask.mjs").write_text(f"{program}\n{asked.format(json.dumps(TEXTS))}\n")
    done = subprocess.run(["node", "ask.mjs"], cwd=onnx_folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    scores = [json.loads(line) for line in done.stdout.splitlines()]
    np.testing.assert_allclose(scores, task.classify(TEXTS, verbose=0)["scores"], atol=1e-5)
