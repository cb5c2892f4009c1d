"""Rows that are packed without TensorFlow are those of the graph."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import BertBackbone, GPT2Backbone, XLNetBackbone
from keras_lm.packers import Choices, Windows, Words, host_rows
from keras_lm.packers.packer import Packer
from keras_lm.tokenizers import WordPieceTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<cls>", "<sep>"]
TOKENIZER = WordPieceTokenizer([*SPECIAL, *"abcdef"], lowercase=True)
ROWS = {
    "text": [[7, 8, 9, 10, 11, 12], [], [7], [8] * 9],
    "text_pair": [[9, 10], [11] * 12, [], [12] * 9],
}


def check_equal(actual, expected):
    assert set(actual) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value, err_msg=name)
        assert actual[name].dtype == np.int32


def ids_of(texts):
    return TOKENIZER(texts).to_list()


@pytest.mark.parametrize("padding", ["longest", "fixed"])
@pytest.mark.parametrize("model", [BertBackbone, XLNetBackbone])
def test_choices_are_those_of_the_graph(model, padding, monkeypatch):
    packer = Packer(model.TEMPLATE, TOKENIZER, 9, padding, rows=Choices())
    texts, choices = [b"a b c d e f a", b"", b"f"], [[b"a"], [b"b", b"", b"c d e f"], [b"a b"]]
    columns = {"text": tf.constant(texts), "choices": tf.ragged.constant(choices)}
    expected = packer(columns)
    monkeypatch.setattr(packer, "ids", lambda texts, tokenize: ids_of(texts))
    check_equal(
        host_rows.packed_choices(packer, {"text": texts, "choices": choices}, None), expected
    )


@pytest.mark.parametrize("padding", ["longest", "fixed"])
@pytest.mark.parametrize("model", [BertBackbone, XLNetBackbone, GPT2Backbone])
def test_words_are_those_of_the_graph(model, padding):
    packer = Packer(model.TEMPLATE, TOKENIZER, 7, padding, rows=Words())
    texts = [["a b", "c", " ", "d"], ["e"], [" "], ["a b c d e f", "a", "b"], ["a"] * 9]
    words = tf.ragged.constant(texts)
    expected, places = packer.rows.pack_words(packer, words, packer.rows.alone(packer, words))
    actual, columns = host_rows.packed_words(packer, texts, ids_of)
    check_equal(actual, expected)
    rows = np.arange(len(texts))[:, np.newaxis]
    index = np.where(columns < 0, -1, rows * actual["token_ids"].shape[1] + columns)
    np.testing.assert_array_equal(index, words.with_values(places).to_tensor(-1))


@pytest.mark.parametrize("padding", ["longest", "fixed"])
@pytest.mark.parametrize("model", [BertBackbone, XLNetBackbone, GPT2Backbone])
def test_windows_are_those_of_the_graph(model, padding, monkeypatch):
    generator = np.random.default_rng(0)
    sizes = {"question": (0, 9, 1, 2, 3, 4), "context": (0, 1, 5, 30, 11, 7)}
    texts = {
        name: [" ".join(generator.choice([*"abcdef", "Xx"], n)) for n in numbers]
        for name, numbers in sizes.items()
    }
    for length, stride, longest in ((12, 2, 3), (12, 128, None), (9, 3, 2), (11, 1, 1)):
        rows = Windows(stride, longest)
        packer = Packer(model.TEMPLATE, TOKENIZER, length, padding, rows=rows)
        expected = packer({name: tf.constant(column) for name, column in texts.items()})
        monkeypatch.setattr(packer, "ids", lambda texts, tokenize: ids_of(texts))
        check_equal(host_rows.packed_windows(packer, texts, None), expected)


@pytest.mark.parametrize("truncation", ["longest_first", "halves", "only_first", "only_second"])
@pytest.mark.parametrize("padding", ["longest", "fixed"])
@pytest.mark.parametrize("names", [["text"], ["text", "text_pair"]])
@pytest.mark.parametrize("model", [BertBackbone, XLNetBackbone, GPT2Backbone])
def test_rows_are_those_of_the_graph(model, names, padding, truncation):
    packer = Packer(model.TEMPLATE, TOKENIZER, 9, padding, truncation)
    for texts in ({name: ROWS[name] for name in names}, {name: [[]] for name in names}):
        ragged = {name: tf.ragged.constant(ids, tf.int32, 1) for name, ids in texts.items()}
        expected, results = packer.pack(**ragged), host_rows.packed(packer, texts)
        check_equal(results, expected)
