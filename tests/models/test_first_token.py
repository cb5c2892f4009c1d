"""A classifier reads the first token alone: the last block computes no other."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny

from keras_lm.layers.basic import FirstTokenClassifier, reads_first_only
from keras_lm.tasks import MaskedLM, TextClassifier, TokenClassifier
from keras_lm.training import enable_lora

NAMES = ["Bert", "Roberta", "MPNet", "DistilBert", "Albert", "Electra", "SpanBert", "TinyBert"]
MASK = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1], [1, 0, 0, 0, 0, 0]])
IDS = np.random.default_rng(0).integers(10, 50, MASK.shape)


def make(name):
    backbone = tiny.make_backbone(f"{name}Backbone", 60)
    return TextClassifier(backbone, num_classes=3)


def logits_and_gradients(task, length=None):
    inputs = {"token_ids": IDS[:, :length], "padding_mask": MASK[:, :length]}
    inputs = {name: tf.constant(value, tf.int32) for name, value in inputs.items()}
    with tf.GradientTape() as tape:
        logits = task(inputs, training=False)
        loss = tf.reduce_sum(logits * tf.constant([1.0, 2.0, -3.0]))
    gradients = tape.gradient(loss, task.trainable_weights)
    return logits, [tf.convert_to_tensor(gradient) for gradient in gradients]


def assert_same_as_whole(task, monkeypatch, length=None):
    assert task._reads_first_only
    alone = logits_and_gradients(task, length)
    monkeypatch.setattr(type(task), "_reads_first_only", False)
    whole = logits_and_gradients(task, length)
    for a, b in zip(keras.tree.flatten(alone), keras.tree.flatten(whole), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_logits_and_gradients_are_those_of_the_whole(name, monkeypatch):
    task = make(name)
    outputs = task.backbone({"token_ids": IDS[:, :4]}, first_only=True)
    assert outputs["sequence_output"].shape[:2] == (4, 1)
    assert_same_as_whole(task, monkeypatch)


def test_a_text_of_one_token(monkeypatch):
    assert_same_as_whole(make("Bert"), monkeypatch, length=1)


def test_with_lora(monkeypatch):
    task = make("Bert")
    enable_lora(task, rank=2)
    for weight in task.trainable_weights:
        weight.assign_add(keras.random.normal(weight.shape, stddev=0.1, seed=1))
    assert_same_as_whole(task, monkeypatch)


def test_heads_that_read_other_tokens_get_them():
    backbone = tiny.make_backbone("BertBackbone", 60)
    assert not MaskedLM(backbone)._reads_first_only
    assert not TokenClassifier(backbone, num_classes=2)._reads_first_only
    assert not make("GPT2")._reads_first_only
    assert not make("ModernBert")._reads_first_only


def test_a_head_of_ones_own_gets_all_tokens_unless_it_says_otherwise():
    class OnTheLast(FirstTokenClassifier):
        def call(self, outputs, inputs=None, training=None):
            return self.logits(outputs["sequence_output"][:, -1])

    class OnTheFirst(OnTheLast):
        reads_first_only = True

    assert not reads_first_only(OnTheLast(2))
    assert reads_first_only(OnTheFirst(2))
    assert not reads_first_only(None)
