"""Tasks without TensorFlow Text, where TensorFlow is installed: in processes of their own."""

import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from keras_lm import tasks
from keras_lm.export import check
from keras_lm.litert import in_bytes, open_interpreter
from keras_lm.models import BertBackbone, GPT2Backbone
from keras_lm.tokenizers import BytePairTokenizer, SentencePieceTokenizer

PROGRAM = """
import sys
sys.modules["tensorflow_text"] = None  # as if it were not installed
import json
import keras
import keras_lm
from keras_lm.tasks import FeatureExtractor, Task

folder, has_more = sys.argv[1], sys.argv[2:] == ["more"]
texts, labels = ["good film", b"bad film, was \\xffunly", "Good FILM!"] * 2, [1, 0, 1] * 2
task = Task.from_preset(folder)
made = {"before": task.predict(texts, verbose=0).tolist(), "errors": []}
made["ids"] = task.tokenizer(texts).to_list()
task.compile(optimizer=keras.optimizers.Adam(1e-2))
made["losses"] = task.fit(texts, labels, epochs=6, batch_size=3, verbose=0).history["loss"]
made["after"] = task.predict(texts, verbose=0).tolist()
task.save_to_preset(folder + "/after")
if has_more:
    task.export(folder + "/usual", texts=texts)
    task.export(folder + "/plain", operations="tensorflow", texts=texts)
    task.export(folder + "/bytes.tflite", tokenizer="bytes", texts=texts)
    extractor = FeatureExtractor(task.backbone, tokenizer=task.tokenizer)
    made["embedding"] = extractor.embed(texts[:2], verbose=0)["embedding"].tolist()
    from keras_lm.serving.predictors import open_predictor

    for call in (
        lambda: task.export(folder + "/strings.tflite"),
        lambda: task.export(folder + "/text", operations="tensorflow_text"),
        lambda: open_predictor(folder + "/with_text/1"),
        lambda: keras_lm.litert.open_interpreter(folder + "/with_text.tflite"),
    ):
        try:
            made["errors"].append(call())
        except ImportError as error:
            made["errors"].append(str(error))
print(json.dumps(made))
"""
GENERATES = """
import sys
sys.modules["tensorflow_text"] = None
import json
from keras_lm.tasks import Task

task = Task.from_preset(sys.argv[1])
written = task.generate(["the film", "a"], max_new_tokens=6, verbose=0)
task.export(sys.argv[1] + "/exported")
print(json.dumps(written))
"""
TEXTS = ["good film", b"bad film, was \xffunly", "Good FILM!"] * 2


def run(program, *arguments):
    """Return what a program prints last, in a process of its own."""
    result = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout.splitlines()[-1])


def classifier(tokenizer):
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
    backbone = BertBackbone(tokenizer.vocabulary_size, max_sequence_length=32, **sizes)
    return tasks.TextClassifier(backbone, tokenizer=tokenizer, class_names=["bad", "good"])


@pytest.mark.slow
def test_a_task_is_trained_and_kept(tokenizer, tmp_path):
    task = classifier(tokenizer)
    task.save_to_preset(tmp_path / "task")
    made = run(PROGRAM, tmp_path / "task")
    assert made["ids"] == tokenizer(TEXTS).to_list()
    np.testing.assert_allclose(made["before"], task.predict(TEXTS, verbose=0), atol=1e-6)
    assert made["losses"][-1] < made["losses"][0]
    after = tasks.Task.from_preset(tmp_path / "task" / "after")
    np.testing.assert_allclose(made["after"], after.predict(TEXTS, verbose=0), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["WordPiece", "SentencePiece", pytest.param("byte pairs", marks=pytest.mark.thorough)]
)
def test_exports(kind, tokenizer, goldens, tmp_path):
    folder = goldens("tokenizers")
    if kind == "SentencePiece":
        tokenizer = SentencePieceTokenizer.from_files(folder / "sentencepiece-albert")
    elif kind == "byte pairs":
        tokenizer = BytePairTokenizer.from_files(folder / "bytebpe-roberta")
    task = classifier(tokenizer)
    task.save_to_preset(tmp_path / "task")
    task.export(tmp_path / "task" / "with_text")
    task.export(tmp_path / "task" / "with_text.tflite")
    made = run(PROGRAM, tmp_path / "task", "more")
    after = tasks.Task.from_preset(tmp_path / "task" / "after")
    for name in ("usual", "plain"):
        assert max(check(tmp_path / "task" / name / "1", after, TEXTS).differences.values()) < 1e-5
        graph = (tmp_path / "task" / name / "1" / "saved_model.pb").read_bytes()
        assert b"TFText>" not in graph and b"SentencepieceOp" not in graph
    signatures = tf.saved_model.load(str(tmp_path / "task" / "usual" / "1")).signatures
    assert {"serving_default", "tokenize", "tokens", "classify"} <= {*signatures}
    classify = open_interpreter(tmp_path / "task" / "bytes.tflite").get_signature_runner()
    answer = classify(**in_bytes({"text": TEXTS}))
    expected = after.classify(TEXTS, verbose=0)
    np.testing.assert_allclose(answer["scores"], expected["scores"], atol=1e-5)
    extractor = tasks.FeatureExtractor(after.backbone, tokenizer=tokenizer)
    embedding = extractor.embed(TEXTS[:2], verbose=0)["embedding"]
    np.testing.assert_allclose(made["embedding"], embedding, atol=1e-6)
    for error, name in zip(
        made["errors"],
        (
            "a .tflite that takes strings",
            "operations='tensorflow_text'",
            "with_text",
            "the .tflite",
        ),
        strict=True,
    ):
        assert name in error and "pip install tensorflow-text" in error
        assert "tokenizer='bytes'" in error or "operations='tensorflow" in error


@pytest.mark.slow
def test_a_language_model_writes(goldens, tmp_path):
    tokenizer = BytePairTokenizer.from_files(goldens("tokenizers") / "bytebpe-gpt2")
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
    backbone = GPT2Backbone(tokenizer.vocabulary_size, max_sequence_length=32, **sizes)
    task = tasks.CausalLM(backbone, tokenizer=tokenizer)
    task.save_to_preset(tmp_path / "task")
    written = run(GENERATES, tmp_path / "task")
    assert written == task.generate(["the film", "a"], max_new_tokens=6, verbose=0)
    serve = tf.saved_model.load(str(tmp_path / "task" / "exported" / "1")).signatures
    options = task.signatures.defaults()["generate"] | {"max_new_tokens": np.array([6], "int32")}
    prompts = tf.constant(["the film", "a"])
    answer = serve["generate"](prompt=prompts, **{n: tf.constant(v) for n, v in options.items()})
    assert [text.decode() for text in answer["text"].numpy()] == written
