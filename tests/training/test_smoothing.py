"""Adversarial smoothing: what the term is, and what it goes together with."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import BertBackbone, ElmoBackbone
from keras_lm.tasks import MultipleChoice, TextClassifier, TextRegressor, TokenClassifier
from keras_lm.tokenizers import WordPieceTokenizer
from keras_lm.training import AdversarialSmoothing
from keras_lm.training.smoothing import symmetric_divergence

TOKENIZER = WordPieceTokenizer(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"], lowercase=True
)
TEXTS, LABELS = ["a b c", "b b", "c d e f", "a d", "e f e", "f"], [0, 1, 1, 0, 1, 0]


def make(cls=TextClassifier, **options):
    keras.utils.set_random_seed(0)
    size = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
    backbone = BertBackbone(len(TOKENIZER.vocabulary), dropout=0.0, **size)
    task = cls(backbone, tokenizer=TOKENIZER, **options)
    for variable in task.trainable_variables:
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.3))
    return task


@pytest.fixture
def same_noise(monkeypatch):
    """Every text starts from the same change, in whichever part of a batch."""

    def normal(shape):
        noise = tf.random.stateless_normal(shape[1:], seed=[1, 2])
        return tf.broadcast_to(noise, shape)

    monkeypatch.setattr(tf.random, "normal", normal)


def test_the_term_is_larger_than_that_of_a_random_change():
    """The step goes where the answer changes: further than the best of many at random."""
    task = make(num_classes=2)
    packed = task.preprocess(TEXTS)
    outputs = task(packed)
    smoothing = AdversarialSmoothing(radius=0.1)
    term = float(tf.function(lambda: smoothing(task, packed, outputs), autograph=False)())
    embedding, original = task.backbone.token_embedding, task.backbone.token_embedding.call
    random = []
    for _ in range(20):
        step = tf.random.normal((*packed["token_ids"].shape, 8))
        step = 0.1 * step / tf.norm(step, axis=(1, 2), keepdims=True)
        embedding.call = lambda ids, step=step: original(ids) + step
        random.append(float(np.mean(task.divergence(task(packed), outputs))))
        del embedding.call
    assert term > max(random)
    np.testing.assert_array_equal(task(packed), outputs)  # nothing is left of the changes


def test_a_divergence_is_both_of_kullback_and_leibler():
    p, q = np.array([0.5, 0.25, 0.25], "float32"), np.array([0.2, 0.2, 0.6], "float32")
    expected = np.sum(p * np.log(p / q)) + np.sum(q * np.log(q / p))
    actual = symmetric_divergence(np.log(p)[None], np.log(q)[None])
    np.testing.assert_allclose(actual, [expected], rtol=1e-5)


@pytest.mark.eager
def test_it_is_part_of_the_training_loss_alone():
    plain, smooth = make(num_classes=2), make(num_classes=2)
    smooth.compile(smoothing=AdversarialSmoothing(weight=5.0, radius=1.0))
    before = [task.test_on_batch(TEXTS, LABELS)[0] for task in (plain, smooth)]
    assert before[0] == pytest.approx(before[1])
    logs = [task.train_on_batch(TEXTS, LABELS)[0] for task in (plain, smooth)]
    assert logs[1] > logs[0] + 1e-3


@pytest.mark.eager
@pytest.mark.usefixtures("same_noise")
def test_in_parts_it_is_that_of_the_whole_batch():
    steps = []
    for size in (None, 4):
        task = make(TextRegressor)
        options = {"micro_batch_size": size, "smoothing": AdversarialSmoothing()}
        task.compile(keras.optimizers.SGD(0.1), **options)
        task.train_on_batch(TEXTS, [1.0, 2.0, 0.0, 1.0, 3.0, 1.0])
        steps.append([variable.numpy() for variable in task.trainable_variables])
    for a, b in zip(*steps, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.eager
@pytest.mark.parametrize(
    ("cls", "options", "x", "y"),
    [
        (TextClassifier, {"num_classes": 2, "multi_label": True}, TEXTS[:2], [[0, 1], [1, 1]]),
        (MultipleChoice, {}, {"text": ["a"], "choices": [["b", "c d"]]}, [1]),
    ],
)
def test_other_tasks(cls, options, x, y):
    task = make(cls, **options)
    task.compile(smoothing=AdversarialSmoothing())
    assert np.isfinite(task.train_on_batch(x, np.array(y))[0])


def test_it_is_saved(tmp_path):
    task = make(num_classes=2)
    task.compile(smoothing=AdversarialSmoothing(weight=3.0))
    task.save(tmp_path / "task.keras")
    assert keras.saving.load_model(tmp_path / "task.keras").smoothing.weight == 3.0


@pytest.mark.parametrize("options", [{"weight": -1}, {"radius": 0}, {"noise": 0}])
def test_bad_arguments(options):
    (name,) = options
    with pytest.raises(ValueError, match=f"{name}={options[name]}"):
        AdversarialSmoothing(**options)


def test_what_it_does_not_go_with_is_refused():
    with pytest.raises(ValueError, match="TokenClassifier has none"):
        make(TokenClassifier, num_classes=2).compile(smoothing=AdversarialSmoothing())
    elmo = ElmoBackbone(hidden_dim=4, cell_dim=4, num_layers=1, filters=[[1, 4]], num_highways=1)
    with pytest.raises(ValueError, match="ElmoBackbone has no layer"):
        TextClassifier(elmo, num_classes=2).compile(smoothing=AdversarialSmoothing())
