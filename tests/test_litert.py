"""LiteRT's interpreter as this package opens it."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text as tf_text

from keras_lm import litert
from keras_lm.litert import InterpreterPool


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A `.tflite` of two signatures: of numbers, and of texts by an operation of TF Text."""
    pytest.importorskip("ai_edge_litert.interpreter")

    def numbers(x, y):
        return {"sum": tf.reduce_sum(x, 1) * y, "rows": tf.gather(x, tf.cast(y, tf.int32), axis=1)}

    def fixed(x):
        return {"twice": tf.reshape(x, [1, 2]) * 2.0}

    def texts(text):
        lengths = tf_text.ByteSplitter().split(text).row_lengths()
        return {"length": lengths, "text": tf.gather(text, tf.range(tf.size(text)))}

    module = tf.Module()
    module.numbers = tf.function(numbers, autograph=False)
    module.fixed = tf.function(fixed, autograph=False)
    module.texts = tf.function(texts, autograph=False)
    pair = (tf.TensorSpec([None, 2], tf.float32, "x"), tf.TensorSpec([None], tf.float32, "y"))
    signatures = {
        "numbers": module.numbers.get_concrete_function(*pair),
        "fixed": module.fixed.get_concrete_function(tf.TensorSpec([1, 2], tf.float32, "x")),
        "texts": module.texts.get_concrete_function(tf.TensorSpec([None], tf.string, "text")),
    }
    folder = tmp_path_factory.mktemp("model")
    tf.saved_model.save(module, str(folder), signatures=signatures)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder), signature_keys=[*signatures])
    converter.allow_custom_ops = True
    path = folder / "model.tflite"
    path.write_bytes(converter.convert())
    return path


@pytest.mark.slow
def test_a_pool_runs_every_signature(model):
    pool = InterpreterPool(model)
    assert pool.signatures["numbers"].inputs == {
        "x": (np.float32, (-1, 2)),
        "y": (np.float32, (-1,)),
    }
    assert pool.signatures["texts"].outputs["text"] == (object, (-1,))
    actual = pool.run("numbers", {"x": [[1, 2], [3, 4]], "y": [1, 0]})
    np.testing.assert_array_equal(actual["sum"], [3, 0])
    actual = pool.run("texts", {"text": ["é", b"a\x00", ""]})
    assert actual["length"].tolist() == [2, 2, 0]
    assert actual["text"].tolist() == ["é".encode(), b"a\x00", b""]
    assert pool.run("texts", {"text": []})["text"].tolist() == []
    actual = pool.run("numbers", {"x": np.zeros([0, 2]), "y": []})
    assert {name: len(array) for name, array in actual.items()} == {"sum": 0, "rows": 0}


def test_a_pool_names_what_does_not_fit(model):
    pool = InterpreterPool(model.read_bytes())
    for signature, inputs, message in (
        (
            "words",
            {"text": ["a"]},
            r"signature='words': use one of \['fixed', 'numbers', 'texts'\]",
        ),
        (
            "fixed",
            {"x": [[1, 2]] * 2},
            "x has 2 rows, and this .tflite takes 1 at a time: run each",
        ),
        ("texts", {"texts": ["a"]}, r"inputs has \['texts'\], but 'texts' takes \['text'\]"),
        ("numbers", {"x": [[1, 2]], "y": [1, 1]}, "different numbers of rows: {'x': 1, 'y': 2}"),
        ("numbers", {"x": np.zeros([1, 0]), "y": [1]}, r"x has the shape \(1, 0\)"),
        ("numbers", {"x": [[1, 2]], "y": [7]}, "the .tflite refuses it: gather index out of"),
    ):
        with pytest.raises(ValueError, match=message):
            pool.run(signature, inputs)
    np.testing.assert_array_equal(pool.run("numbers", {"x": [[1, 2]], "y": [1]})["sum"], [3])
    assert pool.run("fixed", {"x": [[1, 2]]})["twice"].tolist() == [[2, 4]]
    assert pool.run("fixed", {"x": np.zeros([0, 2])})["twice"].shape == (0, 2)
    with pytest.raises(ValueError, match="the bytes cannot be loaded"):
        InterpreterPool(b"TFL3")
    with pytest.raises(ValueError, match="num_interpreters=0: pass 1 or more"):
        InterpreterPool(model, 0)


def test_as_many_calls_at_a_time_as_interpreters(model, monkeypatch):
    threads, inside, most, lock = [], [], [], threading.Lock()
    both_are_in = threading.Barrier(2, timeout=10)
    open_interpreter, run = litert.open_interpreter, litert._Interpreter.run

    def opened(source, num_threads):
        threads.append(num_threads)
        return open_interpreter(source, num_threads)

    def watched(self, *arguments):
        with lock:
            inside.append(self)
            most.append(len(inside))
            assert len(set(map(id, inside))) == len(inside)  # no interpreter twice
        both_are_in.wait()
        answer = run(self, *arguments)
        with lock:
            inside.remove(self)
        return answer

    monkeypatch.setattr(litert, "open_interpreter", opened)
    pool = InterpreterPool(model, num_interpreters=2, num_threads=5)
    InterpreterPool(model, num_interpreters=3, num_threads=1)
    assert threads == [3, 2, 1, 1, 1]
    monkeypatch.setattr(litert._Interpreter, "run", watched)
    texts = [f"{number:03}" for number in range(20)]
    with ThreadPoolExecutor(4) as clients:
        results = [*clients.map(lambda text: pool.run("texts", {"text": [text]})["text"], texts)]
    assert [row[0].decode() for row in results] == texts
    assert max(most) == 2


def test_who_waits_first_comes_first(model):
    pool, order = InterpreterPool(model), []

    def run(name):
        with pool._taken():
            order.append(name)

    with ThreadPoolExecutor(1) as other, pool._taken():
        waits = other.submit(run, "waits")
        while not pool._waiting:
            time.sleep(0.001)
        again = pool._taken()
    with again:
        order.append("comes again")
    waits.result()
    assert order == ["waits", "comes again"]


def test_a_tflite_runs_without_tensorflow_in_python(model):
    """Importing TensorFlow takes seconds and hundreds of megabytes."""
    program = (
        "import sys\n"
        "from keras_lm.litert import InterpreterPool\n"
        "pool = InterpreterPool(sys.argv[1])\n"
        "assert pool.run('texts', {'text': ['ab']})['length'].tolist() == [2]\n"
        "assert not {'tensorflow', 'keras'} & sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", program, model], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.slow
def test_tensorflow_can_be_imported_after_a_tflite_was_opened(model):
    program = (
        "import sys\n"
        "from keras_lm.litert import InterpreterPool\n"
        "pool = InterpreterPool(sys.argv[1])\n"
        "import tensorflow_text\n"
        "assert tensorflow_text.ByteSplitter().split(['ab']).to_list() == [[97, 98]]\n"
        "for pool in (pool, InterpreterPool(sys.argv[1])):\n"
        "    assert pool.run('texts', {'text': ['ab']})['length'].tolist() == [2]\n"
    )
    done = subprocess.run([sys.executable, "-c", program, model], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
