"""Recurrent models in both formats: strings or words in, also through a server."""

import keras
import numpy as np
import pytest
import requests
import tensorflow as tf

from keras_lm import tasks
from keras_lm.export import check, tflite
from keras_lm.export.fresh_process import load_tflite
from keras_lm.models import (
    AWDLSTMBackbone,
    CoveBackbone,
    ElmoBackbone,
    PairLSTMBackbone,
    TagLMBackbone,
)
from keras_lm.serving import Server
from keras_lm.tokenizers import CharacterTokenizer, WordTokenizer

VOCABULARY = ["<unk>", "<pad>", "xxbos", "xxfld", "a", "the", "bank", "river", "of", "🙂", ",", "!"]
TEXTS = [
    "The bank, of the river!",
    "",
    "naïve 🙂 bank",
    "the " * 50,
    "a" * 200 + " river",
    b"a \xff\xfe bank",
]
CHARACTERS = 10

pytestmark = pytest.mark.eager  # what the tasks say; exports are graphs all the same


def spread(model):
    """Put the weights of a model as far apart as those of a trained one."""
    random = np.random.default_rng(0)
    for weight in model.trainable_weights:
        weight.assign(0.5 * random.normal(size=weight.shape))
    return model


def words():
    return WordTokenizer(VOCABULARY, "<unk>", "<pad>", additional_special_tokens=["xxbos", "xxfld"])


def characters():
    return CharacterTokenizer(CHARACTERS)


def elmo():
    return ElmoBackbone(
        num_layers=2,
        hidden_dim=4,
        cell_dim=6,
        filters=[(1, 4), (2, 4)],
        characters_per_word=CHARACTERS,
    )


def elmo_with_frequent_words():
    backbone = spread(elmo())
    backbone.cache_words(characters().tokenize_words(["the", "bank"]))
    return backbone


def cove():
    return CoveBackbone(2, embedding_dim=6, hidden_dim=8, vocabulary_size=len(VOCABULARY))


def pairs(backbone, tokenizer):
    return tasks.TextClassifier(
        backbone, num_classes=2, text_pair=True, tokenizer=tokenizer, sequence_length=40
    )


def tagger(language_model, tokenizer, words=None, sequence_length=40):
    return tasks.TokenClassifier(
        TagLMBackbone(
            language_model, words, embedding_dim=6, hidden_dim=8, filters=[(1, 4), (2, 4)]
        ),
        class_names=["O", "B-X", "I-X"],
        crf="bio",
        splitter="punctuation",
        tokenizer=tokenizer,
        sequence_length=sequence_length,
    )


LITE = {
    "cove": lambda: tasks.FeatureExtractor(cove(), layers=[1, -1], tokenizer=words()),
    "cached elmo": lambda: tasks.FeatureExtractor(
        elmo_with_frequent_words(), tokenizer=characters()
    ),
    "ulmfit": lambda: tasks.TextClassifier(
        AWDLSTMBackbone(len(VOCABULARY), num_layers=2, hidden_dim=12, embedding_dim=8),
        num_classes=3,
        tokenizer=words(),
    ),
    "pairs": lambda: pairs(
        PairLSTMBackbone(len(VOCABULARY), 6, hidden_dim=8, num_layers=1, pooled_dim=6), words()
    ),
    "pairs over elmo": lambda: pairs(
        PairLSTMBackbone(language_model=elmo(), hidden_dim=8, num_layers=1, pooled_dim=6),
        characters(),
    ),
    "taglm over elmo": lambda: tagger(elmo(), characters()),
    "taglm with words": lambda: tagger(elmo(), characters(), VOCABULARY),
    "taglm over words": lambda: tagger(cove(), words()),
}
MARKS = dict.fromkeys(LITE, pytest.mark.thorough)
MARKS |= {"cove": (), "ulmfit": pytest.mark.slow}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS[name]) for name in LITE])
def test_lite_answers_as_the_task(name, tmp_path):
    pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    task = spread(LITE[name]())
    path = task.export(tmp_path / "model.tflite", format="litert")
    operations = {operation for operation, _ in tflite._custom_operations(path.read_bytes())}
    assert operations <= tflite.TEXT_OPERATIONS
    serve, _ = load_tflite(str(path))
    rows = np.array([text.encode() if isinstance(text, str) else text for text in TEXTS], object)
    answers = []
    for size in (len(rows), 1):
        columns = {"text": rows[:size]}
        if task.text_pair:
            columns["text_pair"] = rows[::-1][:size]
        tensors = {key: tf.constant(list(column)) for key, column in columns.items()}
        expected, actual = task.answer_lite(tensors), serve(**columns)
        assert set(actual) == set(expected)
        for key, value in expected.items():
            if value.dtype == tf.string:
                np.testing.assert_array_equal(actual[key], value.numpy())
            else:
                np.testing.assert_allclose(actual[key], value, atol=1e-4)
        answers.append(actual)
    numbers = next(value for value in answers[0].values() if value.dtype == "float32")
    assert np.isfinite(numbers).all()
    assert np.abs(numbers[0] - numbers[2]).max() > 1e-3  # the texts make a difference


