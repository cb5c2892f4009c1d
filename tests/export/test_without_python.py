"""Exports run in a process without Python: a C program over TensorFlow's own libraries.

So does TensorFlow Serving load them; its binary is not in the package index.
"""

import io
import re
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from keras_lm import models, tasks
from keras_lm.tokenizers import BytePairTokenizer

COMPILER = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")

BERT_TASKS = {
    "TextRegressor": {},
    "FeatureExtractor": {},
    "TokenClassifier": {"class_names": ["O", "B-X", "I-X"]},
    "MultipleChoice": {},
    "MaskedLM": {},
    "SparseEncoder": {},
    "MultiVectorEncoder": {"query_length": 8},
}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program") / "serve"
    folder = Path(tf.sysconfig.get_lib())
    source = Path(__file__).with_name("serve.c")
    # A linker takes ten seconds to read TensorFlow's library. It gets an empty one of its name.
    names = set(re.findall(r"\bTF_[A-Z]\w+(?=\()", source.read_text()))
    stub = path.with_name("stub.c")
    stub.write_text("".join(f"void {name}(void) {{}}\n" for name in names))
    library = [
        "-shared",
        "-fPIC",
        "-Wl,-soname,libtensorflow_cc.so.2",
        "-o",
        stub.with_suffix(".so"),
    ]
    subprocess.run([COMPILER, stub, *library], check=True)
    command = [COMPILER, "-o", path, source, stub.with_suffix(".so")]
    command += [f"-I{tf.sysconfig.get_include()}", f"-Wl,-rpath,{folder}"]
    subprocess.run(command, check=True)
    return path


def load(folder):
    return tf.saved_model.load(str(folder)).signatures


def write(tensor):
    tensor = np.asarray(tensor)
    is_text = tensor.dtype.kind in "OS"
    dtype = tf.string if is_text else tf.as_dtype(tensor.dtype)
    numbers = [dtype.as_datatype_enum, tensor.ndim, *tensor.shape]
    values = b"".join(map(write_text, tensor.ravel())) if is_text else tensor.tobytes()
    return struct.pack(f"<{len(numbers)}q", *numbers) + values


def write_text(text):
    return struct.pack("<q", len(text)) + text


def read(stream):
    dtype, rank = struct.unpack("<qq", stream.read(16))
    dtype, shape = tf.as_dtype(dtype), struct.unpack(f"<{rank}q", stream.read(8 * rank))
    count = int(np.prod(shape))
    if dtype == tf.string:
        texts = [stream.read(*struct.unpack("<q", stream.read(8))) for _ in range(count)]
        return np.array(texts, object).reshape(shape)
    values = stream.read(count * dtype.size)
    return np.frombuffer(values, dtype.as_numpy_dtype).reshape(shape)


def text_libraries():
    """The libraries of TensorFlow Text's operations, which TensorFlow Serving has built in."""
    return sorted(Path(tf.sysconfig.get_lib()).parent.glob("tensorflow_text/python/ops/*.so"))


def ask(program, folder, requests, libraries=None):
    """The answers of the C program to pairs of a signature and its inputs, as name → array."""
    saved_model = saved_model_pb2.SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    signatures = saved_model.meta_graphs[0].signature_def
    written = b""
    for name, inputs in requests:
        written += struct.pack("<q", len(inputs))
        for key, tensor in inputs.items():
            written += write_text(signatures[name].inputs[key].name.encode()) + write(tensor)
        written += struct.pack("<q", len(signatures[name].outputs))
        for output in signatures[name].outputs.values():
            written += write_text(output.name.encode())
    libraries = text_libraries() if libraries is None else libraries
    answer = subprocess.run([program, folder, *libraries], input=written, capture_output=True)
    assert answer.returncode == 0, answer.stderr.decode()[-2000:]
    stream = io.BytesIO(answer.stdout)
    results = [{key: read(stream) for key in signatures[name].outputs} for name, _ in requests]
    assert not stream.read()
    return results


def check(program, folder, signatures, requests, libraries=None):
    """Every signature answers there as in Python."""
    answers = ask(program, folder, requests, libraries)
    for (signature, inputs), actual in zip(requests, answers, strict=True):
        expected = signatures[signature](**inputs)
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            if value.dtype.is_floating:
                np.testing.assert_allclose(actual[name], value, atol=1e-5)
            else:
                np.testing.assert_array_equal(actual[name], value)


@pytest.mark.slow
def test_a_classifier_answers(program, exported_as, texts, requests_of):
    _, folder, signatures = exported_as("classifier of pairs")
    requests = [(signature, inputs) for signature, _, inputs in requests_of(folder)]
    columns = {"text": tf.constant(texts), "text_pair": tf.constant(texts[::-1])}
    check(program, folder, signatures, [*requests, ("serving_default", columns)])


@pytest.mark.thorough
@pytest.mark.parametrize("name", BERT_TASKS)
def test_other_berts_answer(name, program, make_backbone, tokenizer, texts, requests_of, tmp_path):
    task = getattr(tasks, name)(make_backbone(), tokenizer=tokenizer, **BERT_TASKS[name])
    folder = task.export(tmp_path / "exported")
    requests = [(signature, inputs) for signature, _, inputs in requests_of(folder)]
    if name != "MultipleChoice":
        requests.append(("serving_default", {"text": tf.constant(texts)}))
    check(program, folder, load(folder), requests)


def test_int8_weights_are_widened_there(program, stored, texts):
    _, folder, signatures = stored["int8"]
    check(program, folder, signatures, [("serving_default", {"text": tf.constant(texts)})])


@pytest.mark.slow
def test_operations_of_tensorflow_alone_need_no_library(
    program, wide_task, stored, texts, requests_of, tmp_path
):
    folder = wide_task.export(tmp_path / "plain", operations="tensorflow")
    requests = [(signature, inputs) for signature, _, inputs in requests_of(folder)]
    assert {"serving_default", "classify"} == {signature for signature, _ in requests}
    rows = [{"text": tf.constant(row, tf.string)} for row in (texts, texts[:1], [])]
    requests += [("serving_default", row) for row in rows]
    check(program, folder, load(folder), requests, libraries=[])
    with pytest.raises(AssertionError, match="Op type not registered"):  # of the usual export
        ask(program, stored["float32"].folder, [("serving_default", rows[0])], libraries=[])


@pytest.mark.slow
def test_a_gpt2_continues(program, goldens, requests_of, tmp_path):
    tokenizer = BytePairTokenizer.from_files(goldens("tokenizers") / "bytebpe-gpt2")
    backbone = models.GPT2Backbone(tokenizer.vocabulary_size, 1, 2, 16, 24, max_sequence_length=32)
    folder = tasks.CausalLM(backbone, tokenizer=tokenizer).export(tmp_path / "exported")
    greedy = {"temperature": tf.constant([0.0])}
    requests = [
        (signature, inputs | (greedy if signature == "generate" else {}))
        for signature, _, inputs in requests_of(folder)
    ]
    check(program, folder, load(folder), requests)
