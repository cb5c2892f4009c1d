"""Attributions: they sum up to what they explain, and name the tokens."""

import warnings

import keras
import numpy as np
import pytest
import tiny

from keras_lm import analysis, tasks
from keras_lm.layers.embedding_hook import token_embedding_of

TEXT = "the film was <b>good</b>"
# A model, and its baseline: without positions, what is normalised jumps at zeros.
THOROUGH = pytest.mark.thorough
FAMILIES = [
    ("BertBackbone", None),
    ("XLNetBackbone", "<unk>"),
    pytest.param("LSTMBackbone", None, marks=THOROUGH),
    pytest.param("AlbertBackbone", None, marks=THOROUGH),
    pytest.param("GPT2Backbone", None, marks=THOROUGH),
    pytest.param("T5EncoderBackbone", "<unk>", marks=THOROUGH),
]


@pytest.fixture
def classifier_of(backbone_of, tokenizer_of):
    def make(name):
        tokenizer = tokenizer_of(tiny.MODELS[name][0])
        task = tasks.TextClassifier(backbone_of(name), tokenizer=tokenizer, num_classes=3)
        for weight in task.head.trainable_weights:
            weight.assign_add(keras.random.normal(weight.shape, stddev=0.5))
        return task

    return make


@pytest.mark.eager
@pytest.mark.parametrize("name, baseline", FAMILIES)
def test_integrated_gradients_are_complete(name, baseline, classifier_of):
    task = classifier_of(name)
    actual = analysis.integrated_gradients(task, TEXT, target=1, baseline=baseline, steps=48)
    outputs = task(task.preprocess([TEXT]))
    assert actual.output == pytest.approx(float(outputs[0, 1]), abs=1e-4)
    assert len(actual.tokens) == len(actual.scores)
    size = np.abs(actual.scores).sum()
    assert size > 0.05
    assert actual.completeness_error < 0.02 * size
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what it says is not what is tested here
        coarse = analysis.integrated_gradients(task, TEXT, target=1, baseline=baseline, steps=1)
    assert coarse.completeness_error > actual.completeness_error


@pytest.mark.eager
def test_a_path_over_a_jump_is_warned_of(classifier_of):
    task = classifier_of("XLNetBackbone")
    with pytest.warns(UserWarning, match=r"by .*: pass more than steps=8, or another baseline"):
        for target in range(3):  # the head is random, and one class may hardly depend on the jump
            analysis.integrated_gradients(task, TEXT, target=target, steps=8)


@pytest.mark.eager
def test_a_linear_answer_is_the_gradient_times_the_input(classifier_of):
    task = classifier_of("WordVectorBackbone")  # a mean of vectors, then a linear layer
    whole = analysis.integrated_gradients(task, "the film was good", target=0, steps=3)
    estimate = analysis.gradient_times_input(task, "the film was good", target=0)
    np.testing.assert_allclose(whole.scores, estimate.scores, atol=1e-5)
    assert whole.completeness_error < 1e-5
    table = token_embedding_of(task.backbone).embeddings.numpy()
    kernel = task.head.weights[0].numpy()
    ids = task.tokenizer(["the film was good"])[0].numpy()
    np.testing.assert_allclose(estimate.scores, table[ids] @ kernel[:, 0] / 4, atol=1e-5)


@pytest.mark.eager
def test_a_baseline_of_masks_leaves_special_tokens(classifier_of):
    task = classifier_of("BertBackbone")
    actual = analysis.integrated_gradients(task, TEXT, target=2, baseline="[MASK]", steps=64)
    assert actual.tokens[0] == "[CLS]" and actual.scores[0] == actual.scores[-1] == 0
    assert actual.scores[1:-1].all()
    assert actual.completeness_error < 0.02 * np.abs(actual.scores).sum()


@pytest.mark.eager
def test_other_tasks_are_asked_by_a_function(backbone_of, tokenizer_of):
    backbone, tokenizer = backbone_of("BertBackbone"), tokenizer_of("wordpiece")
    tagger = tasks.TokenClassifier(backbone, tokenizer=tokenizer, class_names=["O", "X"])
    actual = analysis.integrated_gradients(
        tagger, "good film", target=lambda logits: logits[:, 1, 0]
    )
    assert actual.target is None and actual.completeness_error < 0.05
    with pytest.raises(ValueError, match="does not label whole texts"):
        analysis.integrated_gradients(tagger, "good film")


@pytest.mark.eager
def test_the_model_is_left_as_it_was_and_mistakes_are_named(classifier_of):
    task = classifier_of("BertBackbone")
    packed = task.preprocess([TEXT])
    before = np.asarray(task(packed))
    with pytest.raises(ValueError, match="target=3"):
        analysis.gradient_times_input(task, TEXT, target=3)
    with pytest.raises(ValueError, match="steps=0"):
        analysis.integrated_gradients(task, TEXT, steps=0)
    with pytest.raises(ZeroDivisionError):
        analysis.gradient_times_input(task, TEXT, target=lambda logits: 1 / 0)
    np.testing.assert_array_equal(task(packed), before)


def test_text_is_coloured_and_escaped():
    scores = np.array([0.5, -0.25, 0.0], "float32")
    actual = analysis.Attributions(["a", "</span><b>", "c"], scores, 1, 0.3)
    shown = actual._repr_html_()
    assert "<b>" not in shown and shown.count("<span") == 3
    assert "rgba(36, 99, 235, 1.00)" in shown and "rgba(234, 88, 12, 0.50)" in shown


def test_a_model_without_token_embeddings_is_refused(backbone_of, tokenizer_of):
    backbone, tokenizer = backbone_of("ElmoBackbone"), tokenizer_of("characters")
    task = tasks.TextClassifier(backbone, tokenizer=tokenizer, num_classes=2)
    with pytest.raises(ValueError, match="embeddings of a text's tokens"):
        analysis.gradient_times_input(task, TEXT)
