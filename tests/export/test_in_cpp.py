"""A `.tflite` answers in C++, with TensorFlow Text's operations registered if it takes strings.

The wheels hold TFLite's code and these operations, but no headers: ask_tflite.cc declares what it
calls. An app has the headers, and builds the same from sources, as docs/phones.md says.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text

from keras_lm import tasks

COMPILER = shutil.which("g++") or shutil.which("clang++")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.eager,
    pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler"),
    pytest.mark.skipif(
        not tf.__version__.startswith("2.20."),
        reason="TensorFlow 2.21's library does not export BuiltinOpResolver",
    ),
]
SOURCE = Path(__file__).with_name("ask_tflite.cc")
TEXTS = ["The film was good!", "", "Ünïcode 中文, 1990,"]
LIBRARIES = {"libtensorflow_cc.so.2": r"_ZN?K?\d*\w*tflite", "libpybinds_library_common.so": "Add"}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory.mktemp("program"), LIBRARIES)


def build(folder, libraries, *options):
    """Compile the program against libraries, a dict of their name → what begins their functions."""
    compiled = folder / "ask_tflite.o"
    command = [COMPILER, "-std=c++17", "-Wall", "-Werror", *options, "-c", SOURCE, "-o", compiled]
    subprocess.run(command, check=True)
    listed = subprocess.run(["nm", "-u", compiled], check=True, capture_output=True, text=True)
    names = re.findall(r"\bU (\w+)$", listed.stdout, re.M)
    # A linker takes long to read TensorFlow's library. It gets empty ones of the same names.
    stubs = []
    for library, pattern in libraries.items():
        own = [name for name in names if re.match(pattern, name)]
        assert own
        stub = folder / f"{library}.c"
        stub.write_text("".join(f"void {name}(void) {{}}\n" for name in own))
        stubs.append(folder / library)
        options = ["-shared", "-fPIC", f"-Wl,-soname,{library}", "-o", stubs[-1]]
        subprocess.run(["cc", "-x", "c", stub, *options], check=True)
    subprocess.run([COMPILER, compiled, *stubs, "-o", folder / "ask_tflite"], check=True)
    return folder / "ask_tflite"


def ask(program, path, *outputs):
    """The outputs of each text, a list of strings."""
    folders = [tf.sysconfig.get_lib(), Path(tensorflow_text.__file__).parent / "core" / "pybinds"]
    done = subprocess.run(
        [program, path, "serving_default", "text", *outputs],
        input="".join(f"{text}\n" for text in TEXTS),
        env={**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, folders))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [line.split("\t")[:-1] for line in done.stdout.split("\n")[:-1]]


def assert_answers_of(task, program, path):
    rows = ask(program, path, "labels", "scores")
    expected = task.classify(TEXTS, verbose=0)
    assert [row[0] for row in rows] == expected["labels"].tolist()
    scores = [[*map(float, row[1:])] for row in rows]
    np.testing.assert_allclose(scores, expected["scores"], atol=1e-4)


@pytest.mark.parametrize(
    "model, kind",
    [("BertBackbone", "wordpiece"), ("AlbertBackbone", "sentencepiece-albert")],
)
def test_a_classifier_answers(program, model, kind, backbone_of, tokenizer_of, tmp_path):
    task = tasks.TextClassifier(
        backbone_of(model), class_names=["bad", "good"], tokenizer=tokenizer_of(kind)
    )
    path = task.export(tmp_path / "critic.tflite", format="litert")
    assert_answers_of(task, program, path)


@pytest.mark.parametrize(
    "model, kind",
    [("BertBackbone", "wordpiece"), ("AlbertBackbone", "sentencepiece-albert")],
)
def test_bytes_need_no_other_operations(model, kind, backbone_of, tokenizer_of, tmp_path):
    tensorflow = {name: LIBRARIES[name] for name in ("libtensorflow_cc.so.2",)}
    program = build(tmp_path, tensorflow, "-DIN_BYTES")
    task = tasks.TextClassifier(
        backbone_of(model), class_names=["bad", "good"], tokenizer=tokenizer_of(kind)
    )
    path = task.export(tmp_path / "critic.tflite", tokenizer="bytes")
    assert_answers_of(task, program, path)


@pytest.mark.thorough
def test_a_tagger_answers(program, backbone_of, tokenizer_of, tmp_path):
    task = tasks.TokenClassifier(
        backbone_of("BertBackbone"), class_names=["O", "B-X"], tokenizer=tokenizer_of("wordpiece")
    )
    path = task.export(tmp_path / "tagger.tflite", format="litert")
    expected = {
        name: x.numpy() for name, x in task.answer_lite({"text": tf.constant(TEXTS)}).items()
    }
    texts = [name for name, values in expected.items() if values.dtype == object]
    for name in texts:
        assert ask(program, path, name) == [[w.decode() for w in row] for row in expected[name]]
    assert texts
