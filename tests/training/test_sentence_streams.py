"""Training a bidirectional language model on streams of sentences, states carried along."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import ElmoBackbone
from keras_lm.tasks import BidirectionalLM
from keras_lm.tokenizers import CharacterTokenizer, learn_words
from keras_lm.training import AdamW, fit_sentences

SENTENCES = ["the cat sat .", "a dog ran .", "it sat", "the dog", "a mat .", "cat and dog", "it"]


@pytest.fixture(scope="module")
def task():
    keras.utils.set_random_seed(0)
    size = {"num_layers": 1, "hidden_dim": 6, "cell_dim": 8, "filters": [(1, 6), (2, 6)]}
    backbone = ElmoBackbone(**size, characters_per_word=10)
    for weight in backbone.trainable_weights:  # large enough for states to matter
        weight.assign(np.random.default_rng(0).normal(size=weight.shape))
    tokenizer = CharacterTokenizer(characters_per_word=10)
    words = learn_words(SENTENCES, 50)
    return BidirectionalLM(backbone, words=words, num_candidates=6, tokenizer=tokenizer)


def mean_loss(task, batches, carried):
    """The loss over all words, computed one batch after the other."""
    states, losses, number = None, 0.0, 0
    for texts in batches:
        packed = task.preprocess({"text": np.array(texts)})
        _, labels = task.objective.corrupt(packed)
        read = {name: packed[name] for name in task.backbone.input_names}
        computed = task.backbone.compute(read | {"states": states if carried else None})
        states, layers = computed["states"], computed["hidden_states_with_boundaries"]
        losses += float(tf.reduce_sum(task.predicted(layers[-1], labels)))
        number += int(tf.reduce_sum(tf.cast(labels >= 0, tf.int32)))
    return losses / number


@pytest.mark.eager
def test_each_stream_goes_on_where_it_was(task):
    task.compile(optimizer=keras.optimizers.SGD(0.0))
    history = fit_sentences(
        task, SENTENCES, batch_size=2, validation_sentences=SENTENCES, verbose=0
    )
    batches = list(zip(SENTENCES[:3], SENTENCES[3:6], strict=True))  # the seventh fills no stream
    expected = mean_loss(task, batches, carried=True)
    assert np.log(history["val_perplexity"][0]) == pytest.approx(expected, rel=1e-4)
    assert abs(mean_loss(task, batches, carried=False) - expected) > 0.01


@pytest.mark.thorough
def test_both_directions_learn_from_a_dataset(task):
    sentences = tf.data.Dataset.from_tensor_slices(SENTENCES)
    each = {"batch_size": 2, "validation_sentences": SENTENCES, "verbose": 0}
    task.compile(optimizer=keras.optimizers.SGD(0.0))
    untrained = fit_sentences(task, sentences, epochs=1, **each)
    task.compile(optimizer=AdamW(0.05))
    trained = fit_sentences(task, sentences, epochs=12, **each)
    for name in ("val_forward_perplexity", "val_backward_perplexity"):
        assert trained[name][-1] < 0.7 * untrained[name][-1]


def test_too_few_sentences(task):
    with pytest.raises(ValueError, match="sentences has 7, which do not fill batch_size=8"):
        fit_sentences(task, SENTENCES, batch_size=8)