def test_taggers_words_in_lite_are_those_of_its_strings():
    """And its labels and places, where all bytes are UTF-8."""
    task = spread(tagger(cove(), words(), sequence_length=8))
    texts = ["", "The bank,of  the river!", "naïve 🙂\u00a0bank", "of " * 9, " ", "🙂🙂 a"]
    expected = task.answer({"text": tf.constant(texts)})
    actual = task.answer_lite({"text": tf.constant(texts)})
    assert set(actual) == {"tokens", "labels", "scores", "start", "end"}
    for name in ("tokens", "labels", "start", "end"):
        np.testing.assert_array_equal(actual[name], expected[name])
    np.testing.assert_allclose(actual["scores"], expected["scores"], atol=1e-5)
    words_of_row = [word.decode() for word in actual["tokens"][2, :3].numpy()]
    assert words_of_row == ["naïve", "🙂", "bank"]
    assert actual["start"][2, :3].numpy().tolist() == [0, 6, 8]


@pytest.mark.slow
@pytest.mark.parametrize("splitter", ["punctuation", "conll"])
def test_taggers_read_bytes_that_are_no_utf8_alike_in_lite(splitter):
    known = [*VOCABULARY, "\ufffd", "caf\ufffd"]  # as GloVe's list has one
    texts = [
        b"the \xff bank",
        b"caf\xe9 of",
        b"\xe4\xb8 a\xc3",
        b"x\xed\xa0\x80y z",
        b"\x80\x81 of",
    ]
    taggers = [tagger(elmo(), characters(), known), tagger(cove(), words())]
    taggers += [tasks.TokenClassifier(elmo(), 3, tokenizer=characters())]
    for task in taggers:
        task = spread(task)
        task.splitter = splitter
        expected, actual = (
            answer({"text": tf.constant(texts)}) for answer in (task.answer, task.answer_lite)
        )
        for name in ("labels", "start", "end"):
            np.testing.assert_array_equal(actual[name], expected[name])
        np.testing.assert_allclose(actual["scores"], expected["scores"], atol=1e-5)


# === ELMo, as its module on TensorFlow Hub was ===


@pytest.fixture(scope="module")
def extractor():
    return spread(
        tasks.FeatureExtractor(elmo(), layers="all", pooling="none", tokenizer=characters())
    )


@pytest.fixture(scope="module")
def version(extractor, tmp_path_factory):
    return extractor.export(tmp_path_factory.mktemp("export") / "elmo")


@pytest.fixture(scope="module")
def server(version):
    with Server(version.parent) as running:
        yield running


def test_elmo_is_served_words_and_strings(extractor, server):
    sentences = [["do", "n't"], ["a.b", "c", "d"]]
    filled = [[*row, *[""] * (3 - len(row))] for row in sentences]
    expected = extractor.embed(sentences)["embedding"]  # (2, 3, layers, 8)
    assert expected.shape == (2, 3, 3, 8)
    url = f"{server.rest_url}/v1/models/elmo:predict"

    def ask(signature, rows):
        body = {"signature_name": signature, "instances": rows}
        answer = requests.post(url, json=body, timeout=60).json()
        return np.array(answer["predictions"], "float32")

    np.testing.assert_allclose(ask("tokens", filled), expected, atol=1e-5)
    texts = ["do nt", "c d"]
    own = extractor.embed(texts)["embedding"]
    for signature in ("default", "serving_default"):
        np.testing.assert_allclose(ask(signature, texts), own, atol=1e-5)
    assert not expected[0, 2].any()  # what is filled up is no word


def test_layers_of_the_module(extractor, server):
    """What it called word_emb, lstm_outputs1, lstm_outputs2, and default."""
    with server._models.lease("elmo") as model:
        texts = {"text": np.array(["one two", "three"], object)}
        embedding = model.run("default", texts)["embedding"]
    packed = extractor.preprocess({"text": tf.constant(["one two", "three"])})
    states = keras.Model(extractor.backbone.input, extractor.backbone.hidden_states)(packed)
    for number in range(3):
        np.testing.assert_allclose(embedding[:, :, number], states[number], atol=1e-5)
    word_emb = embedding[:, :, 0]
    np.testing.assert_array_equal(word_emb[..., :4], word_emb[..., 4:])  # one for both directions
    mean = tasks.FeatureExtractor(
        extractor.backbone, layers="scalar_mix", pooling="mean", tokenizer=extractor.tokenizer
    )
    own = embedding.mean(axis=2).sum(axis=1) / [[2], [1]]  # weights that are equal, as at the start
    np.testing.assert_allclose(mean.embed(["one two", "three"])["embedding"], own, atol=1e-5)


@pytest.mark.thorough  # as that of a BERT, in test_check.py
def test_elmo_in_a_fresh_process(extractor, version):
    check(version, extractor, [text for text in TEXTS if isinstance(text, str)])
