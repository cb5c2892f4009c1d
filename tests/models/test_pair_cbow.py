"""GLUE's CBoW: its equations, over an embedding and over vectors that stay as they are."""

import numpy as np
import pytest

from keras_lm.models import PairCBOWBackbone, WordVectorBackbone
from keras_lm.tasks import TextRegressor
from keras_lm.tokenizers import WordTokenizer


def test_the_equations():
    vectors = np.random.default_rng(0).normal(size=(6, 4)).astype("float32")
    frozen = WordVectorBackbone.from_vectors(vectors)
    for backbone in (PairCBOWBackbone(6, 4), PairCBOWBackbone(language_model=frozen)):
        if backbone.language_model is None:
            backbone.get_layer("pair_embedding").embeddings.assign(vectors)
        inputs = {
            "token_ids": [[2, 3, 4, 5, 1], [3, 2, 1, 1, 1]],
            "segment_ids": [[0, 0, 0, 1, 1], [0, 0, 0, 0, 0]],
            "padding_mask": [[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]],
        }
        u = np.stack([vectors[2:5].mean(axis=0), vectors[2:4].mean(axis=0)])
        v = np.stack([vectors[5], np.zeros(4, "float32")])
        compared = np.concatenate([u, v, np.abs(u - v), u * v], axis=-1)
        expected = backbone.get_layer("pooler")(compared)
        np.testing.assert_allclose(backbone(inputs)["pooled_output"], expected, atol=1e-5)


@pytest.mark.eager
def test_frozen_vectors_are_not_trained():
    frozen = WordVectorBackbone(6, 4)
    words = WordTokenizer(["<unk>", "<pad>", "x", "y", "z", "a"], "<unk>", "<pad>")
    task = TextRegressor(PairCBOWBackbone(language_model=frozen), tokenizer=words, text_pair=True)
    trained = {variable.path for variable in task.trainable_variables}
    assert trained and trained.isdisjoint(variable.path for variable in frozen.variables)
    same, other = task.regress((["x y", "x"], ["y x", "z"]))["scores"]
    assert same != pytest.approx(other)
