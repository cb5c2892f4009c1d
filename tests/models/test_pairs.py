"""Both baselines: their equations, over tables and over frozen models; files, exports."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import (
    CoveBackbone,
    ElmoBackbone,
    PairCBOWBackbone,
    PairLSTMBackbone,
    WordVectorBackbone,
)
from keras_lm.tasks import Task, TextClassifier, TextRegressor
from keras_lm.tokenizers import CharacterTokenizer, WordTokenizer

WORDS = ["<unk>", "<pad>", "x", "y", "z", "a"]
# The same word on both sides, or not: neither text says it alone.
FIRST, SECOND = ["x", "y", "x", "y"] * 4, ["x", "y", "y", "x"] * 4
LABELS = ["same", "same", "other", "other"] * 4


def over_a_table():
    backbone = PairLSTMBackbone(
        len(WORDS), embedding_dim=6, hidden_dim=12, num_layers=1, pooled_dim=8, dropout=0.0
    )
    return backbone, WordTokenizer(WORDS, unknown_token="<unk>", pad_token="<pad>")


def over_elmo():
    elmo = ElmoBackbone(
        num_layers=1, hidden_dim=8, cell_dim=8, filters=[(1, 8), (2, 8)], characters_per_word=6
    )
    random = np.random.default_rng(0)
    for weight in elmo.weights:  # as far apart as those of a trained model
        weight.assign(0.5 * random.normal(size=weight.shape))
    backbone = PairLSTMBackbone(
        language_model=elmo, hidden_dim=12, num_layers=1, pooled_dim=8, dropout=0.0
    )
    return backbone, CharacterTokenizer(characters_per_word=6)


@pytest.fixture(
    scope="module", params=[over_a_table, pytest.param(over_elmo, marks=pytest.mark.thorough)]
)
def task(request):
    keras.utils.set_random_seed(0)
    backbone, tokenizer = request.param()
    names = ["other", "same"]
    return TextClassifier(backbone, tokenizer=tokenizer, class_names=names, text_pair=True)


@pytest.mark.thorough
def test_it_learns_what_neither_text_says_alone(task):
    task.compile(optimizer=keras.optimizers.Adam(0.05), run_eagerly=True)
    texts = FIRST * 5, SECOND * 5
    task.fit(texts, LABELS * 5, epochs=4, batch_size=16, shuffle=False, verbose=0)
    assert task.evaluate((FIRST, SECOND), LABELS, verbose=0, return_dict=True)["accuracy"] == 1.0
    model = task.backbone.language_model
    if model is not None:
        frozen = {variable.path for variable in model.variables}
        assert frozen.isdisjoint(variable.path for variable in task.trainable_variables)


@pytest.mark.thorough
def test_files_and_exports(task, tmp_path):
    texts = ([b"x", b"", b"a \xff y", b"z " * 50], [b"y x", b"", b"\xf0\x9f\x98\x80", b"x"])
    own = task.classify(texts)["scores"]
    assert np.isfinite(own).all()
    task.save_to_preset(tmp_path / "preset")
    again = Task.from_preset(tmp_path / "preset")
    assert again.backbone.get_config() == task.backbone.get_config()
    np.testing.assert_allclose(again.classify(texts)["scores"], own, atol=1e-6)
    serve = tf.saved_model.load(str(task.export(tmp_path / "export"))).signatures["serving_default"]
    actual = serve(text=tf.constant(texts[0]), text_pair=tf.constant(texts[1]))["scores"]
    np.testing.assert_allclose(actual, own, atol=1e-5)


def test_the_equations():
    """Attention and comparison by hand, from what the first LSTM gave."""
    backbone, _ = over_a_table()
    ids, segments = np.array([[2, 3, 4, 5, 1]]), np.array([[0, 0, 0, 1, 1]])
    mask = np.array([[1, 1, 1, 1, 0]])
    inputs = {"token_ids": ids, "segment_ids": segments, "padding_mask": mask}
    states = keras.Model(backbone.input, backbone.hidden_states)(backbone.complete(inputs))
    first, second, last = backbone.get_layer("pair_lstm_0"), backbone.get_layer("pair_lstm_1"), None
    x = np.asarray(states[0])
    u, v = first(x[:, :3], np.ones((1, 3))), first(x[:, 3:4], np.ones((1, 1)))
    weights = np.ones((3, 1))  # there is one word to attend to
    last_u = second(np.concatenate([u[0], weights @ v[0]], axis=-1)[None], np.ones((1, 3)))
    scores = keras.ops.softmax(np.asarray(v[0]) @ np.asarray(u[0]).T)
    last_v = second(np.concatenate([v[0], scores @ u[0]], axis=-1)[None], np.ones((1, 1)))
    last = np.concatenate([last_u, last_v, np.zeros((1, 1, 12))], axis=1)
    np.testing.assert_allclose(states[-1], last, atol=1e-5)
    a, b = np.max(last_u, axis=1), np.max(last_v, axis=1)
    compared = np.concatenate([a, b, np.abs(a - b), a * b], axis=-1)
    pooled = backbone.get_layer("pooler")(compared)
    np.testing.assert_allclose(backbone(inputs)["pooled_output"], pooled, atol=1e-5)


def test_words_of_a_model_whose_layers_differ_in_width():
    cove = CoveBackbone(1, embedding_dim=3, hidden_dim=4, vocabulary_size=len(WORDS))
    backbone = PairLSTMBackbone(language_model=cove, hidden_dim=4, num_layers=1, pooled_dim=2)
    assert backbone.hidden_states[0].shape[-1] == 7
    outputs = backbone({"token_ids": [[2, 3]]})  # a single text
    assert np.isfinite(outputs["pooled_output"]).all()
    with pytest.raises(ValueError, match="pass one of them"):
        PairLSTMBackbone()
    with pytest.raises(ValueError, match="hidden_dim=5 is odd"):
        PairLSTMBackbone(9, hidden_dim=5)
    with pytest.raises(ValueError, match="no attention with heads"):
        backbone.attention_probabilities({"token_ids": [[2, 3]]})


def test_the_equations_of_cbow():
    vectors = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    frozen = WordVectorBackbone.from_vectors(vectors)
    for backbone in (PairCBOWBackbone(6, 4), PairCBOWBackbone(language_model=frozen)):
        if backbone.language_model is None:
            backbone.get_layer("pair_embedding").embeddings.assign(vectors)
        inputs = {
            "token_ids": [[2, 3, 4, 5, 1], [3, 2, 1, 1, 1]],
            "segment_ids": [[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]],
            "padding_mask": [[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]],
        }
        u = np.stack([vectors[2:5].mean(axis=0), vectors[2:4].mean(axis=0)])
        v = np.stack([vectors[5], np.zeros(4, "float32")])
        compared = np.concatenate([u, v, np.abs(u - v), u * v], axis=-1)
        expected = backbone.get_layer("pooler")(compared)
        np.testing.assert_allclose(backbone(inputs)["pooled_output"], expected, atol=1e-5)


@pytest.mark.eager
def test_frozen_vectors_are_not_trained():
    frozen = WordVectorBackbone(6, 4)
    words = WordTokenizer(["<unk>", "<pad>", "x", "y", "z", "a"], "<unk>", "<pad>")
    task = TextRegressor(PairCBOWBackbone(language_model=frozen), tokenizer=words, text_pair=True)
    trained = {variable.path for variable in task.trainable_variables}
    assert trained and trained.isdisjoint(variable.path for variable in frozen.variables)
    same, other = task.regress((["x y", "x"], ["y x", "z"]))["scores"]
    assert same != pytest.approx(other)
