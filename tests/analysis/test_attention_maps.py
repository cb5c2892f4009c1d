"""Attention on strings: the model's own numbers, beside the tokens that they belong to."""

import json
import re
import zlib
from base64 import b64decode

import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_lm import analysis, tasks
from keras_lm.models import T5Backbone

TEXT = "the film was good"
WITH_HEADS = [
    "BertBackbone",
    "GPT2Backbone",
    "TransformerXLBackbone",
    "XLNetBackbone",
    *tiny.thorough("AlbertBackbone", "ErnieBackbone", "GPTNeoBackbone", "T5EncoderBackbone"),
]


@pytest.fixture
def reader_of(backbone_of, tokenizer_of):
    """Return a function from a model's name to its backbone and its tokenizer."""
    return lambda name: (backbone_of(name), tokenizer_of(tiny.MODELS[name][0]))


@pytest.mark.eager
@pytest.mark.parametrize("name", WITH_HEADS)
def test_maps_are_the_models_own(name, reader_of):
    backbone, tokenizer = reader_of(name)
    actual = analysis.attention(backbone, TEXT, tokenizer=tokenizer)
    (one,) = actual.maps.values()
    assert actual.tokens == one.tokens and actual.probabilities is one.probabilities
    layers, heads, rows, columns = one.probabilities.shape
    assert (layers, heads) == (len(backbone.blocks), 2)
    assert (rows, columns) == (len(one.tokens), len(one.attended))
    np.testing.assert_allclose(one.probabilities.sum(axis=-1), 1, atol=1e-5)
    task = tasks.FeatureExtractor(backbone, tokenizer=tokenizer)
    packed = backbone.select_inputs(task.preprocess({"text": tf.constant([TEXT])}))
    expected = np.asarray(backbone.attention_probabilities(packed)[0][0])
    np.testing.assert_allclose(one.probabilities[0], expected[..., -columns:], atol=1e-6)
    ids = packed["token_ids"].numpy()[0]
    entries = [tokenizer.id_to_token(int(i)) for i in ids]
    assert [text.replace(" ", "Ġ") for text in one.tokens] == entries


@pytest.mark.eager
def test_padding_is_left_out(reader_of):
    backbone, tokenizer = reader_of("XLNetBackbone")
    short = tasks.FeatureExtractor(backbone, tokenizer=tokenizer)
    wide = tasks.FeatureExtractor(
        backbone, tokenizer=tokenizer, padding="fixed", sequence_length=24
    )
    one, other = (analysis.attention(task, TEXT).maps["self"] for task in (short, wide))
    assert one.tokens == other.tokens == other.attended
    np.testing.assert_allclose(one.probabilities, other.probabilities, atol=1e-5)


@pytest.mark.eager
def test_a_memory_that_is_read_has_columns(reader_of):
    backbone, tokenizer = reader_of("TransformerXLBackbone")
    one = analysis.attention(backbone, TEXT, tokenizer=tokenizer).maps["self"]
    assert one.attended == ["(memory)"] * 5 + one.tokens


@pytest.mark.eager
def test_tasks_read_their_own_texts(reader_of):
    backbone, tokenizer = reader_of("BertBackbone")
    reader = tasks.QuestionAnswerer(backbone, tokenizer=tokenizer)
    tokens = analysis.attention(reader, "was it good", "it was good").tokens
    assert tokens[0] == "[CLS]" and tokens.count("[SEP]") == 2
    with pytest.raises(ValueError, match="takes question, context, and 1"):
        analysis.attention(reader, "was it good")
    choice = tasks.MultipleChoice(backbone, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="several rows"):
        analysis.attention(choice, "was it", ["good", "bad"])


def test_what_has_no_heads_is_refused(reader_of):
    backbone, tokenizer = reader_of("AWDLSTMBackbone")
    with pytest.raises(ValueError, match="no attention with heads"):
        analysis.attention(backbone, TEXT, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="without a tokenizer"):
        analysis.attention(backbone, TEXT)
    with pytest.raises(ValueError, match="model is a str"):
        analysis.attention("bert", TEXT)


@pytest.mark.eager
def test_encoder_decoders_have_three_maps(tokenizer_of):
    tokenizer = tokenizer_of("sentencepiece-t5")
    backbone = T5Backbone(tokenizer.vocabulary_size, 1, 2, 16, 24, num_decoder_layers=2)
    task = tasks.Seq2SeqLM(backbone, tokenizer=tokenizer, target_length=6)
    actual = analysis.attention(task, TEXT, "it was")
    assert {name: each.probabilities.shape[0] for name, each in actual.maps.items()} == {
        "encoder": 1,
        "decoder": 2,
        "cross": 2,
    }
    cross, decoder = actual.maps["cross"], actual.maps["decoder"]
    assert cross.attended == actual.maps["encoder"].tokens == actual.tokens
    assert cross.tokens[-1] == "</s>" and decoder.tokens[1:] == cross.tokens[:-1]
    # The mean of heads and layers, by words: what Seq2SeqLM.attention returns.
    (expected,) = task.attention([TEXT], ["it was"])
    last = cross.probabilities.mean(axis=(0, 1))[-1]  # of </s>, a word of its own
    np.testing.assert_allclose(last[-1], expected["attention"][-1, -1], atol=1e-6)


