"""Words with operations that LiteRT has: the same ids, and a `.tflite` that takes strings."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.export.fresh_process import load_tflite
from keras_lm.models import WordVectorBackbone
from keras_lm.tasks import TextClassifier
from keras_lm.tokenizers import WordTokenizer

WORDS = ["<unk>", "<pad>", "a", "b", "ab", "ba", "café", "日本", "!", ",", "'", "x" * 64, "x" * 65]
WORDS += [f"w{i}" for i in range(3000)]
TEXTS = [
    "a b, café! zzz 日本",
    "",
    " \t\u00a0 \u3000 ",
    "w7 w2999 w3000 ab ba <unk> <pad>",
    "x" * 64 + " " + "x" * 63,
    "\U0001f600 a\u2028b",
    " ".join(f"w{i}" for i in range(3000)) + " a" * 2000,
]


def make(**options):
    return WordTokenizer(WORDS, unknown_token="<unk>", pad_token="<pad>", **options)


@pytest.mark.parametrize("splitter", ["punctuation", "whitespace"])
def test_the_same_ids(splitter):
    tokenizer = make(splitter=splitter)
    actual = tokenizer.tokenize_lite(tf.constant(TEXTS)).to_list()
    assert actual == tokenizer(TEXTS).to_list()
    assert actual[3][:2] == [WORDS.index("w7"), WORDS.index("w2999")]
    assert tokenizer.tokenize_lite(tf.constant(["x" * 65])).to_list() == [[0]]
    assert tokenizer.tokenize_lite(tf.constant([b"\xff a"])).to_list() == [[0, 2]]
    assert tokenizer.tokenize_lite(tf.constant([], tf.string)).to_list() == []


def test_lower_case():
    tokenizer = make(lowercase=True)
    texts = ["A W17 Ab Café"]
    assert tokenizer.tokenize_lite(tf.constant(texts)).to_list() == tokenizer(texts).to_list()


@pytest.mark.slow
@pytest.mark.eager
def test_a_mean_pooled_classifier_as_tflite(tmp_path):
    task = TextClassifier(
        WordVectorBackbone(len(WORDS), 3), tokenizer=make(), num_classes=2, sequence_length=6000
    )
    pytest.importorskip("ai_edge_litert")
    serve, _ = load_tflite(str(task.export(tmp_path / "model.tflite", format="litert")))
    texts = [*(text.encode() for text in TEXTS), b"a \xff b"]
    actual = serve(text=np.array(texts, object))["scores"]
    np.testing.assert_allclose(actual, task.classify(texts)["scores"], atol=1e-5)


def test_fastais_rules_have_no_such_function():
    words = ["xxunk", "xxpad", "xxbos", "xxeos", "xxfld", "xxrep", "xxwrep", "xxup", "xxmaj", "a"]
    tokenizer = WordTokenizer(
        words, unknown_token="xxunk", rules="fastai", additional_special_tokens=words[4:9]
    )
    assert not hasattr(tokenizer, "tokenize_lite")
