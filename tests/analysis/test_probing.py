"""Probes find what is there; gradients by step shrink as they should."""

import keras
import numpy as np
import pytest

from keras_lm import analysis
from keras_lm.models import BertBackbone
from keras_lm.tasks import FeatureExtractor

WORDS = ["the", "film", "was", "good", "story", "great"]


@pytest.fixture
def task(tokenizer_of):
    tokenizer = tokenizer_of("wordpiece")
    backbone = BertBackbone(tokenizer.vocabulary_size, 2, 2, 16, 24, dropout=0.0)
    return FeatureExtractor(backbone, tokenizer=tokenizer)


@pytest.mark.slow  # scikit-learn alone takes seconds to import
@pytest.mark.eager
def test_probes_know_words_and_baselines_are_counted(task):
    pytest.importorskip("sklearn")
    generator = np.random.default_rng(0)
    texts = [list(generator.choice(WORDS, 6)) for _ in range(24)]
    kinds = {"the": "DET", "film": "N", "was": "V", "good": "A", "story": "N", "great": "A"}
    tags = [[kinds[word] for word in text] for text in texts]
    tags[0][0] = None
    actual = analysis.probe_layers(task, (texts[:16], tags[:16]), (texts[16:], tags[16:]))
    assert len(actual.accuracies) == 3 and (actual.train_words, actual.test_words) == (95, 48)
    assert actual.accuracies[0] > 0.95  # the embedding has the word
    assert actual.by_word == 1.0 and actual.majority < 0.6
    assert actual.draw("$")._repr_png_().startswith(b"\x89PNG")
    # By nothing in the text: no better than the most frequent label, by much.
    coins = [[str(generator.integers(2)) for _ in text] for text in texts]
    chance = analysis.probe_layers(task, (texts[:16], coins[:16]), (texts[16:], coins[16:]))
    assert max(chance.accuracies) < 0.8
    with pytest.raises(ValueError, match="two or more"):
        analysis.probe_layers(task, (texts[:1], [["x"] * 6]), (texts[:1], [["x"] * 6]))
    with pytest.raises(ValueError, match="text 0 has 6 words and 5 labels"):
        analysis.probe_layers(task, (texts[:1], [["x"] * 5]), (texts[:1], [["x"] * 6]))


def test_gradients_by_step_are_those_of_the_product():
    steps, width = 12, 3
    inputs = np.random.default_rng(0).normal(size=(2, steps, width)).astype("float32")
    kernel = 0.5 * np.eye(width, dtype="float32")

    def linear(x):  # h' = h / 2 + x: what is t steps back has shrunk by 2^t
        state = keras.ops.zeros((2, width))
        for step in range(steps):
            state = keras.ops.matmul(state, kernel) + x[:, step]
        return state

    norms = analysis.step_gradient_norms(linear, inputs)
    np.testing.assert_allclose(norms, 0.5 ** np.arange(steps)[::-1], rtol=1e-5)


def test_an_lstm_that_keeps_has_longer_gradients_than_an_rnn():
    inputs = np.random.default_rng(0).normal(size=(4, 30, 8)).astype("float32")
    rnn = keras.layers.SimpleRNN(16, recurrent_initializer="glorot_uniform")
    lstm = keras.layers.LSTM(16)
    lstm.build(inputs.shape)
    lstm.cell.bias.assign(np.repeat([0.0, 5.0, 0.0, 0.0], 16))  # the gate that keeps is open
    ratios = [n[0] / n[-1] for n in (analysis.step_gradient_norms(e, inputs) for e in (rnn, lstm))]
    assert ratios[1] > 100 * ratios[0]
    with pytest.raises(ValueError, match="return_sequences=False"):
        analysis.step_gradient_norms(keras.layers.LSTM(4, return_sequences=True), inputs)
    with pytest.raises(ValueError, match="inputs has the shape"):
        analysis.step_gradient_norms(lstm, inputs[0])
