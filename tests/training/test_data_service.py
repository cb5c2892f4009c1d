"""tf.data's service, whose dispatcher and worker, usually elsewhere, run in this process."""

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import BertBackbone
from keras_lm.tasks import TextClassifier
from keras_lm.tokenizers import WordPieceTokenizer

service = tf.data.experimental.service
SERVERS = []  # they end with the process: without them, iterators retry for a while
WORDS = ["good", "bad", "film", "story"]
TEXTS = [f"{WORDS[i % 2]} {WORDS[2 + i % 3 % 2]}" for i in range(9)]
LABELS = np.arange(9) % 2


@pytest.fixture(scope="module")
def target():
    dispatcher = service.DispatchServer()
    _, address = dispatcher.target.split("://")
    worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=address))
    SERVERS.extend([dispatcher, worker])
    yield dispatcher.target
    gc.collect()  # iterators, which say good-bye to them


def make():
    keras.utils.set_random_seed(0)
    size = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 8, "dropout": 0.0}
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = WordPieceTokenizer([*special, *WORDS], lowercase=True)
    return TextClassifier(BertBackbone(9, **size), tokenizer=tokenizer, num_classes=2)


@pytest.mark.slow
def test_a_task_learns_the_same_from_the_service(target):
    raw = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(4)
    expected = make().fit(raw, verbose=0).history["loss"]
    for tokenized in (False, True):
        task, batches = make(), raw
        if tokenized:
            batches = raw.map(lambda x, y, task=task: (task.preprocess({"text": x}), y))
        batches = batches.apply(service.distribute("parallel_epochs", target))
        batches = batches.apply(tf.data.experimental.assert_cardinality(3))
        assert task.fit(batches, verbose=0).history["loss"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_consumers_of_one_job_share_its_batches(target):
    numbers = tf.data.Dataset.range(40).batch(4)
    consume = service.distribute("distributed_epoch", target, job_name="epoch")
    one, other = iter(numbers.apply(consume)), iter(numbers.apply(consume))
    results = [number for each in (one, other) for batch in each for number in batch.numpy()]
    assert sorted(results) == list(range(40))
