"""A SavedModel answers as its task does, holds each weight once, and appears in one step."""

import threading
import warnings

import numpy as np
import pytest
import tensorflow as tf

from keras_lm import export, tasks
from keras_lm.export.saved_model import write_version
from keras_lm.models import BertBackbone
from keras_lm.utils import files


@pytest.mark.slow
def test_a_head_that_was_never_trained_is_warned_of(make_classifier, tmp_path):
    task = make_classifier()
    with pytest.warns(UserWarning, match="a head that was never trained, so its answers are rand"):
        task.export(tmp_path / "models")
    task.fit(["a film", "a song"], [0, 1], verbose=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert task.export(tmp_path / "models").name == "2"


@pytest.mark.parametrize("name", ["7", "models/1"])
def test_the_name_of_a_version_is_no_path(make_classifier, tmp_path, name):
    with pytest.raises(ValueError, match=r"has the name of a version.*: pass '.*', in which"):
        make_classifier().export(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def make_classifier(tokenizer_of):
    """`make_classifier()` is a new task whose head is random."""

    def make():
        backbone = BertBackbone(tokenizer_of("wordpiece").vocabulary_size, 1, 2, 8, 8)
        return tasks.TextClassifier(backbone, num_classes=2, tokenizer=tokenizer_of("wordpiece"))

    return make


def columns_of(task, texts):
    """The texts of one batch; a task of pairs gets them against themselves, reversed."""
    rows = [text.encode() if isinstance(text, str) else text for text in texts]
    columns = {"text": tf.constant(rows)}
    if task.text_pair:
        columns["text_pair"] = tf.constant(rows[::-1])
    return columns


def assert_equal(actual, expected, tolerance=1e-5):
    assert set(actual) == set(expected)
    for name, value in expected.items():
        assert actual[name].shape == value.shape
        if value.dtype == tf.string:
            np.testing.assert_array_equal(actual[name].numpy(), value.numpy())
        else:
            np.testing.assert_allclose(actual[name], value, rtol=tolerance, atol=tolerance)


CASES = [
    "classifier of pairs",
    "multi-label pairs",
    "regressor of pairs on a scalar mix",
    "vectors of tokens",
    "fill mask",
    "pretrainer of pairs",
]


@pytest.mark.parametrize("case", CASES)
def test_both_signatures_answer_as_the_task(case, exported_as, texts):
    task, _, signatures = exported_as(case)
    if case == "fill mask":
        texts = [*texts, "the [MASK] was [MASK] !", "[MASK] " * 30]
    columns = columns_of(task, texts)

    assert_equal(signatures["serving_default"](**columns), task.answer(columns))

    packed = task.preprocess(columns)
    raw = task(packed, training=False)
    if not isinstance(raw, dict):
        raw = {"embedding" if case == "vectors of tokens" else "logits": raw}
    assert_equal(signatures["tokens"](**packed), raw)


@pytest.mark.parametrize("numbers", [(2, 1), (1, 2), (3, 2), (0, 1)])
def test_columns_have_as_many_rows(exported_as, numbers):
    """Where one has a single row, TensorFlow would repeat it for the others."""
    task, _, signatures = exported_as("classifier of pairs")
    columns = {
        name: tf.constant(["film"] * number, tf.string)
        for name, number in zip(task.text_names, numbers)
    }
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        signatures["serving_default"](**columns)
    assert "text, text_pair have different numbers of rows: pass as many of" in str(error.value)


def test_empty_batch_and_half_precision(exported_as, texts):
    task, _, signatures = exported_as("half precision, fixed length")
    serve = signatures["serving_default"]
    answer = serve(text=columns_of(task, texts)["text"])
    assert answer["scores"].dtype == tf.float32
    # The graph rounds where it fuses, and fusing differs between a graph and single operations.
    np.testing.assert_allclose(answer["scores"], task.classify(texts)["scores"], atol=1e-3)

    answer = serve(text=tf.zeros([0], tf.string))
    assert answer["scores"].shape == (0, 2)
    assert answer["labels"].shape == (0,)


def test_half_precision_vectors_are_served_as_float32(make_backbone, tokenizer):
    task = tasks.FeatureExtractor(make_backbone(dtype="mixed_bfloat16"), tokenizer=tokenizer)
    signatures = task.signatures.functions()  # what an export writes
    for name in ("serving_default", "tokens"):
        assert signatures[name].structured_outputs["embedding"].dtype == tf.float32


@pytest.mark.eager
def test_folder_holds_weights_once_and_nothing_of_training(
    make_backbone, tokenizer, texts, tmp_path
):
    backbone = make_backbone(num_layers=2, hidden_dim=512, intermediate_dim=2048)
    task = tasks.TextClassifier(backbone, num_classes=2, tokenizer=tokenizer)
    task.train_on_batch(texts[:2], [0, 1])  # now there are optimizer slots and seeds
    folder = task.export(tmp_path)

    weights = sum(w.value.numpy().nbytes for w in task.weights)
    vocabulary = sum(len(token.encode()) + 1 for token in tokenizer.vocabulary)
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    assert weights > 20e6
    assert size <= 1.05 * (weights + vocabulary)
    saved = tf.train.list_variables(str(folder / "variables" / "variables"))
    saved = [shape for name, shape in saved if name != "_CHECKPOINTABLE_OBJECT_GRAPH"]
    assert sorted(saved) == sorted(list(w.shape) for w in task.weights)


def test_unused_weights_stay_out(exported_as):
    _, folder, _ = exported_as("vectors of tokens")  # has no use for a pooler
    saved = [name for name, _ in tf.train.list_variables(str(folder / "variables" / "variables"))]
    assert any("token_embedding" in name for name in saved)
    assert not any("pooler" in name for name in saved)


# === Versions ===


def write(folder):
    folder.mkdir()
    (folder / "file").write_text("all")


def test_next_number_and_other_things_untouched(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "file").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "12.old").mkdir()
    assert write_version(tmp_path, write) == tmp_path / "8"
    assert write_version(str(tmp_path), write) == tmp_path / "9"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["12.old", "7", "8", "9", "notes.txt"]
    assert (tmp_path / "7" / "file").read_text() == "mine"


def test_version_appears_only_when_complete(tmp_path):
    def watch(folder):
        write(folder)
        assert not [p.name for p in tmp_path.iterdir() if p.name.isdigit()]

    write_version(tmp_path, watch)
    assert [p.name for p in tmp_path.iterdir()] == ["1"]


def test_exports_at_the_same_time_each_get_a_number(tmp_path):
    together = threading.Barrier(8)

    def slow(folder):
        write(folder)
        together.wait(30)

    threads = [
        threading.Thread(target=write_version, args=(tmp_path / "models", slow)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = sorted(p.name for p in (tmp_path / "models").iterdir())
    assert names == [str(n) for n in range(1, 9)]
    assert all((tmp_path / "models" / name / "file").exists() for name in names)


def test_what_killed_exports_left_is_removed_and_the_new_name_synced(tmp_path, monkeypatch):
    (tmp_path / ".exporting-abcdefgh.writing" / "version").mkdir(parents=True)
    synced = []
    sync = files.sync_one
    monkeypatch.setattr(files, "sync_one", lambda path: synced.append(path) or sync(path))
    assert write_version(tmp_path, write) == tmp_path / "1"
    assert [path.name for path in tmp_path.iterdir()] == ["1"]
    assert [path.name for path in synced] == ["file", "version", tmp_path.name]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_failed_export_leaves_nothing_behind(error, tmp_path):
    def fail(folder):
        write(folder)
        raise error

    with pytest.raises(error):
        write_version(tmp_path / "new" / "models", fail)
    assert list(tmp_path.iterdir()) == []


# === Mistakes ===


def test_mistakes_have_clear_words(make_backbone, tokenizer, tmp_path):
    task = tasks.TextRegressor(make_backbone(), tokenizer=tokenizer)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADirectoryError, match="is a file"):
        task.export(tmp_path / "file")
    with pytest.raises(NotADirectoryError, match="is a file"):
        task.export(tmp_path / "file" / "deeper")
    with pytest.raises(ValueError, match="neither fsspec nor TensorFlow knows the scheme"):
        task.export("nosuch://bucket/models")
    with pytest.raises(ValueError, match="format='pb': use one of"):
        task.export(tmp_path / "models", format="pb")
    with pytest.raises(ValueError, match=r"tokenizer=None or tokenizer='bytes' with format='onnx'"):
        task.export(tmp_path / "models", format="onnx")
    (tmp_path / "folder.tflite").mkdir()
    with pytest.raises(IsADirectoryError):  # LiteRT by its suffix
        task.export(str(tmp_path / "folder.tflite"))
    (tmp_path / "folder.tflite").rmdir()
    with pytest.raises(ValueError, match="no tokenizer"):
        export.export(tasks.TextRegressor(make_backbone()), tmp_path / "models")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
