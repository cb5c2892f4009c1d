"""Sparse vectors: equal to sentence-transformers', learned, searched, saved and served."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm import litert, models
from keras_lm.converters import CheckpointError
from keras_lm.objectives import SpladeLoss
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
        network = copy / "document_0_Transformer" if name == "router" else copy
        files = ["model.safetensors"]
        files += ["config.json", "tokenizer.json", "tokenizer_config.json"] * (name == "router")
        for file in files:
            shutil.copy(goldens("sparse-encoder") / "max" / file, network)
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
    with encoder._reading(pairs) as x:
        preprocessor = encoder.feed.preprocessor
        packed = preprocessor(preprocessor.columns(x))
    weights = [
        encoder.backbone.token_embedding.embeddings.value,
        encoder.features.head.norm.gamma.value,
    ]
    with tf.GradientTape() as tape:
        loss = SpladeLoss()(None, encoder(packed, training=False))
    for name, gradient in zip(("embedding", "norm"), tape.gradient(loss, weights), strict=True):
        gradient = tf.convert_to_tensor(gradient)  # of an embedding, some rows alone
        np.testing.assert_allclose(gradient, expected[f"whole_{name}_grad"], atol=1e-5)


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
    vectors = encoder.embed(("rain", "film"), verbose=0)["embedding"]  # a tuple is a list of texts
    np.testing.assert_array_equal(vectors, encoder.embed(["rain", "film"], verbose=0)["embedding"])
    pair = encoder.expand(("rain", "film"), k=2, verbose=0)["terms"]
    np.testing.assert_array_equal(pair, encoder.expand(["rain", "film"], k=2, verbose=0)["terms"])


@pytest.mark.slow
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


@pytest.mark.slow
def test_learning_and_search(folder):
    keras.utils.set_random_seed(0)
    encoder = SparseEncoder.from_preset(folder("max"), prompts={}, dropout=0.0)
    encoder.compile(optimizer=keras.optimizers.Adam(0.003))
    before = encoder.embed(POSITIVES)["embedding"]
    losses = encoder.fit((ANCHORS, POSITIVES), epochs=6, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 2
    assert np.abs(encoder.embed(POSITIVES)["embedding"] - before).max() > 0.01
    index = Index(encoder, POSITIVES)
    hits = index.search(ANCHORS, k=2)
    scores = encoder.embed(ANCHORS)["embedding"] @ encoder.embed(POSITIVES)["embedding"].T
    np.testing.assert_allclose(hits["scores"], -np.sort(-scores, axis=1), rtol=1e-5)
    assert hits["documents"][:, 0].tolist() == POSITIVES
    with pytest.raises(ValueError, match="compares cosines"):
        ApproximateIndex(encoder, POSITIVES)


@pytest.mark.eager
def test_queries_without_a_network(folder, expected, tmp_path):
    texts = expected["texts"].tolist()
    encoder = Task.from_preset(folder("router"))
    assert type(encoder) is SparseEncoder and encoder.static_queries
    pairs = (expected["anchors"].tolist(), expected["positives"].tolist())
    loss = encoder.evaluate(pairs, verbose=0, return_dict=True)["loss"]
    np.testing.assert_allclose(loss, expected["router_loss"], atol=1e-5)
    encoder.save_to_huggingface(tmp_path / "out")
    encoder.save_to_preset(tmp_path / "preset")
    encoder.save(tmp_path / "encoder.keras")
    for each in (
        encoder,
        Task.from_preset(tmp_path / "out"),
        Task.from_preset(tmp_path / "preset"),
        keras.models.load_model(tmp_path / "encoder.keras"),
    ):
        arguments, own = each.get_arguments(), encoder.get_arguments()
        assert arguments | {"text_pair": own["text_pair"]} == own  # which the pairs have shown
        queries = each.embed(texts, prompt_name="query")["embedding"]
        np.testing.assert_allclose(queries, expected["router_query"], atol=1e-6)
        documents = each.embed(texts)["embedding"]
        np.testing.assert_allclose(documents, expected["router_document"], atol=1e-5)
    for prompts in (encoder.prompts, {}):  # a query is one, with a prompt or without
        encoder.prompts = prompts
        scores = Index(encoder, texts).search(texts, k=1)["scores"][:, 0]
        products = expected["router_query"] @ expected["router_document"].T
        np.testing.assert_allclose(scores, products.max(axis=1), rtol=1e-4)


@pytest.mark.eager
def test_weights_of_queries_learn_unless_they_are_frozen(folder):
    source = folder("router")
    for freeze in (False, True):
        encoder = SparseEncoder.from_preset(source, freeze_queries=freeze)
        before = encoder.query_weights.token_weights.numpy()
        encoder.compile(optimizer=keras.optimizers.SGD(0.1))
        encoder.fit((ANCHORS, POSITIVES), epochs=1, verbose=0)
        moved = encoder.query_weights.token_weights.numpy() != before
        spelled = [encoder.tokenizer.token_to_id(word) for word in ("good", "film", "rain")]
        assert moved[spelled].all() != freeze
        assert not np.delete(moved, spelled).any()


@pytest.mark.eager
def test_routers_that_are_refused(folder):
    source = folder("router")
    path = source / "query_0_SparseStaticEmbedding/config.json"
    path.write_text(json.dumps({"path": "idf.json"}))
    with pytest.raises(CheckpointError, match=r"idf\.json"):
        SparseEncoder.from_preset(source)
    path = source / "router_config.json"
    config = json.loads(path.read_text())
    config["structure"]["query"] = ["document_0_Transformer"]
    path.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="has queries take the modules Transformer"):
        SparseEncoder.from_preset(source)


@pytest.mark.slow
def test_exports(folder, tmp_path):
    source = folder("router")
    encoder = SparseEncoder.from_preset(source)
    vectors = encoder.embed(POSITIVES, prompt_name="query")["embedding"]
    serve = tf.saved_model.load(str(encoder.export(tmp_path / "router"))).signatures["query"]
    np.testing.assert_allclose(serve(text=tf.constant(POSITIVES))["embedding"], vectors, atol=1e-6)
    file = encoder.export(tmp_path / "router.tflite", format="litert")
    run = litert.open_interpreter(file).get_signature_runner("query")
    np.testing.assert_allclose(run(text=np.array(POSITIVES))["embedding"], vectors, atol=1e-6)
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
