"""The context-free baseline: published files in, strings to classes, exports."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import Backbone, WordVectorBackbone
from keras_lm.tasks import FeatureExtractor, Task, TextClassifier, TokenClassifier

WORDS = ["good", "bad", "film", "a", "!", "café"]
VECTORS = np.random.default_rng(0).normal(size=(len(WORDS), 4)).astype("float32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("glove")
    lines = [f"{w} {' '.join(map(repr, v.tolist()))}" for w, v in zip(WORDS, VECTORS)]
    (folder / "glove.4d.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_vectors_are_those_of_the_file(folder):
    backbone = Backbone.from_preset(folder)
    assert type(backbone) is WordVectorBackbone
    ids = np.array([[2, 7, 0, 1]])
    outputs = backbone({"token_ids": ids})["sequence_output"]
    np.testing.assert_array_equal(outputs[0], [VECTORS[0], VECTORS[5], np.zeros(4), np.zeros(4)])
    vectors = np.arange(6.0).reshape(3, 2)
    own = WordVectorBackbone.from_vectors(vectors, dropout=0.5)
    np.testing.assert_array_equal(own.word_embedding.embeddings, vectors)
    assert own.config == {"vocabulary_size": 3, "embedding_dim": 2, "dropout": 0.5}
    with pytest.raises(ValueError, match=r"vectors has the shape \(3,\)"):
        WordVectorBackbone.from_vectors(np.zeros(3))


@pytest.mark.eager
def test_features_are_the_mean_of_known_words(folder):
    task = FeatureExtractor.from_preset(folder)
    texts = ["good film!", "", "film " * 5000, "zzz \U0001f600", "café"]
    actual = task.embed([*map(str.encode, texts), b"bad \xff"])["embedding"]
    np.testing.assert_allclose(actual[0], VECTORS[[0, 2, 4]].mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(actual[1], 0)
    np.testing.assert_allclose(actual[2], VECTORS[2], atol=1e-4)
    np.testing.assert_allclose(actual[3], 0)
    np.testing.assert_allclose(actual[4], VECTORS[5])
    np.testing.assert_allclose(actual[5], VECTORS[1] / 2, atol=1e-6)


@pytest.mark.thorough
@pytest.mark.eager
def test_a_linear_classifier_on_fixed_vectors(folder, tmp_path):
    keras.utils.set_random_seed(0)
    task = TextClassifier.from_preset(folder, class_names=["bad", "good"])
    task.backbone.trainable = False
    assert len(task.trainable_variables) == 2
    assert float(np.asarray(task.optimizer.learning_rate)) == pytest.approx(1e-3)
    task.compile(optimizer=keras.optimizers.Adam(0.3))
    texts, labels = ["a good film", "bad film!", "good!", "a bad"], ["good", "bad"] * 2
    task.fit(texts * 5, labels * 5, batch_size=4, epochs=4, shuffle=False, verbose=0)
    assert task.evaluate(texts, labels, verbose=0, return_dict=True)["accuracy"] == 1.0
    np.testing.assert_array_equal(task.backbone.word_embedding.embeddings[2:], VECTORS)

    texts = [b"a good film", b"", b"\xff \xf0\x9f\x98\x80"]
    own = task.classify(texts)["scores"]
    pooled = task.backbone({"token_ids": [[5, 2, 4]]})["sequence_output"].numpy().mean(axis=1)
    logits = pooled @ task.head.logits.kernel.numpy() + task.head.logits.bias.numpy()
    np.testing.assert_allclose(own[:1], keras.ops.softmax(logits), atol=1e-5)
    task.save_to_preset(tmp_path / "preset")
    again = Task.from_preset(tmp_path / "preset")
    logits, expected = (each(each.preprocess(each.columns(texts))) for each in (again, task))
    np.testing.assert_array_equal(logits, expected)
    serve = tf.saved_model.load(str(task.export(tmp_path / "export"))).signatures["serving_default"]
    np.testing.assert_allclose(serve(text=tf.constant(texts))["scores"], own, atol=1e-6)


@pytest.mark.eager
def test_a_tagger(folder):
    task = TokenClassifier.from_preset(folder, class_names=["O", "ADJ"])
    assert task.tag(["a good film"])["tokens"] == [["a", "good", "film"]]
    with pytest.raises(ValueError, match="no attention"):
        task.backbone.attention_probabilities({"token_ids": [[1]]})
