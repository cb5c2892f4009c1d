"""The loss of sparse vectors, compared with sentence-transformers'."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.objectives import InBatchNegatives, SpladeLoss, SupervisedContrastive
from keras_lm.objectives.embeddings import Examples

WEIGHTS = {"document_weight": 0.3, "query_weight": 0.5}


@pytest.fixture(scope="module")
def expected(goldens):
    return dict(np.load(goldens("sparse-encoder") / "expected.npz"))


@pytest.mark.parametrize(
    "name, texts, arguments",
    [
        ("pairs", 2, {}),
        ("negatives", 3, {}),
        ("threshold", 3, {"document_threshold": 5, "query_threshold": 4}),
        ("documents", 2, {"query_weight": 0.0}),
    ],
)
def test_losses_and_gradients_are_the_librarys(expected, name, texts, arguments):
    loss = SpladeLoss(**WEIGHTS | arguments)
    loss = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    vectors = tf.Variable(expected["vectors"][:, :texts])
    with tf.GradientTape() as tape:
        value = loss(None, vectors)
    np.testing.assert_allclose(value, expected[f"loss_{name}"], rtol=1e-6)
    gradient = tape.gradient(value, vectors)
    np.testing.assert_allclose(gradient, expected[f"loss_{name}_grad"], atol=1e-6)


def test_negatives_that_are_missing_do_not_count(expected):
    vectors, is_text = expected["vectors"], np.ones((4, 3), bool)
    is_text[1:, 2] = False
    loss = SpladeLoss(**WEIGHTS)
    value = loss(Examples(is_text=is_text), vectors)
    present = np.concatenate([vectors[:, 1], vectors[:1, 2]])
    penalty = 0.3 * np.sum(present.mean(0) ** 2) + 0.5 * np.sum(vectors[:, 0].mean(0) ** 2)
    base = InBatchNegatives(1.0, "dot")(Examples(is_text=is_text), vectors)
    np.testing.assert_allclose(value, base + penalty, rtol=1e-6)


def test_bad_arguments():
    with pytest.raises(ValueError, match="pass a loss of pairs"):
        SpladeLoss(SupervisedContrastive())
    with pytest.raises(ValueError, match="query_weight=-1"):
        SpladeLoss(query_weight=-1)
