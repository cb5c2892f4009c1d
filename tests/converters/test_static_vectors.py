"""Static vectors: folders of `StaticEmbedding` and of model2vec, in and out."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from keras_lm import litert, models, tasks
from keras_lm.converters import CheckpointError

FOLDERS = ("plain", "normalized", "model2vec")


@pytest.fixture(scope="module")
def expected(goldens):
    return dict(np.load(goldens("static-embedding") / "expected.npz"))


def encoder_of(folder, **arguments):
    return tasks.SentenceEncoder.from_preset(folder, **arguments)


@pytest.mark.eager
@pytest.mark.parametrize("name", FOLDERS)
def test_vectors_are_the_librarys(goldens, expected, name, tmp_path):
    texts = expected["texts"].tolist()
    encoder = encoder_of(goldens("static-embedding") / name)
    own = encoder.embed(texts)["embedding"]
    np.testing.assert_allclose(own, expected[name], rtol=1e-5, atol=1e-5)
    if name == "normalized":
        queries = encoder.embed(texts, prompt_name="query")["embedding"]
        np.testing.assert_allclose(queries, expected["query"], rtol=1e-5, atol=1e-5)
    encoder.save_to_huggingface(tmp_path / "out")
    again = encoder_of(tmp_path / "out")
    np.testing.assert_array_equal(again.embed(texts)["embedding"], own)
    assert again.get_arguments() == encoder.get_arguments()
    kinds = json.loads((tmp_path / "out/modules.json").read_text())
    kinds = [entry["type"].rpartition(".")[2] for entry in kinds]
    assert kinds == ["StaticEmbedding", "Normalize"][: 1 if name == "plain" else 2]
    assert not (tmp_path / "out/config.json").exists()  # which no network is described by
    assert [*load_file(tmp_path / "out/model.safetensors")] == ["embedding.weight"]


@pytest.mark.eager
def test_texts_are_read_whole_unless_the_tokenizer_says_less(goldens, tmp_path):
    long = encoder_of(goldens("static-embedding") / "plain")
    assert long.packing["sequence_length"] == 1_000_000
    short = tasks.SentenceEncoder(long.backbone, tokenizer=long.tokenizer, sequence_length=2)
    short.save_to_huggingface(tmp_path / "short")
    truncation = json.loads((tmp_path / "short/tokenizer.json").read_text())["truncation"]
    assert (truncation["max_length"], truncation["direction"]) == (2, "Right")
    again = encoder_of(tmp_path / "short")
    one, other = again.embed(["good film rain", "good film"])["embedding"]
    np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_training_and_exports(goldens, tmp_path):
    keras.utils.set_random_seed(0)
    encoder = encoder_of(goldens("static-embedding") / "normalized")
    encoder.compile(optimizer=keras.optimizers.Adam(0.05))
    pairs = (["good film", "rain", "paris"], ["the film", "tomorrow", "was a"])
    losses = encoder.fit(pairs, epochs=6, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 2
    texts = ["A good film!", "", "rain, zebra"]
    vectors = encoder.embed(texts)["embedding"]
    folder = encoder.export(tmp_path / "export")
    serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
    answered = serve(text=tf.constant(texts))["embedding"]
    np.testing.assert_allclose(answered, vectors, atol=1e-6)
    file = encoder.export(tmp_path / "small.tflite", format="litert")
    run = litert.open_interpreter(file).get_signature_runner()
    np.testing.assert_allclose(run(text=np.array(texts))["embedding"], vectors, atol=1e-6)
    encoder.save(tmp_path / "encoder.keras")
    again = keras.models.load_model(tmp_path / "encoder.keras")
    np.testing.assert_array_equal(again.embed(texts)["embedding"], vectors)


@pytest.mark.parametrize(
    "change, error",
    [
        ({"mapping": np.full(20, 7)}, "other numbers"),
        ({"mapping": np.full(20, 0.5)}, "other numbers"),
        ({"mapping": np.zeros(19, int)}, "of the shapes"),
        ({"weights": np.zeros((20, 1))}, "of the shapes"),
        ({"embeddings": np.zeros((7, 6), "int8")}, "int8"),
        ({"more": np.zeros(2)}, "not a checkpoint"),
    ],
)
def test_damaged_files_of_model2vec(goldens, tmp_path, change, error):
    folder = shutil.copytree(goldens("static-embedding") / "model2vec", tmp_path / "folder")
    save_file(load_file(folder / "model.safetensors") | change, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=error):
        encoder_of(folder)


def test_modules_of_another_network(goldens, tmp_path):
    folder = shutil.copytree(goldens("static-embedding") / "plain", tmp_path / "folder")
    for name in ("config.json", "model.safetensors"):
        shutil.copy(goldens("bert") / name, folder / name)
    with pytest.raises(CheckpointError, match="'StaticEmbedding', and the weights beside it"):
        encoder_of(folder)


def test_what_is_not_written(goldens, tmp_path):
    encoder = encoder_of(goldens("static-embedding") / "plain")
    parts = {"backbone": encoder.backbone, "tokenizer": encoder.tokenizer}
    with pytest.raises(ValueError, match=r"pooling='max'.*only 'mean'"):
        tasks.SentenceEncoder(pooling="max", **parts).save_to_huggingface(tmp_path / "out")
    with pytest.raises(ValueError, match="save a SentenceEncoder"):
        encoder.backbone.save_to_huggingface(tmp_path / "out", encoder.tokenizer)
    with pytest.raises(ValueError, match="head 'classification'"):
        task = tasks.TextClassifier(num_classes=2, **parts)
        task.save_to_huggingface(tmp_path / "out")
    assert isinstance(encoder.backbone, models.WordVectorBackbone)
