"""TagLM: over a model of characters and one of words; the model stays; files and exports."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.layers.tensorflow import for_lite
from keras_lm.models import CoveBackbone, ElmoBackbone, TagLMBackbone, WordVectorBackbone
from keras_lm.tasks import Task, TokenClassifier
from keras_lm.tokenizers import CharacterTokenizer, WordTokenizer

WORDS = ["<unk>", "<pad>", "x", "y", "z"]
NAMES = ["O", "B-X", "I-X"]
TEXTS = [["x", "y", "z", "y"], ["y"], ["z", "x", "y"], ["x", "x"]] * 2
LABELS = [["B-X", "I-X", "O", "O"], ["O"], ["O", "B-X", "I-X"], ["B-X", "B-X"]] * 2


def over_characters():
    elmo = ElmoBackbone(
        num_layers=1, hidden_dim=4, cell_dim=6, filters=[(1, 4), (2, 4)], characters_per_word=8
    )
    return elmo, CharacterTokenizer(characters_per_word=8)


def over_words():
    cove = CoveBackbone(1, embedding_dim=6, hidden_dim=8, vocabulary_size=len(WORDS), dropout=0.9)
    return cove, WordTokenizer(WORDS, unknown_token="<unk>", pad_token="<pad>")


@pytest.fixture(scope="module", params=[pytest.param("words", marks=pytest.mark.thorough), "both"])
def task(request):
    keras.utils.set_random_seed(0)
    model, tokenizer = over_words() if request.param == "words" else over_characters()
    backbone = TagLMBackbone(
        model,
        words=WORDS if request.param == "both" else None,
        embedding_dim=6,
        hidden_dim=12,
        filters=[(1, 4), (2, 4)],
        dropout=0.0,
    )
    return TokenClassifier(backbone, tokenizer=tokenizer, class_names=NAMES, crf="bio")


@pytest.mark.thorough
def test_it_learns_and_the_language_model_stays(task):
    model = task.backbone.language_model
    before = model.get_weights()
    task.compile(optimizer=keras.optimizers.Adam(0.03), run_eagerly=True)
    history = task.fit(
        TEXTS * 5, LABELS * 5, batch_size=8, epochs=5, shuffle=False, verbose=0
    ).history
    assert history["loss"][-1] < 0.3 * history["loss"][0]
    assert task.tag(TEXTS)["labels"] == LABELS
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    trained = {variable.path for variable in task.trainable_variables}
    assert trained.isdisjoint(variable.path for variable in model.variables)


@pytest.mark.eager
def test_the_second_layer_reads_the_language_model(task):
    """Without dropout in it, and by the rule that the docstring states."""
    backbone = task.backbone
    packed = task.backbone.select_inputs(task.preprocess(task.columns(TEXTS[:3])))
    packed = backbone.complete(packed)
    states = keras.Model(backbone.inputs, backbone.hidden_states)(packed)
    model = backbone.language_model
    read = model({name: packed[name] for name in model.input_names})["sequence_output"]
    joined = np.concatenate([states[1], read], axis=-1)
    forward, backward = (
        backbone.get_layer(f"tagger_{side}_1")(joined, padding_mask=packed["padding_mask"])[0]
        for side in ("forward", "backward")
    )
    expected = np.concatenate([forward, backward], axis=-1)
    np.testing.assert_allclose(states[2], expected, atol=1e-5)
    np.testing.assert_allclose(backbone(packed)["sequence_output"], expected, atol=1e-5)
    np.testing.assert_allclose(
        backbone(packed, training=True)["sequence_output"], expected, atol=1e-5
    )


@pytest.mark.thorough
def test_files_and_exports(task, tmp_path):
    expected = task.tag(TEXTS)
    task.save_to_preset(tmp_path / "preset")
    again = Task.from_preset(tmp_path / "preset")
    assert type(again.backbone) is TagLMBackbone
    assert again.backbone.get_config() == task.backbone.get_config()
    assert again.tag(TEXTS) == expected
    served = tf.saved_model.load(str(task.export(tmp_path / "export"))).signatures
    texts = [b"x y z", b"", b"z \xff \xf0\x9f\x98\x80 y", b"x " * 200]
    actual, own = served["serving_default"](text=tf.constant(texts)), task.answer_all(texts)
    np.testing.assert_array_equal(actual["labels"].numpy().astype(str), own["labels"].astype(str))
    np.testing.assert_allclose(actual["scores"], own["scores"], atol=1e-5)


@pytest.mark.eager
def test_words_are_their_characters_beside_their_vectors():
    model, tokenizer = over_characters()
    backbone = TagLMBackbone(model, WORDS, lowercase=True, embedding_dim=3, hidden_dim=4)
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 3)).astype("float32")
    backbone.with_word_vectors(WordVectorBackbone.from_vectors(vectors))
    task = TokenClassifier(backbone, tokenizer=tokenizer, class_names=NAMES)
    packed = task.preprocess(task.columns([["X", "qq", "z"], ["y"]]))
    np.testing.assert_array_equal(packed["token_ids"][0], [2, 0, 4])
    with for_lite():
        lite = task.preprocess(task.columns([["X", "qq", "z"], ["y"]]))
    np.testing.assert_array_equal(lite["token_ids"], packed["token_ids"])
    assert packed["token_ids"][1, 0] == 3
    words = keras.Model(backbone.inputs, backbone.hidden_states[0])(backbone.complete(packed))
    assert words.shape == (2, 3, 6)
    np.testing.assert_array_equal(words[0, :, 3:], vectors[[2, 0, 4]])
    np.testing.assert_allclose(
        words[..., :3], backbone.embed_characters(packed["character_ids"]), atol=1e-6
    )
    alone = TagLMBackbone(model, embedding_dim=3, hidden_dim=4)
    ids = {"character_ids": packed["character_ids"]}
    assert alone(ids)["sequence_output"].shape == (2, 3, 4)
    assert alone.hidden_states[0].shape[-1] == 3
    same = TagLMBackbone.from_config(alone.get_config())
    same.set_weights(alone.get_weights())
    np.testing.assert_array_equal(same(ids)["sequence_output"], alone(ids)["sequence_output"])
    with pytest.raises(ValueError, match="but the tagger has none: pass words"):
        alone.with_word_vectors(WordVectorBackbone.from_vectors(vectors))
    with pytest.raises(ValueError, match="words lacks '<unk>'"):
        TagLMBackbone(model, ["x"])
    with pytest.raises(ValueError, match="words has 5 entries, but the language model reads words"):
        TagLMBackbone(over_words()[0], WORDS)


def test_word_vectors_and_errors():
    model, _ = over_words()
    backbone = TagLMBackbone(model, embedding_dim=3, hidden_dim=4)
    vectors = np.random.default_rng(0).normal(size=(len(WORDS), 3)).astype("float32")
    assert backbone.with_word_vectors(WordVectorBackbone.from_vectors(vectors)) is backbone
    words = keras.Model(backbone.inputs, backbone.hidden_states[0])
    ids = np.array([[2, 4, 1]])
    actual = words(backbone.complete({"token_ids": ids}))
    np.testing.assert_array_equal(actual, vectors[ids])
    with pytest.raises(ValueError, match=r"shape \(5, 2\), but the tagger has \(5, 3\)"):
        backbone.with_word_vectors(WordVectorBackbone(5, 2))
    with pytest.raises(ValueError, match="num_layers=1"):
        TagLMBackbone(model, num_layers=1)
    with pytest.raises(ValueError, match="hidden_dim=7 is odd"):
        TagLMBackbone(model, hidden_dim=7)
