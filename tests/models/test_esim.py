"""ESIM: its equations, and what it learns."""

import keras
import numpy as np
import pytest

from keras_lm.models import CoveBackbone, ElmoBackbone, EsimBackbone
from keras_lm.tasks import Task, TextClassifier
from keras_lm.tokenizers import CharacterTokenizer, WordTokenizer

WORDS = ["<unk>", "<pad>", "x", "y", "z", "a"]
# The same word on both sides, or not: neither text says it alone.
FIRST, SECOND = ["x", "y", "x", "y"] * 4, ["x", "y", "y", "x"] * 4
LABELS = ["same", "same", "other", "other"] * 4


def test_the_equations():
    """Section 3 by numpy, from what its LSTMs gave for each text alone."""
    backbone = EsimBackbone(len(WORDS), embedding_dim=6, hidden_dim=12)
    ids, segments = np.array([[2, 3, 4, 5, 2, 1]]), np.array([[0, 0, 0, 1, 1, 1]])
    mask = np.array([[1, 1, 1, 1, 1, 0]])
    inputs = {"token_ids": ids, "segment_ids": segments, "padding_mask": mask}
    words = np.asarray(backbone.get_layer("pair_embedding")(ids))

    def lstm(name, x):
        return np.asarray(backbone.get_layer(name)(x, np.ones(x.shape[:2], "int32")))

    def softmax(x):
        x = np.exp(x - x.max(axis=-1, keepdims=True))
        return x / x.sum(axis=-1, keepdims=True)

    a, b = lstm("encoding", words[:, :3])[0], lstm("encoding", words[:, 3:5])[0]
    energies = a @ b.T  # (11)
    attended_a, attended_b = softmax(energies) @ b, softmax(energies.T) @ a  # (12), (13)
    projection = backbone.get_layer("projection")
    vectors = []
    for own, other in ((a, attended_a), (b, attended_b)):
        local = np.concatenate([own, other, own - other, own * other], axis=-1)  # (14), (15)
        narrow = np.maximum(local @ np.asarray(projection.kernel) + np.asarray(projection.bias), 0)
        composed = lstm("composition", narrow[None].astype("float32"))[0]
        vectors += [composed.mean(axis=0), composed.max(axis=0)]  # (18) to (20)
    expected = backbone.get_layer("pooler")(np.concatenate(vectors)[None])
    np.testing.assert_allclose(backbone(inputs)["pooled_output"], expected, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.eager
def test_it_learns_what_neither_text_says_alone(tmp_path):
    keras.utils.set_random_seed(0)
    backbone = EsimBackbone(len(WORDS), embedding_dim=6, hidden_dim=12, dropout=0.0)
    words = WordTokenizer(WORDS, unknown_token="<unk>", pad_token="<pad>")
    task = TextClassifier(backbone, tokenizer=words, class_names=["other", "same"], text_pair=True)
    task.compile(optimizer=keras.optimizers.Adam(0.05), run_eagerly=True)
    texts = FIRST * 5, SECOND * 5
    task.fit(texts, LABELS * 5, epochs=4, batch_size=16, shuffle=False, verbose=0)
    assert task.evaluate((FIRST, SECOND), LABELS, verbose=0, return_dict=True)["accuracy"] == 1.0


@pytest.mark.slow
@pytest.mark.eager
def test_over_elmo_it_is_saved_and_a_single_text_is_read(tmp_path):
    elmo = ElmoBackbone(
        num_layers=1, hidden_dim=8, cell_dim=8, filters=[(1, 4), (2, 4)], characters_per_word=6
    )
    backbone = EsimBackbone(language_model=elmo, hidden_dim=8)
    task = TextClassifier(backbone, tokenizer=CharacterTokenizer(6), num_classes=2, text_pair=True)
    frozen = {variable.path for variable in elmo.variables}
    assert frozen.isdisjoint(variable.path for variable in task.trainable_variables)
    texts = (["x y", ""], ["y", "\U0001f600"])
    own = task.classify(texts)["scores"]
    assert np.isfinite(own).all()
    task.save_to_preset(tmp_path / "preset")
    again = Task.from_preset(tmp_path / "preset")
    np.testing.assert_allclose(again.classify(texts)["scores"], own, atol=1e-6)
    cove = CoveBackbone(1, embedding_dim=3, hidden_dim=4, vocabulary_size=len(WORDS))
    over_cove = EsimBackbone(language_model=cove, hidden_dim=4)
    assert np.isfinite(over_cove({"token_ids": [[2, 3]]})["pooled_output"]).all()
    with pytest.raises(ValueError, match="hidden_dim=5 is odd"):
        EsimBackbone(9, hidden_dim=5)
