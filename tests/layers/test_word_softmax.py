"""The softmax over a list of words: the whole of it, and a sample."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.layers import WordSoftmax

V, D, N = 200, 6, 40


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, N // 2, D)).astype("float32"), rng.integers(0, V, (2, N // 2))


def make(num_candidates):
    keras.utils.set_random_seed(0)
    softmax = WordSoftmax(V, num_candidates)
    softmax.build((None, None, D))
    softmax.bias.assign(np.linspace(1, -1, V))
    return softmax


def test_whole_list(data):
    x, labels = data
    softmax = make(None)
    logits = softmax(x)
    assert logits.shape == (2, N // 2, V)
    expected = -np.take_along_axis(np.array(tf.nn.log_softmax(logits)), labels[..., None], -1)
    for training in (False, True):  # None takes all in training, too
        losses = softmax(x, labels, training=training)
        np.testing.assert_allclose(losses, expected[..., 0], atol=1e-5)
    np.testing.assert_allclose(make(10)(x, labels), expected[..., 0], atol=1e-5)
    np.testing.assert_allclose(make(V)(x, labels, training=True), expected[..., 0], atol=1e-5)


def test_a_sample_comes_close_to_the_whole_list(data):
    x, labels = data
    means = []
    for number in (10, 60, V - 1):
        softmax = make(number)
        losses = [np.mean(softmax(x, labels, training=True)) for _ in range(20)]
        assert np.std(losses) > 0  # it is a sample
        means.append(np.mean(losses))
    full = np.mean(softmax(x, labels))
    # It is easier to tell a word from few others.
    assert means == sorted(means)
    assert means[-1] == pytest.approx(full, rel=0.01)
    assert means[0] < 0.9 * full


def test_a_sample_trains_its_own_rows_only(data):
    x, labels = data
    softmax = make(5)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(softmax(x, labels, training=True))
    gradient = tf.convert_to_tensor(tape.gradient(loss, softmax.kernel.value)).numpy()
    trained = set(np.flatnonzero(np.abs(gradient).sum(1)))
    assert set(labels.ravel()) <= trained
    assert len(trained) <= len(set(labels.ravel())) + 5


def test_half_precision_is_for_the_rest_of_the_model(data):
    softmax = WordSoftmax(V, 5, dtype="mixed_bfloat16")
    for training in (True, False):
        assert softmax(*data, training=training).dtype == "float32"
    assert softmax(data[0]).dtype == "float32"


def test_no_candidates():
    with pytest.raises(ValueError, match="num_candidates=0"):
        WordSoftmax(V, 0)


def test_words_of_a_sample_weigh_by_their_chances():
    """A sum over a sample, each word divided by its chance, is in the mean that over all words."""
    sample = tf.function(make(20)._sample, autograph=False)
    seen, weight, number = np.zeros(V), np.zeros(V), 400
    for _ in range(number):
        words, log_expected = map(np.array, sample())
        assert len(np.unique(words)) == 20
        seen[words] += 1 / number
        weight[words] += np.exp(-log_expected[words]) / number
    np.testing.assert_allclose(weight[:20], 1.0, atol=0.2)
    assert weight.sum() == pytest.approx(V, rel=0.05)
    assert seen[0] > 0.9 and seen[-50:].max() < 0.15  # frequent words are nearly always there


def test_the_loss_over_a_sample(data):
    x, labels = data[0][0], data[1][0]
    softmax, again = make(30), make(30)
    words, log_expected = map(np.array, softmax._sample())
    logits = np.array(again(x)) - log_expected
    losses = again(x, labels, training=True)  # the same sample: it is of the same seed
    for row, label, loss in zip(logits, labels, losses, strict=True):
        seen = np.union1d(words, [label])
        expected = np.log(np.exp(row[seen]).sum()) - row[label]
        assert float(loss) == pytest.approx(expected, rel=1e-4)
