"""Graphs for servers refuse too much work, with the number and the limit."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm import models, tasks
from keras_lm.generation.options import OPTIONS
from keras_lm.layers import tensorflow
from keras_lm.layers.tensorflow import bounded, for_lite
from keras_lm.tokenizers import ByteTokenizer, WordPieceTokenizer


@pytest.mark.eager
def test_work_is_bounded_where_it_is_asked_for():
    assert tensorflow.within(tf.constant(5), 2**9, 2**6, 2**9) == 5
    assert tensorflow.few_tokens(tf.constant(5), 2**9, 2**9) == 5
    with bounded(tensorflow.MOST_TOKENS):
        assert tensorflow.within(tf.constant(5), 2**6, 2**4, 2**6) == 5
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"may be 65536.*65600"):
            tensorflow.within(tf.constant(5), 64, 1, 1025)
        assert tensorflow.few_tokens({"a": tf.constant(5)}, 2**8, 2**8)["a"] == 5
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"longest row, may be 65536"):
            tensorflow.few_tokens(tf.constant(5), 2**8, 2**8 + 1)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"may be 1024 at most"):
            tensorflow.few_numbers(tf.constant(5), 1, 1025, 2**16)
        assert tensorflow.few_pairs(tf.constant(5), 4, 2**9, 2**6, 1) == 5
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"squared.* 1048576 at most"):
            tensorflow.few_pairs(tf.constant(5), 5, 2**9, 2**6, 1)
        assert tensorflow.few_pairs(tf.constant(5), 5, 2**9, 2**6, 2**11) == 5
        with for_lite():
            assert tensorflow.few_tokens(tf.constant(5), 2**9, 2**9) == 5


LETTERS = [*"abcdefghijklmnopqrstuvwxyz"]
SIZE = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 8}


def encoder_tasks():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS]
    tokenizer = WordPieceTokenizer(words, lowercase=True)
    backbone = models.BertBackbone(len(words), max_sequence_length=32, **SIZE)
    yield tasks.TextClassifier(backbone, tokenizer=tokenizer, class_names=["no", "yes"])
    yield tasks.MaskedLM(backbone, tokenizer=tokenizer)
    yield tasks.TokenClassifier(backbone, tokenizer=tokenizer, class_names=["O", "X"])
    yield tasks.ConstituencyParser(backbone, tokenizer=tokenizer, class_names=["S"], hidden_dim=8)
    yield tasks.CoreferenceResolver(backbone, tokenizer=tokenizer, hidden_dim=4)
    yield tasks.MultipleChoice(backbone, tokenizer=tokenizer)
    yield tasks.QuestionAnswerer(backbone, tokenizer=tokenizer)


def writing_tasks():
    tokenizer = ByteTokenizer()
    number = tokenizer.vocabulary_size
    backbone = models.GPT2Backbone(number, max_sequence_length=64, **SIZE)
    yield tasks.CausalLM(backbone, tokenizer=tokenizer)
    backbone = models.T5Backbone(number, **SIZE)
    yield tasks.Seq2SeqLM(backbone, tokenizer=tokenizer)


def example(text):
    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[text]))
    features = tf.train.Features(feature=dict.fromkeys(("text", "text_pair"), feature))
    return tf.train.Example(features=features).SerializeToString()


def inputs_of(signature, rows, tokens):
    """Return arrays for all inputs: rows of texts, or of ids, with this number of tokens."""
    _, specs = signature.structured_input_signature
    arrays = {}
    for name, spec in specs.items():
        if name in OPTIONS:
            value = 1 if name == "max_new_tokens" else OPTIONS[name].default
            arrays[name] = np.array([value], OPTIONS[name].dtype)
        elif name == "stop":
            arrays[name] = np.array([b""], object)
        elif name in ("num_beams", "length_penalty"):
            arrays[name] = np.ones(1, spec.dtype.as_numpy_dtype)
        elif spec.dtype == tf.string:
            text = " ".join(["a"] * tokens).encode()
            texts = np.full(rows, example(text) if name == "inputs" else text, object)
            arrays[name] = texts if spec.shape.rank == 1 else texts[:, np.newaxis]
        elif name.startswith(("cache", "memory")):
            sizes = [1 if n is None else n for n in spec.shape]
            arrays[name] = np.zeros([rows, *sizes[1:]], spec.dtype.as_numpy_dtype)
        else:
            shape = [rows, tokens] if spec.shape.rank == 2 else [rows, 1, tokens]
            arrays[name] = np.ones(shape, spec.dtype.as_numpy_dtype)
    return {name: tf.constant(array) for name, array in arrays.items()}


@pytest.mark.slow
@pytest.mark.parametrize("make", [encoder_tasks, writing_tasks])
def test_every_signature_refuses_what_is_just_too_much(make, monkeypatch):
    """The limits are made small, so that little memory is needed to exceed them."""
    monkeypatch.setattr(tensorflow, "most_tokens", lambda: 1024)
    results = {}
    for task in make():
        for name, signature in task.signatures.functions().items():
            signature(**inputs_of(signature, 1, 2))
            try:
                signature(**inputs_of(signature, 64, 32))
            except tf.errors.InvalidArgumentError as error:
                assert "may be 1024 at most" in str(error), (task, name)
            else:
                results[type(task).__name__, name] = "not refused"
    assert results == {}
