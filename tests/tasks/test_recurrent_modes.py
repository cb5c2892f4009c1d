"""Recurrent models in `.keras` files, and trained on two replicas."""

import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm import tasks
from keras_lm.models import (
    AWDLSTMBackbone,
    CoveBackbone,
    ElmoBackbone,
    PairLSTMBackbone,
    TagLMBackbone,
)
from keras_lm.tokenizers import CharacterTokenizer, WordTokenizer

WORDS = ["<unk>", "<pad>", "xxbos", "xxfld", "a", "b", "c", "d"]
# Two and two have equally many words, so that a mean of two means is that of all.
TEXTS = ["a b c d", "d", "b b", "c a d"]


def words():
    return WordTokenizer(WORDS, "<unk>", "<pad>", additional_special_tokens=["xxbos", "xxfld"])


def elmo():
    backbone = ElmoBackbone(
        num_layers=2, hidden_dim=4, cell_dim=6, filters=[(1, 4), (2, 4)], characters_per_word=6
    )
    extractor = tasks.FeatureExtractor(backbone, layers="scalar_mix")
    return tasks.TextClassifier(extractor, num_classes=2, tokenizer=CharacterTokenizer(6))


def awd_lstm():
    backbone = AWDLSTMBackbone(len(WORDS), num_layers=2, hidden_dim=8, embedding_dim=6)
    return tasks.CausalLM(backbone, tokenizer=words())


def taglm():
    cove = CoveBackbone(1, embedding_dim=4, hidden_dim=4, vocabulary_size=len(WORDS))
    backbone = TagLMBackbone(cove, embedding_dim=4, hidden_dim=8)
    return tasks.TokenClassifier(backbone, num_classes=2, crf=True, tokenizer=words())


def pair_lstm():
    backbone = PairLSTMBackbone(len(WORDS), 4, hidden_dim=8, num_layers=1, pooled_dim=4)
    return tasks.TextClassifier(backbone, num_classes=2, text_pair=True, tokenizer=words())


FAMILIES = {make.__name__: make for make in (elmo, awd_lstm, taglm, pair_lstm)}


@pytest.mark.eager
@pytest.mark.parametrize("name", FAMILIES)
def test_keras_file(name, tmp_path):
    """It holds the tokenizer too, also one that needs no vocabulary."""
    task = FAMILIES[name]()
    random = np.random.default_rng(0)
    for weight in task.trainable_weights:
        weight.assign(0.5 * random.normal(size=weight.shape))
    task.save(tmp_path / "task.keras")
    again = keras.models.load_model(tmp_path / "task.keras")
    columns = {task.text_names[0]: tf.constant(TEXTS)}
    if task.text_pair:
        columns["text_pair"] = tf.constant(TEXTS[::-1])
    own, actual = task(task.preprocess(columns)), again(again.preprocess(columns))
    assert own.shape == actual.shape
    assert np.ptp(own) > 0.01
    np.testing.assert_allclose(actual, own, atol=1e-6)
    assert again.tokenizer.vocabulary == task.tokenizer.vocabulary


@pytest.mark.thorough
def test_two_replicas_train_as_one():
    """In a process of its own, which can have two processors."""
    result = subprocess.run(
        [sys.executable, __file__, "awd_lstm", "elmo", "taglm", "pair_lstm"],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]


def train_on_two(names):
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    assert mirrored.num_replicas_in_sync == 2
    for name in names:
        train_one(name, mirrored)


def train_one(name, mirrored):
    losses = []
    for strategy in (mirrored, tf.distribute.get_strategy()):
        keras.utils.set_random_seed(0)
        with strategy.scope():
            task = FAMILIES[name]()
        for layer in task._flatten_layers():  # chance differs from one replica to two
            for rate in {"rate", "weight_drop"} & set(vars(layer)):
                setattr(layer, rate, 0.0)
        x = (TEXTS, TEXTS[::-1]) if task.text_pair else TEXTS
        labels = [[0] * len(text.split()) for text in TEXTS]
        labels[0] = [-100] * len(labels[0])  # one replica has fewer labels than the other
        y = {"taglm": labels, "awd_lstm": None}
        # One replica needs no graph, whose tracing takes longest.
        with strategy.scope():
            task.compile(optimizer=keras.optimizers.SGD(0.5), run_eagerly=strategy is not mirrored)
        y = y.get(name, [0, 1, 1, 0])
        history = task.fit(x, y, batch_size=4, epochs=3, shuffle=False, verbose=0).history
        losses.append(history["loss"])
        assert len(task.predict(x, batch_size=4, verbose=0)) == 4
    np.testing.assert_allclose(*losses, rtol=1e-3, err_msg=name)
    assert losses[0][-1] < losses[0][0], name


if __name__ == "__main__":
    train_on_two(sys.argv[1:])


@pytest.mark.eager
def test_symmetric_pairs_of_characters_have_no_order():
    task = tasks.TextClassifier(
        elmo().backbone, num_classes=2, tokenizer=CharacterTokenizer(6), symmetric=True
    )
    task.compile(run_eagerly=True)
    first, second = TEXTS[:2], TEXTS[2:]
    task.fit((first, second), [0, 1], verbose=0)
    logits = task.predict((first, second), verbose=0)
    np.testing.assert_allclose(task.predict((second, first), verbose=0), logits, atol=1e-5)
