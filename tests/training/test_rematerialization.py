"""Blocks that are computed again: the same losses and weights, by the same random numbers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.layers.attention import FeedForward
from keras_lm.models import AlbertBackbone, BertBackbone, GPT2Backbone, LSTMBackbone, T5Backbone
from keras_lm.tasks import CausalLM, Seq2SeqLM, TextClassifier
from keras_lm.training import enable_lora, enable_rematerialization

ROWS, LENGTH, V = 8, 6, 30
SIZE = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16, "dropout": 0.3}
IDS = np.random.default_rng(0).integers(1, V, (ROWS, LENGTH)).astype("int32")
MASK = (np.arange(LENGTH) < np.array([[6], [3], [1], [5]] * 2)).astype("int32")
PACKED = {"token_ids": IDS, "padding_mask": MASK}


def classifier(cls=BertBackbone, **options):
    return TextClassifier(cls(V, **SIZE | options), num_classes=2), PACKED, np.arange(ROWS) % 2


def albert():
    return classifier(AlbertBackbone, num_groups=1, embedding_dim=4)


def causal():
    return CausalLM(GPT2Backbone(V, **SIZE)), PACKED, None


def writer():
    both = {f"{side}_{name}": x for side in ("encoder", "decoder") for name, x in PACKED.items()}
    return Seq2SeqLM(T5Backbone(V, **SIZE, num_buckets=8)), both, IDS


def lora():
    task, *data = classifier()
    enable_lora(task, rank=2)
    return task, *data


def half():
    return classifier(dtype="mixed_bfloat16")


def trained(make, again, **options):
    """Return the loss of two steps, and what the task's variables are after them."""
    keras.utils.set_random_seed(2)
    task, x, y = make()
    if again:
        enable_rematerialization(task)
    task.compile(optimizer=keras.optimizers.SGD(0.1), **options)
    loss = task.fit(x, y, batch_size=4, shuffle=False, verbose=0).history["loss"]
    return loss, [keras.ops.convert_to_numpy(v) for v in task.variables]


def assert_same(make, **options):
    (loss, weights), (expected, others) = (
        trained(make, again, **options) for again in (True, False)
    )
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    for own, other in zip(weights, others, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=2e-6)


SLOW = [pytest.param(make, marks=pytest.mark.slow) for make in (albert, half)]


@pytest.mark.eager
@pytest.mark.parametrize("make", [classifier, causal, lora, *SLOW])
def test_what_is_learnt_is_the_same(make):
    assert_same(make)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [classifier, *(pytest.param(make, marks=pytest.mark.thorough) for make in (causal, writer))],
)
def test_what_is_learnt_in_a_graph_is_the_same(make):
    assert_same(make)


@pytest.mark.slow
@pytest.mark.eager
def test_parts_of_a_batch_are_the_same():
    assert_same(classifier, micro_batch_size=2)


@pytest.mark.eager
def test_blocks_are_computed_twice_in_training_only(monkeypatch):
    calls = []
    call = FeedForward.call
    monkeypatch.setattr(FeedForward, "call", lambda self, x: calls.append(self) or call(self, x))
    task, x, _ = classifier()
    enable_rematerialization(task)
    calls.clear()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(task(x, training=True))
    assert len(calls) == 2
    tape.gradient(loss, [v.value for v in task.trainable_variables])
    assert calls == [*calls[:2], *calls[1::-1]]  # the last block first
    task.predict(x, verbose=0)
    assert len(calls) == 6


def test_a_model_without_blocks_is_refused():
    backbone = LSTMBackbone(V, num_layers=1, hidden_dim=8)
    with pytest.raises(ValueError, match=r"LSTMBackbone has no blocks .*micro_batch_size"):
        enable_rematerialization(backbone)
