"""Whatever byte of a file of ours changes: it is refused, or the answer is the same."""

import json
import zipfile

import keras
import numpy as np
import pytest

from keras_lm import data
from keras_lm.converters import CheckpointError
from keras_lm.models import BertBackbone
from keras_lm.tasks import Task, TextClassifier
from keras_lm.tokenizers import WordPieceTokenizer

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "bad", "film", "##s"]
TEXTS = ["a good film", "bad films"]


@pytest.fixture(scope="module")
def task():
    backbone = BertBackbone(len(WORDS), 1, 2, 16, 24, max_sequence_length=16, dropout=0.0)
    tokenizer = WordPieceTokenizer(WORDS, lowercase=True)
    return TextClassifier(backbone, tokenizer=tokenizer, class_names=["bad", "good"])


def flips(content, number):
    draws = np.random.default_rng(3)
    for place in draws.choice(len(content), number, replace=number > len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << int(draws.integers(8))
        yield bytes(changed)


@pytest.mark.parametrize("name", ["keras_lm.json", "assets/vocab.txt", "checksums.json"])
@pytest.mark.eager
def test_a_preset(task, tmp_path, name):
    task.save_to_preset(tmp_path / "preset")
    path = tmp_path / "preset" / name
    content = path.read_bytes()
    for changed in flips(content, 40):
        path.write_bytes(changed)
        with pytest.raises(CheckpointError, match=r"keras_lm\.json|vocab\.txt|checksums\.json"):
            Task.from_preset(tmp_path / "preset")
    if name == "keras_lm.json":
        path.write_bytes(content + b"\n")
        with pytest.raises(CheckpointError, match=r"on purpose, remove .*checksums\.json\.$"):
            Task.from_preset(tmp_path / "preset")
        (tmp_path / "preset" / "checksums.json").unlink()
        Task.from_preset(tmp_path / "preset")


@pytest.mark.eager
def test_a_card_is_there_to_be_changed(task, tmp_path):
    task.save_to_preset(tmp_path / "preset")
    (tmp_path / "preset" / "README.md").write_text("My critic.")
    Task.from_preset(tmp_path / "preset")


def test_a_manifest(task, tmp_path):
    documents = ["a good film\nbad films\na film"] * 9
    template = task.packer.template
    data.write_row_shards(documents, task.tokenizer, template, 8, tmp_path / "rows")
    path = tmp_path / "rows" / "tokens.json"
    content = path.read_bytes()
    index = data.read_token_index(tmp_path / "rows")
    for changed in flips(content, 200):
        path.write_bytes(changed)
        try:
            assert json.loads(changed) == json.loads(content)  # white space
        except (AssertionError, ValueError):
            with pytest.raises(ValueError, match=r"tokens\.json"):
                data.read_token_index(tmp_path / "rows")
    for more in (-1, 1):
        other = json.loads(content)
        other["shards"][0]["windows"] += more
        path.write_text(json.dumps(other))
        with pytest.raises(ValueError, match=r"tokens\.json has changed"):
            data.read_token_shards(tmp_path / "rows", task.tokenizer)
    path.write_text(json.dumps(index))  # an older one
    assert data.read_token_index(tmp_path / "rows") == index


@pytest.mark.slow
def test_exports(task, tmp_path):
    """Also within the archive at the end of a `.tflite`, which no interpreter reads."""
    from keras_lm.litert import InterpreterPool
    from keras_lm.serving import open_predictor

    version = task.export(tmp_path / "exported")
    right = open_predictor(version).answer({"text": TEXTS})
    for name in ("saved_model.pb", "variables/variables.index", "fingerprint.pb"):
        content = (version / name).read_bytes()
        for changed in flips(content, 20):
            (version / name).write_bytes(changed)
            with pytest.raises(ValueError, match=rf"{name} has changed"):
                open_predictor(version)
        (version / name).write_bytes(content)
    np.testing.assert_equal(open_predictor(version).answer({"text": TEXTS}), right)
    path = task.export(tmp_path / "task.tflite")
    content = path.read_bytes()
    right = InterpreterPool(path).run("serving_default", {"text": TEXTS})["scores"]
    for changed in flips(content, 30):
        path.write_bytes(changed)
        try:
            actual = InterpreterPool(path).run("serving_default", {"text": TEXTS})["scores"]
        except ValueError as error:
            assert "task.tflite" in str(error)
        else:
            np.testing.assert_array_equal(actual, right)


@pytest.mark.eager
def test_files_of_keras(task, tmp_path):
    path = tmp_path / "m.weights.h5"
    task.save_weights(path)
    content = path.read_bytes()
    for damaged in (b"", b"x", content[:100], content[:-100]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="cannot be read as a file of weights"):
            task.load_weights(path)
    path.write_bytes(content)
    task.load_weights(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        task.load_weights(path)

    # Keras reads these before any code of ours: what docs/interruptions.md says of them.
    path = tmp_path / "m.keras"
    task.save(path)
    content = path.read_bytes()
    for changed in flips(content, 5):
        path.write_bytes(changed)
        with pytest.raises(zipfile.BadZipFile):
            keras.models.load_model(path)
    path.write_bytes(content[:-100])
    with pytest.raises(ValueError, match="File not found"):
        keras.models.load_model(path)
