"""Features of a model of words, ELMo: strings or words in, mixes of its layers out."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import Backbone, CoveBackbone
from keras_lm.tasks import FeatureExtractor, Task, TextClassifier, TokenClassifier
from keras_lm.tokenizers import Tokenizer, WordTokenizer

TEXTS = ["The cat, twice!", "", "naïve 🙂", b"\xff\xfe ok", "a" * 200]
WORDS = [["The", "cat", ",", "twice", "!"], [], ["naïve", "🙂"], [b"\xff\xfe", "ok"], ["a" * 200]]


@pytest.fixture(scope="module")
def source(goldens):
    return goldens("elmo-small")


@pytest.fixture(scope="module")
def mixer(source):
    """Two mixes over one model; the second has the reference's weights."""
    with pytest.warns(UserWarning, match="scalar_mix"):
        mixer = FeatureExtractor.from_preset(
            source, layers="scalar_mix", pooling="none", num_mixes=2, feature_dropout=0.5
        )
    arrays = np.load(source / "expected.npz")
    mixer.mixes[1].scalars.assign(arrays["in.scalar_mix"])
    mixer.mixes[1].gamma.assign(arrays["in.gamma"])
    return mixer


@pytest.fixture(scope="module")
def exported(mixer, tmp_path_factory):
    return tf.saved_model.load(str(mixer.export(tmp_path_factory.mktemp("export") / "elmo")))


def test_mix_of_words_is_the_references(mixer, source):
    arrays = np.load(source / "expected.npz")
    words = json.loads((source / "sentences.json").read_text())[0]
    embedding = mixer.embed(words)["embedding"]
    assert embedding.shape == (3, 11, 2, 24)
    expected = arrays["out.fresh_ids1.mixed"] * arrays["out.fresh_ids1.mixed_mask"][..., None]
    np.testing.assert_allclose(embedding[:, :, 1], expected, rtol=1e-5, atol=5e-5)
    assert np.abs(embedding[:, :, 0] - embedding[:, :, 1]).max() > 0.1


def test_dropout_is_for_training(mixer):
    packed = mixer.preprocess({"text": tf.constant(["one two"])})
    kept = np.asarray(mixer(packed, training=True)) != 0
    assert 0.2 < kept.mean() < 0.8
    assert np.all(np.asarray(mixer(packed)) != 0)


@pytest.mark.eager
def test_strings_and_words_give_the_same(mixer):
    np.testing.assert_allclose(
        mixer.embed(TEXTS)["embedding"], mixer.embed(WORDS)["embedding"], atol=1e-5
    )


@pytest.mark.slow
@pytest.mark.eager
def test_export_takes_strings_and_words(mixer, exported):
    expected = mixer.embed(TEXTS)["embedding"]
    texts = tf.constant(TEXTS)
    for name in ("serving_default", "default"):
        answer = exported.signatures[name](text=texts)["embedding"]
        np.testing.assert_allclose(answer, expected, atol=1e-5)
    words = tf.constant([[*row, *[""] * (5 - len(row))] for row in WORDS])
    answer = exported.signatures["tokens"](text=words)["embedding"]
    np.testing.assert_allclose(answer, expected, atol=1e-5)
    seen = exported.signatures["tokenize"](text=texts)
    assert seen["tokens"][0].numpy().tolist() == [b"The", b"cat", b",", b"twice", b"!"]
    assert seen["character_ids"].shape == (5, 5, 50)


def test_all_layers_are_the_hidden_states(source, mixer):
    every = FeatureExtractor(mixer.backbone, tokenizer=mixer.tokenizer, layers="all", pooling="max")
    packed = every.preprocess({"text": tf.constant(["one two", "three"])})
    embedding = every(packed)
    assert embedding.shape == (2, 3, 24)
    for number in range(3):
        one = FeatureExtractor(
            mixer.backbone, tokenizer=mixer.tokenizer, layers=number, pooling="max"
        )
        np.testing.assert_allclose(one(packed), embedding[:, number], atol=1e-5)


def test_wrong_numbers_of_mixes_are_refused(mixer):
    for arguments in ({"num_mixes": 0}, {"num_mixes": 2, "layers": "last"}):
        with pytest.raises(ValueError, match="num_mixes="):
            FeatureExtractor(mixer.backbone, **arguments)
    with pytest.raises(ValueError, match="no head"):
        TokenClassifier(mixer, num_classes=2)


@pytest.mark.parametrize("arguments", [{"prompt": "a"}, {"lowercase": True}])
def test_lists_of_words_have_no_prompt_and_keep_their_case(mixer, arguments):
    with pytest.raises(ValueError, match="with CharacterTokenizer: it reads lists of words, too"):
        FeatureExtractor(mixer.backbone, tokenizer=mixer.tokenizer, **arguments)