@pytest.mark.thorough  # decodes
def test_without_a_target_it_is_what_the_model_writes(tokenizer_of):
    tokenizer = tokenizer_of("sentencepiece-t5")
    backbone = T5Backbone(tokenizer.vocabulary_size, 1, 2, 16, 24)
    task = tasks.Seq2SeqLM(backbone, tokenizer=tokenizer, target_length=6)
    (text,) = task.generate([TEXT])
    actual, expected = (analysis.attention(task, TEXT, target) for target in (None, text))
    assert actual.maps["cross"].tokens == expected.maps["cross"].tokens


@pytest.mark.eager
@pytest.mark.parametrize("name", ["BertBackbone", "GPT2Backbone"])
def test_neurons_make_the_probabilities(name, reader_of):
    backbone, tokenizer = reader_of(name)
    actual = analysis.neurons(backbone, TEXT, 0, 1, tokenizer=tokenizer)
    maps = analysis.attention(backbone, TEXT, tokenizer=tokenizer).maps["self"]
    assert actual.tokens == maps.tokens
    np.testing.assert_allclose(actual.probabilities, maps.probabilities[0, 1], atol=1e-6)
    exponentials = np.exp(actual.scores - actual.scores.max(axis=1, keepdims=True))
    shares = exponentials / exponentials.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shares, actual.probabilities, atol=1e-5)
    if name == "BertBackbone":  # without biases of positions
        products = actual.query @ actual.key.T / np.sqrt(8)
        np.testing.assert_allclose(actual.scores, products, atol=1e-4)


def test_neurons_that_are_not_there_are_refused(reader_of):
    backbone, tokenizer = reader_of("BertBackbone")
    with pytest.raises(ValueError, match="layer=1"):
        analysis.neurons(backbone, TEXT, 1, 0, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="head=2"):
        analysis.neurons(backbone, TEXT, 0, 2, tokenizer=tokenizer)
    backbone, tokenizer = reader_of("XLNetBackbone")
    with pytest.raises(ValueError, match="distances"):
        analysis.neurons(backbone, TEXT, 0, 0, tokenizer=tokenizer)


# === The page's data, and pictures ===


def some_maps(tokens, layers=2, heads=3):
    generator = np.random.default_rng(0)
    scores = 3 * generator.normal(size=(layers, heads, len(tokens), len(tokens)))
    cells = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    one = analysis.AttentionMap(tokens, tokens, cells.astype("float32"))
    return analysis.TextAttention({"self": one})


def data_of(page):
    (text,) = re.findall(r'<script id="data"[^>]*>(.*?)</script>', page.to_html(), re.S)
    return json.loads(text)


def test_a_page_holds_what_it_shows():
    actual = some_maps(["a", "</script><img>", "\U0001f600 שלום"])
    page = actual.page()
    data = data_of(page)
    (one,) = data["maps"]
    assert one["tokens"] == actual.tokens and data["steps"] == 255
    stored = np.frombuffer(zlib.decompress(b64decode(one["data"])), "uint8") / 255
    np.testing.assert_allclose(stored**2, actual.probabilities.ravel(), atol=0.005)
    assert "<img" not in page.to_html()
    assert not re.search(r"https?://|src=|href=", page.to_html())  # it needs no network
    assert actual._repr_html_().startswith("<iframe srcdoc=")
    assert '"' not in actual._repr_html_().split('srcdoc="')[1].split('" title=')[0]


def test_a_page_of_some_layers(tmp_path):
    actual = some_maps(["a", "b"])
    data = data_of(actual.page(layers=[1]))
    assert data["layers"] == [1] and data["maps"][0]["layers"] == 1
    stored = np.frombuffer(zlib.decompress(b64decode(data["maps"][0]["data"])), "uint8") / 255
    np.testing.assert_allclose(stored**2, actual.probabilities[1].ravel(), atol=0.005)
    assert actual.page().save(tmp_path / "a.html").read_text().startswith("<!doctype html>")
    with pytest.raises(ValueError, match=r"layers=\[2\]"):
        actual.page(layers=[2])


def test_heads_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    actual = some_maps(["a", "$x$", "\\frac"]).maps["self"]
    for picture in (
        analysis.draw_head(actual, 1, 2),
        analysis.draw_head(actual, 1, None),
        analysis.draw_heads(actual),
    ):
        assert picture._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="head=3"):
        analysis.draw_head(actual, 1, 3)
