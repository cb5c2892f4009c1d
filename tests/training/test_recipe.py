"""The recipe of docs/interruptions.md: a run of `fit` that is killed ends with the same weights."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm import tasks, training
from keras_lm.models import BertBackbone
from keras_lm.tokenizers import WordPieceTokenizer

pytestmark = [pytest.mark.eager, pytest.mark.slow]

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film", "song", "good", "bad"]
TEXTS = ["a good film", "bad song", "a bad film", "good song", "a song", "film"]
LABELS = ["good", "bad", "bad", "good", "bad", "good"]
EPOCHS, BATCH_SIZE = 2, 2


def run(path, *callbacks):
    """Train as the page says; return how many steps were done before, and the weights."""
    keras.utils.set_random_seed(1)
    backbone = BertBackbone(len(WORDS), 1, 2, 8, 12, max_sequence_length=8)
    tokenizer = WordPieceTokenizer(WORDS, lowercase=True)
    task = tasks.TextClassifier(backbone, tokenizer=tokenizer, class_names=["bad", "good"])
    steps = EPOCHS * len(TEXTS) // BATCH_SIZE
    schedule = training.WarmupLinearDecay(1e-2, total_steps=steps)
    task.compile(optimizer=training.AdamW(schedule))
    rows = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).shuffle(len(TEXTS), seed=1)
    batches = rows.repeat(EPOCHS).batch(BATCH_SIZE)
    settings = {"epochs": EPOCHS, "batch_size": BATCH_SIZE}
    checkpoint = training.TrainingCheckpoint(path, settings, minutes=0)
    done = checkpoint.restore(task)
    task.fit(batches.skip(done), callbacks=[checkpoint, *callbacks], verbose=0)
    return done, [weight.numpy() for weight in task.weights]


def test_a_run_that_was_interrupted_ends_with_the_same_weights(tmp_path, interrupt_before):
    _, expected = run(tmp_path / "whole.safetensors")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run.safetensors", interrupt_before(4))
    done, actual = run(tmp_path / "run.safetensors")
    assert done == 4
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)
