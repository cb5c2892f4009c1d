"""Raw texts → packed batches, by the two objects that feed a task and by nothing else of it."""

import numpy as np
import pytest
import tensorflow as tf

from keras_lm.feeding.datasets import batches, one_batch
from keras_lm.feeding.feed import Feed, Pairs
from keras_lm.tasks import MultipleChoice, TextClassifier, TokenClassifier

TEXTS = ["a film", "good", "the bad film", "a a a a good"]
LABELS = ["good", "bad", "good", "bad"]

pytestmark = pytest.mark.eager


def test_a_feed_has_all_that_batches_are_made_of(make):
    task = make(TextClassifier, class_names=["bad", "good"])
    feed = Feed(task.preprocessor, task.labels, tf.distribute.get_strategy())
    rows = 0
    for inputs, labels in batches(feed, TEXTS, LABELS, batch_size=3):
        expected = task.preprocess(TEXTS[rows : rows + 3])
        assert {*inputs} == {*expected}
        for name, value in inputs.items():
            np.testing.assert_array_equal(value, expected[name], name)
        np.testing.assert_array_equal(labels, [1, 0, 1, 0][rows : rows + 3])
        rows += len(labels)
    assert rows == 4


def test_a_step_of_ones_own_has_the_loss_of_the_task(make):
    task = make(TextClassifier, class_names=["bad", "good"])
    inputs, labels = one_batch(task.feed, TEXTS, LABELS)
    own = float(task.compute_loss(inputs, labels, task(inputs, training=False), training=False))
    expected = task.evaluate(TEXTS, LABELS, verbose=0, return_dict=True)["loss"]
    assert own == pytest.approx(expected, rel=1e-5)


def test_it_is_as_the_arguments_are_now(make):
    task = make(TextClassifier, num_classes=2)
    before = task.preprocessor(["film"])["token_ids"].numpy().tolist()
    task.prompt = "good "
    after = task.preprocessor(["film"])["token_ids"].numpy().tolist()
    assert (
        after
        == task.preprocessor.packer({"text": tf.constant(["good film"])})["token_ids"]
        .numpy()
        .tolist()
    )
    assert before != after
    assert np.array_equal(task.predict(["film"], verbose=0), task.predict(["film"], verbose=0))


@pytest.mark.parametrize(
    ("cls", "x", "options"),
    [
        (TokenClassifier, [["the", "film"]], {"num_classes": 2}),
        (MultipleChoice, {"text": ["a"], "choices": [["film", "good"]]}, {}),
    ],
)
def test_packed_inputs_are_told_from_texts(make, cls, x, options):
    texts = make(cls, **options).preprocessor
    packed = texts(x)
    assert texts.is_packed(packed) and not texts.is_packed(texts.columns(x))
    with pytest.raises(ValueError, match="which is packed: pass texts"):
        texts(packed)


@pytest.mark.parametrize("stated", [None, True, False])
def test_whether_texts_come_in_pairs_is_learned_once(stated, recwarn):
    pairs = Pairs(stated)
    pairs.note({"text": [], "text_pair": []})
    assert pairs.text_pair is (True if stated is None else stated)
    assert len(recwarn) == (stated is False)
    with pairs.learning():
        pairs.note({"text": []})
    assert pairs.text_pair is (False if stated is None else stated)
    with pytest.raises(ValueError, match="bad data"), pairs.learning():
        raise ValueError("bad data")
    assert pairs.text_pair is (False if stated is None else stated) and pairs.trained_on is None
