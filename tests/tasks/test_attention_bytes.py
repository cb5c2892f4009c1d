"""The signature `attention` of an export: what `keras_lm.analysis` shows, as bytes."""

import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_lm import analysis, tasks
from keras_lm.tasks import signatures
from keras_lm.tasks.signatures import attention_of_pair, attention_of_text
from keras_lm.tokenizers import WordPieceTokenizer

TEXTS = ["the film was good", "a very nice cast, was it?"]


def maps_of(outputs, row):
    """The maps of a row as clients read them: name → (tokens, attended, probabilities)."""
    results = {}
    for name in [key.removesuffix("_bytes") for key in outputs if key.endswith("_bytes")]:
        parts = ("tokens", "attended", "sizes", "bytes")
        tokens, attended, sizes, content = (
            outputs[f"{name}_{each}"][row].numpy() for each in parts
        )
        shares = (np.frombuffer(content, "uint8").reshape(sizes) / 255) ** 2
        rows, read = np.flatnonzero(tokens != b""), shares.any(axis=(0, 1, 2))
        columns = np.flatnonzero(np.where(attended == b"(memory)", read, attended != b""))
        results[name] = tokens[rows], attended[columns], shares[:, :, rows][..., columns]
    return results


def check(outputs, row, expected):
    actual = maps_of(outputs, row)
    assert actual.keys() == expected.maps.keys()
    for name, (tokens, attended, shares) in actual.items():
        one = expected.maps[name]
        assert (len(tokens), len(attended)) == (len(one.tokens), len(one.attended))
        np.testing.assert_allclose(shares, one.probabilities, atol=1 / 255)


@pytest.fixture
def task_of(backbone_of, tokenizer_of):
    """Return a function from a task's class and a model's name to a task over it."""
    return lambda cls, name, **arguments: cls(
        backbone_of(name), tokenizer=tokenizer_of(tiny.MODELS[name][0]), **arguments
    )


# Padding on either side, causal masks, a memory before the text that is read or not.
@pytest.mark.eager
@pytest.mark.parametrize("name", ["XLNetBackbone", "TransformerXLBackbone"])
def test_texts(name, task_of):
    task = task_of(tasks.FeatureExtractor, name)
    outputs = attention_of_text(task, {"text": tf.constant(TEXTS)})
    check(outputs, 0, analysis.attention(task, TEXTS[0]))  # the one with padding


def test_the_signature_names_the_tokens_and_bounds_them(task_of, monkeypatch):
    monkeypatch.setattr(signatures, "MOST_TOKEN_PAIRS", 1000)
    task = task_of(tasks.FeatureExtractor, "BertBackbone")
    signature = task.signatures.attention()
    assert [*signature.structured_input_signature[1]] == ["text"]
    outputs = signature(text=tf.constant(TEXTS))
    check(outputs, 1, analysis.attention(task, TEXTS[1]))
    pieces = task.packer.pieces(task.preprocess({"text": tf.constant(TEXTS)}))
    assert outputs["self_tokens"].numpy().tolist() == pieces["tokens"].numpy().tolist()
    assert signature(text=tf.zeros([0], tf.string))["self_bytes"].shape == [0]
    columns = len(pieces["tokens"][0])
    many = tf.fill([1000 // columns**2 + 1], TEXTS[1])
    with pytest.raises(tf.errors.InvalidArgumentError, match="squared may be 1000 at most"):
        signature(text=many)


@pytest.mark.eager
@pytest.mark.parametrize("name", ["T5Backbone", "RNNEncoderDecoderBackbone"])
def test_pairs(name):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = WordPieceTokenizer([*special, *tiny.WORDS], lowercase=True)
    backbone = tiny.ENCODER_DECODERS[name]()
    task = tasks.Seq2SeqLM(backbone, tokenizer=tokenizer, sequence_length=12, target_length=8)
    labels = ["good film", "it was"]
    outputs = attention_of_pair(task, {"text": tf.constant(TEXTS), "labels": tf.constant(labels)})
    for row, text in enumerate(TEXTS):
        check(outputs, row, analysis.attention(task, text, labels[row]))


@pytest.mark.eager
def test_what_has_no_such_signature_says_so(task_of, tmp_path):
    choices = task_of(tasks.MultipleChoice, "BertBackbone")
    with pytest.raises(ValueError, match="attention=True: MultipleChoice makes several rows"):
        choices.signatures.attention()
    classifier = task_of(tasks.TextClassifier, "BertBackbone", num_classes=2)
    for options in ({"freeze": True}, {"format": "litert"}):
        with pytest.raises(ValueError, match=f"leave out attention, or {next(iter(options))}"):
            classifier.export(tmp_path / "model", attention=True, **options)
    several = tasks.MultiTask({"one": classifier})
    with pytest.raises(ValueError, match="attention=True is of one task"):
        several.export(tmp_path / "model", attention=True)
    assert not list(tmp_path.iterdir())
