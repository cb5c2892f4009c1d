"""Late interaction: equal to sentence-transformers', learned, scored, saved and served."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny
from safetensors.numpy import load_file, save_file

from keras_lm import litert, models
from keras_lm.converters import CheckpointError
from keras_lm.evaluation import evaluate_retrieval, evaluate_similarity, evaluate_triplets
from keras_lm.metrics import InBatchRecall
from keras_lm.objectives import CoSENT, InBatchNegatives, MaxSimNegatives, SupervisedContrastive
from keras_lm.objectives.late_interaction import max_sim
from keras_lm.search import Index
from keras_lm.tasks import (
    FeatureExtractor,
    MultiVectorEncoder,
    SentenceEncoder,
    Task,
    TextClassifier,
)
from keras_lm.training import fit_few

FOLDERS = ("native", "pylate", "authors")
LATER = ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "config.json")
PAIRS = (["good film", "rain"], ["the film was good", "rain tomorrow ?"])


@pytest.fixture(scope="module")
def expected(goldens):
    return dict(np.load(goldens("multi-vector") / "expected.npz"))


@pytest.fixture
def folder(goldens, tmp_path):
    """A function that copies a golden folder, with its weights."""
    root = goldens("multi-vector")

    def folder(name):
        copy = shutil.copytree(root / name, tmp_path / name)
        if name == "pylate":
            for file in (*LATER, "1_Dense/model.safetensors"):
                shutil.copy(root / "native" / file, copy / file)
        elif name == "authors":
            tensors = load_file(root / "native/model.safetensors")
            tensors = {f"bert.{key}": value for key, value in tensors.items()}
            tensors |= load_file(root / "native/1_Dense/model.safetensors")
            save_file(tensors, copy / "model.safetensors")
        return copy

    return folder


@pytest.fixture
def encoder(folder):
    return MultiVectorEncoder.from_preset(folder("native"))


def counted(answers):
    """The vectors that count, without gaps and padded with zeros."""
    rows = [x[mask > 0] for x, mask in zip(answers["embedding"], answers["mask"], strict=True)]
    width = max(map(len, rows))
    return np.stack([np.pad(x, ((0, width - len(x)), (0, 0))) for x in rows])


@pytest.mark.eager
@pytest.mark.parametrize("name", FOLDERS)
def test_vectors_and_scores_are_the_librarys(folder, expected, name, recwarn):
    queries, documents = expected["queries"].tolist(), expected["documents"].tolist()
    encoder = MultiVectorEncoder.from_preset(folder(name))
    assert not [w for w in recwarn if "left over" in str(w.message)]
    asked = encoder.embed(queries, prompt_name="query")
    assert asked["mask"].all() and asked["mask"].shape == (3, 8)
    np.testing.assert_allclose(counted(asked), expected[f"{name}_query"], atol=1e-5)
    told = encoder.embed(documents)
    np.testing.assert_allclose(counted(told), expected[f"{name}_document"], atol=1e-5)
    np.testing.assert_array_equal(told["embedding"][told["mask"] == 0], 0)
    scores = encoder.score(queries, documents)
    np.testing.assert_allclose(scores, expected[f"{name}_scores"], atol=1e-5)
    own = max_sim(asked["embedding"], told["embedding"])
    np.testing.assert_allclose(own, scores, atol=1e-5)


@pytest.mark.eager
def test_the_loss_is_the_librarys(encoder, expected):
    columns = [expected[name].tolist() for name in ("anchors", "positives", "negatives")]
    for texts, name in ((columns, "loss"), (columns[:2], "loss_pairs")):
        loss = encoder.evaluate(tuple(texts), verbose=0, return_dict=True)["loss"]
        np.testing.assert_allclose(loss, expected[name], atol=1e-5)
    with encoder._reading(tuple(columns)) as x:
        preprocessor = encoder.feed.preprocessor
        packed = preprocessor(preprocessor.columns(x))
    weights = [
        encoder.features.projections[0].kernel.value,
        encoder.backbone.token_embedding.embeddings.value,
    ]
    with tf.GradientTape() as tape:
        loss = MaxSimNegatives()(None, encoder(packed, training=False))
    for name, gradient in zip(("dense", "embedding"), tape.gradient(loss, weights), strict=True):
        gradient = tf.convert_to_tensor(gradient)  # of an embedding, some rows alone
        np.testing.assert_allclose(gradient, expected[f"loss_{name}_grad"], atol=1e-5)
    vectors = encoder.predict(tuple(columns), verbose=0)
    assert vectors.shape[:2] == (2, 3)
    loss = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(MaxSimNegatives(scale=2.0))
    )
    scores = max_sim(vectors[:, 0], np.concatenate([vectors[:, 1], vectors[:, 2]]))
    own = -np.diag(keras.ops.log_softmax(2 * scores))
    np.testing.assert_allclose(loss(None, vectors), own.mean(), rtol=1e-5)
    with pytest.raises(ValueError, match="compares the tokens of pairs"):
        loss(None, vectors[:, 0])


@pytest.mark.slow
def test_learning_and_parts_of_a_batch(folder):
    keras.utils.set_random_seed(0)
    encoder = MultiVectorEncoder.from_preset(folder("native"), dropout=0.0)
    encoder.compile(optimizer=keras.optimizers.Adam(0.01))
    losses = encoder.fit(PAIRS, epochs=8, verbose=0).history["loss"]
    assert losses[-1] < losses[0] / 2
    assert encoder.score(*PAIRS).argmax(axis=1).tolist() == [0, 1]
    source, weights = folder("authors"), []
    for size in (None, 1):
        other = MultiVectorEncoder.from_preset(source, dropout=0.0)
        other.compile(optimizer=keras.optimizers.SGD(0.1), micro_batch_size=size)
        other.fit(PAIRS, epochs=1, shuffle=False, verbose=0)
        weights.append(other.get_weights())
    for one, part in zip(*weights, strict=True):
        np.testing.assert_allclose(part, one, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_folders_presets_and_files_come_back(folder, name, tmp_path, expected):
    queries, documents = expected["queries"].tolist(), expected["documents"].tolist()
    encoder = Task.from_preset(folder(name))
    assert type(encoder) is MultiVectorEncoder
    encoder.save_to_huggingface(tmp_path / "out")
    encoder.save_to_preset(tmp_path / "preset")
    encoder.save(tmp_path / "encoder.keras")
    for again in (
        Task.from_preset(tmp_path / "out"),
        Task.from_preset(tmp_path / "preset"),
        keras.models.load_model(tmp_path / "encoder.keras"),
    ):
        arguments, own = again.get_arguments(), encoder.get_arguments()
        assert arguments | {"truncation": own["truncation"]} == own  # which is of pairs of texts
        scores = again.score(queries, documents)
        np.testing.assert_allclose(scores, expected[f"{name}_scores"], atol=1e-5)
    modules = json.loads((tmp_path / "out/modules.json").read_text())
    kinds = [entry["type"].rpartition(".")[2] for entry in modules]
    assert kinds == ["Transformer", "Dense", "MultiVectorMask", "Normalize"]
    assert "MultiVectorEncoder(" in (tmp_path / "out/README.md").read_text()


@pytest.mark.slow
def test_exports(encoder, tmp_path):
    documents = ["A good film!", "", "rain tomorrow"]
    path = encoder.export(tmp_path / "export")
    serve = tf.saved_model.load(str(path)).signatures
    small = MultiVectorEncoder(
        encoder.backbone,
        encoder.features.get_arguments()["projections"],
        query_length=8,
        tokenizer=encoder.tokenizer,
    )
    small.features.set_weights(encoder.features.get_weights())
    file = small.export(tmp_path / "small.tflite", format="litert")
    interpreter = litert.open_interpreter(file)
    for task, run, texts in (
        (encoder, lambda name: serve[name], tf.constant(documents)),
        (small, interpreter.get_signature_runner, np.array(documents)),
    ):
        for name, role in (("serving_default", None), ("query", "query")):
            own = task.embed(documents, prompt_name=role)
            answers = run(name)(text=texts)
            answers = {key: np.asarray(value) for key, value in answers.items()}
            np.testing.assert_allclose(counted(answers), counted(own), atol=1e-5)


@pytest.mark.eager
def test_queries_as_they_are(encoder):
    parts = {"backbone": encoder.backbone, "tokenizer": encoder.tokenizer}
    plain = MultiVectorEncoder(
        expand_queries=False, query_length=4, skipped_words=["film"], projections=[], **parts
    )
    asked = plain.embed(["a good film was rain", "a"], prompt_name="query")
    assert asked["mask"].sum(axis=1).tolist() == [4, 3]
    assert asked["embedding"].shape[-1] == 16
    told = plain.embed(["a good film", "film"])
    assert told["mask"].tolist() == [[1, 1, 1, 0, 1], [1, 0, 1, 0, 0]]
    np.testing.assert_allclose(np.linalg.norm(told["embedding"][0, :3], axis=-1), 1, rtol=1e-5)


@pytest.mark.eager
def test_it_is_measured_by_its_scores(encoder):
    queries, documents = ["good film", "rain", "a"], ["rain ?", "the film was good", "a good film"]
    scores = encoder.score(queries, documents)
    best = scores.argmax(axis=1)
    measured = evaluate_retrieval(encoder, queries, documents, best)
    assert measured["accuracy@1"] == measured["mrr@10"] == 1
    measured = evaluate_similarity(encoder, queries, documents, np.diag(scores))
    assert measured == pytest.approx({"pearson": 1, "spearman": 1})
    positives = [documents[row] for row in best]
    negatives = [documents[row] for row in scores.argmin(axis=1)]
    assert evaluate_triplets(encoder, queries, positives, negatives) == {"accuracy": 1}
    assert evaluate_triplets(encoder, queries, negatives, positives) == {"accuracy": 0}


@pytest.mark.eager
def test_what_is_refused(folder, encoder, tmp_path):
    native = folder("authors").parent / "native"
    for cls in (FeatureExtractor, SentenceEncoder):
        with pytest.raises(CheckpointError, match="the module 'MultiVectorMask'"):
            cls.from_preset(native)
    dense = SentenceEncoder(encoder.backbone, tokenizer=encoder.tokenizer)
    dense.save_to_huggingface(tmp_path / "dense")
    with pytest.raises(CheckpointError, match="a MultiVectorEncoder reads Transformer"):
        MultiVectorEncoder.from_preset(tmp_path / "dense")
    with pytest.raises(ValueError, match="backbone is of the class ElmoBackbone"):
        MultiVectorEncoder(tiny.elmo())
    with pytest.raises(ValueError, match=r"one vector for each text: pass its network, encoder.b"):
        MultiVectorEncoder(dense, tokenizer=encoder.tokenizer)
    for loss in (InBatchNegatives(), CoSENT(), SupervisedContrastive()):
        with pytest.raises(ValueError, match=r"one vector of each text, and a Multi.*MaxSimNeg"):
            encoder.compile(loss=loss)
    with pytest.raises(ValueError, match=r"have no head for kind='classification': pass its net"):
        TextClassifier(encoder, num_classes=2)
    with pytest.raises(ValueError, match=r"those of tokens are given: leave it out of metrics"):
        encoder.compile(metrics=[InBatchRecall()])
        encoder.fit(PAIRS, verbose=0)
    with pytest.raises(ValueError, match="encoder is of the class MultiVectorEncoder: pass a Sent"):
        fit_few(encoder, ["a", "b", "c"], ["x", "x", "y"])
    with pytest.raises(ValueError, match="query_length=None"):
        MultiVectorEncoder(encoder.backbone, query_length=None)
    with pytest.raises(ValueError, match="attend_to_expansion=False: RobertaBackbone counts"):
        MultiVectorEncoder(models.RobertaBackbone(20, 1, 2, 16, 24, max_sequence_length=40))
    with pytest.raises(ValueError, match="prompt_name='question'"):
        encoder.embed(["a"], prompt_name="question")
    with pytest.raises(ValueError, match=r"a vector for each token.*call encoder.score"):
        Index(encoder, ["a"])
    with pytest.raises(ValueError, match="queries='a' is one text: pass a list"):
        encoder.score("a", ["a"])
    path = native / "sentence_bert_config.json"
    config = json.loads(path.read_text())
    config["query_expansion"] |= {"strategy": "min"}
    path.write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="supported is the strategy 'fixed'"):
        MultiVectorEncoder.from_preset(native)
    config["query_expansion"] = None
    path.write_text(json.dumps(config))
    path = native / "2_MultiVectorMask/config.json"
    path.write_text(json.dumps({"skiplist_tasks": ["query"]}))
    with pytest.raises(CheckpointError, match="skiplist_tasks"):
        MultiVectorEncoder.from_preset(native)
