"""Sparse vectors: equal to sentence-transformers', learned, searched, saved and served."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm import litert, models
from keras_lm.converters import CheckpointError
from keras_lm.search import ApproximateIndex, Index
from keras_lm.tasks import FeatureExtractor, SentenceEncoder, SparseEncoder, Task

ANCHORS, POSITIVES = ["good film", "rain"], ["the film was good", "rain tomorrow ?"]


@pytest.fixture(scope="module")
def expected(goldens):
    return dict(np.load(goldens("sparse-encoder") / "expected.npz"))


@pytest.fixture
def folder(goldens, tmp_path):
    """A function that copies a golden folder, with its weights."""

    def folder(name):
        copy = shutil.copytree(goldens("sparse-encoder") / name, tmp_path / name)
        shutil.copy(goldens("sparse-encoder") / "max/model.safetensors", copy)
        return copy

    return folder


@pytest.fixture
def encoder(folder):
    return SparseEncoder.from_preset(folder("max"), prompts={})


@pytest.mark.eager
def test_vectors_and_the_loss_are_the_librarys(folder, expected):
    texts = expected["texts"].tolist()
    encoder = SparseEncoder.from_preset(folder("max"))
    vectors = encoder.embed(texts)["embedding"]
    np.testing.assert_allclose(vectors, expected["max"], atol=1e-5)
    queries = encoder.embed(texts, prompt_name="query")["embedding"]
    np.testing.assert_allclose(queries, expected["query"], atol=1e-5)
    other = SparseEncoder.from_preset(folder("sum"))
    assert (other.pooling, other.activation, other.top_k) == ("sum", "log1p_relu", 4)
    np.testing.assert_allclose(other.embed(texts)["embedding"], expected["sum"], atol=1e-5)
    encoder.prompts = {}
    pairs = (expected["anchors"].tolist(), expected["positives"].tolist())
    loss = encoder.evaluate(pairs, verbose=0, return_dict=True)["loss"]
    np.testing.assert_allclose(loss, expected["whole_loss"], atol=1e-5)


@pytest.mark.eager
def test_terms_are_the_largest_weights(encoder):
    vectors = encoder.embed(POSITIVES)["embedding"]
    expanded = encoder.expand(POSITIVES, k=3)
    order = np.argsort(-vectors, axis=1)[:, :3]
    np.testing.assert_array_equal(expanded["token_ids"], order)
    np.testing.assert_array_equal(expanded["weights"], np.take_along_axis(vectors, order, 1))
    vocabulary = encoder.tokenizer.vocabulary
    assert expanded["terms"].tolist() == [[vocabulary[i] for i in row] for row in order]
    assert encoder.expand(POSITIVES)["weights"].shape == (2, 20)
    with pytest.raises(ValueError, match="k=0"):
        encoder.expand(POSITIVES, k=0)
    with pytest.raises(ValueError, match="top_k=21"):
        SparseEncoder(encoder.backbone, top_k=21)
    with pytest.raises(ValueError, match="prompt_name='question'"):
        encoder.expand(POSITIVES, prompt_name="question")


@pytest.mark.parametrize("name", ["max", "sum"])
def test_folders_presets_and_files_come_back(folder, name, tmp_path, expected):
    texts = expected["texts"].tolist()
    encoder = Task.from_preset(folder(name))
    assert type(encoder) is SparseEncoder
    encoder.save_to_huggingface(tmp_path / "out")
    encoder.save_to_preset(tmp_path / "preset")
    encoder.save(tmp_path / "encoder.keras")
    for again in (
        Task.from_preset(tmp_path / "out"),
        Task.from_preset(tmp_path / "preset"),
        keras.models.load_model(tmp_path / "encoder.keras"),
    ):
        assert again.get_arguments() == encoder.get_arguments()
        np.testing.assert_allclose(again.embed(texts)["embedding"], expected[name], atol=1e-5)
    pooling = json.loads((tmp_path / "out/1_SpladePooling/config.json").read_text())
    own = json.loads(
        (folder("max" if name == "sum" else "sum").parent / name)
        .joinpath("1_SpladePooling/config.json")
        .read_text()
    )
    assert pooling == own | {"embedding_dimension": 20}
    assert "SparseEncoder(" in (tmp_path / "out/README.md").read_text()


def test_learning_and_search(encoder):
    keras.utils.set_random_seed(0)
    encoder.compile(optimizer=keras.optimizers.Adam(0.03))
    before = encoder.embed(POSITIVES)["embedding"]
    losses = encoder.fit((ANCHORS, POSITIVES), epochs=20, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 2
    assert np.abs(encoder.embed(POSITIVES)["embedding"] - before).max() > 0.01
    index = Index(encoder, POSITIVES)
    hits = index.search(ANCHORS, k=2)
    scores = encoder.embed(ANCHORS)["embedding"] @ encoder.embed(POSITIVES)["embedding"].T
    np.testing.assert_allclose(hits["scores"], -np.sort(-scores, axis=1), rtol=1e-5)
    assert hits["documents"][:, 0].tolist() == POSITIVES
    with pytest.raises(ValueError, match="compares cosines"):
        ApproximateIndex(encoder, POSITIVES)


@pytest.mark.slow
def test_exports(folder, tmp_path):
    for top_k in (None, 4):
        encoder = SparseEncoder.from_preset(folder(("max", "sum")[top_k is not None]))
        vectors, terms = encoder.embed(POSITIVES)["embedding"], encoder.expand(POSITIVES, k=4)
        path = encoder.export(tmp_path / f"export-{top_k}")
        serve = tf.saved_model.load(str(path)).signatures["serving_default"]
        file = encoder.export(tmp_path / f"{top_k}.tflite", format="litert")
        run = litert.open_interpreter(file).get_signature_runner()
        for answers in (serve(text=tf.constant(POSITIVES)), run(text=np.array(POSITIVES))):
            if top_k is None:
                np.testing.assert_allclose(answers["embedding"], vectors, atol=1e-5)
                continue
            np.testing.assert_allclose(answers["weights"], terms["weights"], atol=1e-5)
            np.testing.assert_array_equal(answers["token_ids"], terms["token_ids"])
            words = np.asarray(answers["terms"]).astype("U").tolist()
            assert words == terms["terms"].tolist()


@pytest.mark.eager
def test_folders_of_another_kind_are_named(folder, tmp_path):
    sparse = folder("max")
    for cls in (FeatureExtractor, SentenceEncoder):
        with pytest.raises(CheckpointError, match="the module 'SpladePooling'"):
            cls.from_preset(sparse)
    backbone = models.Backbone.from_preset(sparse)
    dense = SentenceEncoder(backbone, tokenizer=SparseEncoder.from_preset(sparse).tokenizer)
    dense.save_to_huggingface(tmp_path / "dense")
    with pytest.raises(CheckpointError, match="a SparseEncoder reads Transformer"):
        SparseEncoder.from_preset(tmp_path / "dense")
    with pytest.raises(ValueError, match="pooling='mean': pass one of"):
        SparseEncoder(backbone, pooling="mean")
    with pytest.raises(ValueError, match="no head for kind='token'"):
        SparseEncoder(models.WordVectorBackbone(9, 4))
    path = sparse / "1_SpladePooling/config.json"
    path.write_text(json.dumps({"pooling_strategy": "mean"}))
    with pytest.raises(CheckpointError, match="pooling='mean'"):
        SparseEncoder.from_preset(sparse)
    path.write_text(json.dumps({"norm": True}))
    with pytest.raises(CheckpointError, match="norm=True"):
        SparseEncoder.from_preset(sparse)