@pytest.mark.thorough
@pytest.mark.eager
def test_tagger_learns_over_frozen_layers_and_comes_back(source, tmp_path):
    keras.utils.set_random_seed(0)
    extractor = FeatureExtractor(
        Backbone.from_preset(source), layers="scalar_mix", pooling="none", layer_norm=True
    )
    extractor.backbone.trainable = False
    task = TokenClassifier(
        extractor,
        tokenizer=Tokenizer.from_preset(source),
        class_names=["O", "B-PER"],
    )
    task.compile(optimizer=keras.optimizers.Adam(0.05), run_eagerly=True)
    words, labels = [["Ada", "saw", "U.S.", "Bob"]], [["B-PER", "O", "O", "B-PER"]]
    before = extractor.mixes[0].scalars.numpy().copy()
    losses = [task.train_on_batch(words, labels)[0] for _ in range(12)]
    assert losses[-1] < losses[0] / 2
    assert np.abs(extractor.mixes[0].scalars.numpy() - before).max() > 0.01
    assert task.tag(words)["labels"] == labels
    task.save_to_preset(tmp_path / "tagger")
    same = Task.from_preset(tmp_path / "tagger")
    packed = task.preprocess(task.columns(words))
    np.testing.assert_array_equal(same(packed), task(packed))


@pytest.mark.thorough
@pytest.mark.eager
def test_classifier_learns_from_strings(source):
    keras.utils.set_random_seed(0)
    with pytest.warns(UserWarning, match="classifier"):
        task = TextClassifier.from_preset(source, class_names=["bad", "good"])
    task.backbone.trainable = False
    task.compile(optimizer=keras.optimizers.Adam(0.1), run_eagerly=True)
    texts, labels = ["good film", "so bad"], np.array([1, 0])
    before = task.test_on_batch(texts, labels)[0]
    for _ in range(10):
        task.train_on_batch(texts, labels)
    assert task.test_on_batch(texts, labels)[0] < before * 0.8
    pair = task.preprocess({"text": tf.constant(["a b"]), "text_pair": tf.constant(["c"])})
    words = task.tokenizer.words(pair["character_ids"]).numpy().tolist()
    assert words == [[b"a", b"b", b"</S>", b"<S>", b"c"]]


@pytest.mark.thorough  # as a classifier over ELMo in tests/models/test_every_model.py
def test_lite(mixer, tmp_path):
    pytest.importorskip("ai_edge_litert")
    from ai_edge_litert.interpreter import InterpreterWithCustomOps
    from tensorflow_text.core.pybinds.tflite_registrar import SELECT_TFTEXT_OPS

    task = FeatureExtractor(mixer.backbone, tokenizer=mixer.tokenizer, pooling="none")
    path = task.export(tmp_path / "elmo.tflite", format="litert")
    interpreter = InterpreterWithCustomOps(
        model_path=str(path), custom_op_registerers=SELECT_TFTEXT_OPS
    )
    serve = interpreter.get_signature_runner("serving_default")
    texts = [text.encode() if isinstance(text, str) else text for text in TEXTS]
    answer = serve(text=np.array(texts))["embedding"]
    expected = task.embed(TEXTS)["embedding"]
    assert not answer[:, expected.shape[1] :].any()  # perhaps there is more padding
    answer = answer[:, : expected.shape[1]]
    np.testing.assert_allclose(answer, expected, atol=5e-5)


@pytest.mark.slow
@pytest.mark.eager
def test_vectors_of_a_word_and_of_its_context_side_by_side(tmp_path):
    """CoVe's [GloVe; CoVe]: states of two widths, for a text, for a tagger, and in an export."""
    keras.utils.set_random_seed(0)
    cove = CoveBackbone(2, embedding_dim=3, hidden_dim=4, vocabulary_size=5)
    tokenizer = WordTokenizer(["<unk>", "<pad>", "the", "river", "bank"], "<unk>", "<pad>")
    options = {"layers": "concat_embedding_last", "pooling": "none"}
    task = FeatureExtractor(cove, tokenizer=tokenizer, **options)
    texts = ["the bank", "the river bank"]
    actual = task.embed(texts)["embedding"]
    ids = np.array([[2, 4, 1], [2, 3, 4]])
    mask = (ids != 1).astype("int32")
    top = cove({"token_ids": ids, "padding_mask": mask})["sequence_output"]
    expected = np.concatenate([cove.word_embedding(ids), top], axis=-1) * mask[..., None]
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    served = tf.saved_model.load(str(task.export(tmp_path / "export"))).signatures
    served = served["serving_default"](text=tf.constant(texts))["embedding"]
    np.testing.assert_allclose(served, expected, atol=1e-6)
    tagger = TokenClassifier(task, tokenizer=tokenizer, num_classes=2)
    assert tagger.predict_on_batch(texts).shape == (2, 3, 2)
    tagger.save_to_preset(tmp_path / "preset")
    same = Task.from_preset(tmp_path / "preset")
    np.testing.assert_allclose(same.predict_on_batch(texts), tagger.predict_on_batch(texts))
    # Before, a preset named the vectors after the task that gives them.
    file = tmp_path / "preset" / "keras_lm.json"
    config = json.loads(file.read_text())
    config["backbone"]["class"] = "FeatureExtractor"
    config["backbone"]["arguments"] |= {"sequence_length": 512, "text_pair": None}
    (tmp_path / "preset" / "checksums.json").unlink()  # older presets have none
    file.write_text(json.dumps(config))
    old = Task.from_preset(tmp_path / "preset")
    np.testing.assert_allclose(old.predict_on_batch(texts), tagger.predict_on_batch(texts))
