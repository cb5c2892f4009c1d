"""LiteRT's interpreter as this package opens it."""

import os

import pytest

from keras_lm import litert


def test_it_computes_on_all_cores(monkeypatch):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    opened = []
    monkeypatch.setattr(
        interpreter, "InterpreterWithCustomOps", lambda **options: opened.append(options)
    )
    litert.open_interpreter(b"model")
    litert.open_interpreter("model.tflite", num_threads=3)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    litert.open_interpreter("model.tflite")
    threads = [options["num_threads"] for options in opened]
    assert threads[0] >= 1
    assert threads[1:] == [3, 7]
    assert [options.get("model_path") for options in opened] == [None, *["model.tflite"] * 2]
    with pytest.raises(ValueError, match="num_threads=0: pass 1 or more"):
        litert.open_interpreter(b"model", 0)
