"""Losses of vectors: sentence-transformers' numbers and gradients, and what they leave out."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.objectives import (
    AnglE,
    ContrastiveLoss,
    CoSENT,
    CosineMeanSquares,
    InBatchNegatives,
    MarginMeanSquares,
    MaskedCrossentropy,
    Matryoshka,
    SupervisedContrastive,
    TripletLoss,
    VectorMeanSquares,
)
from keras_lm.objectives.embeddings import Examples
from keras_lm.tasks import SentenceEncoder

SLOWER = ("mpnet", "modernbert")
SIZES = {"sizes": [8, 4, 2], "weights": [1.0, 0.5, 0.25]}
# A golden → the loss, the number of texts, and the name of the labels.
REFERENCES = {
    "mnrl": (InBatchNegatives(), 2, None),
    "mnrl_negatives": (InBatchNegatives(scale=10.0), 4, None),
    "mnrl_dot": (InBatchNegatives(scale=1.0, similarity="dot"), 3, None),
    "symmetric": (InBatchNegatives(symmetric=True), 2, None),
    "triplet": (TripletLoss(), 3, None),
    "triplet_cosine": (TripletLoss(0.5, "cosine"), 3, None),
    "triplet_manhattan": (TripletLoss(2.0, "manhattan"), 3, None),
    "contrastive": (ContrastiveLoss(), 2, "pairs"),
    "contrastive_euclidean": (ContrastiveLoss(3.0, "euclidean"), 2, "pairs"),
    "cosine": (CosineMeanSquares(), 2, "scores"),
    "cosent": (CoSENT(), 2, "scores"),
    "angle": (AnglE(), 2, "scores"),
    "margin_mse": (MarginMeanSquares(), 3, "margins"),
    "margin_mse_2": (MarginMeanSquares(), 4, "margins2"),
    "mse": (VectorMeanSquares(), 1, "teacher"),
    "matryoshka_mnrl": (Matryoshka(InBatchNegatives(), **SIZES), 3, None),
    "matryoshka_cosent": (Matryoshka(CoSENT(), **SIZES), 2, "scores"),
}


@pytest.fixture(scope="module")
def expected(goldens):
    return dict(np.load(goldens("embedding-losses") / "expected.npz"))


def with_gradient(loss, labels, vectors):
    vectors = tf.Variable(vectors)
    with tf.GradientTape() as tape:
        value = loss(labels, vectors)
    return value.numpy(), tape.gradient(value, vectors).numpy()


@pytest.mark.parametrize("name", REFERENCES)
def test_losses_and_gradients_are_sentence_transformers(expected, name):
    loss, texts, labels = REFERENCES[name]
    vectors = expected["vectors"][:, :texts]
    vectors = vectors[:, 0] if texts == 1 else vectors
    labels = None if labels is None else expected[labels]
    value, gradient = with_gradient(loss, labels, vectors)
    np.testing.assert_allclose(value, expected[name], rtol=1e-6, atol=1e-6)
    wanted = expected[f"{name}_grad"].reshape(gradient.shape)
    np.testing.assert_allclose(gradient, wanted, atol=1e-5)


@pytest.mark.eager
@pytest.mark.parametrize(
    "folder", ["bert", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOWER)]
)
def test_losses_and_gradients_through_networks(goldens, folder):
    """Of the token embeddings, whose gradients have passed all layers."""
    arrays = dict(np.load(goldens("embedding-losses") / "models.npz"))
    encoder = SentenceEncoder.from_preset(
        goldens(folder), tokenizer=None, pooling="mean", normalize=False
    )
    table = encoder.backbone.token_embedding.embeddings
    width = table.shape[-1]
    sizes = {"sizes": [width, width // 2, 4], "weights": [1.0, 0.5, 0.25]}
    further = {
        "mnrl_dot": (InBatchNegatives(scale=0.1, similarity="dot"), 3, None),
        "cached": REFERENCES["mnrl"],
        "mse": (VectorMeanSquares(), 1, f"{folder}.teacher"),
        "matryoshka_mnrl": (Matryoshka(InBatchNegatives(), **sizes), 3, None),
        "matryoshka_cosent": (Matryoshka(CoSENT(), **sizes), 2, "scores"),
    }
    for name, (loss, texts, labels) in (REFERENCES | further).items():
        places = 0 if texts == 1 else slice(texts)
        inputs = {"token_ids": arrays["ids"], "padding_mask": arrays["mask"]}
        with tf.GradientTape() as tape:
            vectors = encoder({name: x[:, places] for name, x in inputs.items()})
            value = loss(arrays.get(labels), vectors)
        gradient = tf.convert_to_tensor(tape.gradient(value, table)).numpy()
        np.testing.assert_allclose(value, arrays[f"{folder}.{name}"], rtol=1e-5, err_msg=name)
        size = abs(gradient).max()  # up to 120, of an unscaled loss
        wanted = arrays[f"{folder}.{name}_grad"]
        actual = gradient @ arrays[f"{folder}.direction"]
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5 * size, err_msg=name)


@pytest.mark.parametrize("name", REFERENCES)
def test_losses_are_saved_by_their_arguments(expected, name):
    loss, texts, labels = REFERENCES[name]
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    vectors = expected["vectors"][:, :texts]
    vectors = vectors[:, 0] if texts == 1 else vectors
    labels = None if labels is None else expected[labels]
    assert copy(labels, vectors) == loss(labels, vectors)


def test_sample_weights_weigh_examples(expected):
    vectors, weights = expected["vectors"][:, :3], np.array([1, 1, 1, 0, 0, 0], "float32")
    loss = TripletLoss()
    some = loss(None, vectors, sample_weight=weights)
    np.testing.assert_allclose(some, loss(None, vectors[:3]), rtol=1e-6)


@pytest.mark.parametrize("loss", [InBatchNegatives(), TripletLoss(), MarginMeanSquares()])
def test_a_negative_that_is_missing_counts_for_nothing(expected, loss):
    vectors, margins = expected["vectors"], expected["margins2"]
    is_text = np.ones((6, 4), bool)
    is_text[:, 3] = False  # nobody has a second negative
    labels = margins if loss.labels_are else None
    masked = loss(Examples(labels, is_text), vectors)
    labels = margins[:, :1] if loss.labels_are else None
    np.testing.assert_allclose(masked, loss(labels, vectors[:, :3]), rtol=1e-6)


def test_a_text_that_stands_twice_in_a_batch_is_no_wrong_answer(expected):
    vectors = expected["vectors"][:, :2].copy()
    vectors[1, 1] = vectors[0, 1]  # two questions with one answer
    keys = np.arange(24, dtype="int32").reshape(6, 2, 2)
    keys[1, 1] = keys[0, 1]
    logits = 20 * np.einsum("bd,cd->bc", *(unit(vectors[:, i]) for i in (0, 1)))
    logits[0, 1] = logits[1, 0] = -np.inf
    losses = np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1)) + logits.max(1)
    wanted = np.mean(losses - np.diag(logits))
    value, gradient = with_gradient(InBatchNegatives(), Examples(None, None, keys), vectors)
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    assert np.isfinite(gradient).all()
    assert value < InBatchNegatives()(None, vectors)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def test_supervised_contrastive_is_the_papers_equation(expected):
    vectors, classes = expected["vectors"][:, 0], np.array([0, 1, 0, 1, 1, 2])
    similar = unit(vectors) @ unit(vectors).T / 0.5
    losses = []
    for i in range(5):  # the sixth is alone in its class
        others = [j for j in range(6) if j != i]
        total = np.log(sum(np.exp(similar[i, j]) for j in others))
        same = [j for j in others if classes[j] == classes[i]]
        losses.append(np.mean([total - similar[i, j] for j in same]))
    value = SupervisedContrastive(temperature=0.5)(classes, vectors)
    np.testing.assert_allclose(value, np.mean(losses), rtol=1e-5)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: InBatchNegatives(scale=0), "scale=0: pass a number above 0"),
        (lambda: InBatchNegatives(similarity="l2"), "similarity='l2': use one of"),
        (lambda: TripletLoss(distance="dot"), "distance='dot': use one of"),
        (lambda: Matryoshka(InBatchNegatives(), []), r"sizes=\[\]: pass a list of int"),
        (
            lambda: Matryoshka(InBatchNegatives(), np.array([0])),
            r"sizes=\[.*\]: pass a list of int",
        ),
        (lambda: Matryoshka(InBatchNegatives(), [4], [1, 2]), r"weights=\[1, 2\]: pass one"),
        (lambda: Matryoshka(VectorMeanSquares(), [4]), "pass a loss of texts"),
        (lambda: Matryoshka(MaskedCrossentropy(), [4]), "pass a loss of texts"),
    ],
)
def test_arguments_out_of_range(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "loss, shape, message",
    [
        (TripletLoss(), (2, 2, 4), "compares triples.* has 2"),
        (InBatchNegatives(), (2, 4), "compares pairs.* has 1"),
        (SupervisedContrastive(), (2, 2, 4), "compares single texts.* has 2"),
        (AnglE(), (2, 2, 3), "these have 3 numbers"),
        (VectorMeanSquares(), (2, 4), r"labels has the shape \(2,\): .* takes 4 for each example"),
        (Matryoshka(InBatchNegatives(), [8]), (2, 2, 4), "vectors have 4 numbers"),
    ],
)
def test_examples_that_do_not_fit(loss, shape, message):
    with pytest.raises(ValueError, match=message):
        loss(np.zeros(2), np.zeros(shape, "float32"))


@pytest.mark.parametrize(
    ("loss", "labels", "message"),
    [
        (MarginMeanSquares(), [0.5, 0.1], r"\(2,\): loss=MarginMeanSquares\(\) takes 2"),
        (
            MarginMeanSquares(),
            [[0.5] * 3] * 2,
            r"\(2, 3\): .* takes 2 for each example, a teacher's",
        ),
        (CoSENT(), [[0.5, 0.1]] * 2, r"\(2, 2\): loss=CoSENT\(\) takes 1 .* a score for each pair"),
    ],
)
def test_another_number_of_labels(loss, labels, message):
    vectors = np.ones((2, 4, 6), "float32")
    with pytest.raises(ValueError, match=message):
        loss(np.array(labels, "float32"), vectors)


@pytest.mark.parametrize("loss", [CosineMeanSquares(), CoSENT(), ContrastiveLoss()])
def test_labels_in_a_column_are_those_of_rows(loss):
    vectors = np.random.default_rng(0).normal(size=(3, 2, 6)).astype("float32")
    labels = np.array([0, 1, 0], "float32")
    np.testing.assert_array_equal(loss(labels[:, np.newaxis], vectors), loss(labels, vectors))
