"""A tagger with LSTMs on features that stay as they are: BERT's feature-based approach."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.tasks import FeatureExtractor, Task, TokenClassifier

NAMES = ["O", "GOOD"]


@pytest.fixture
def tagger(make, make_backbone):
    options = {"pooling": "none", "num_lstm_layers": 2, "lstm_dim": 12}
    extractor = make(FeatureExtractor, make_backbone(), **options)
    extractor.backbone.trainable = False
    return make(TokenClassifier, extractor, class_names=NAMES)


@pytest.mark.thorough
@pytest.mark.eager
def test_lstms_and_head_learn_alone(tagger, texts, tmp_path):
    texts = texts[:4]
    words = [text.split() for text in texts]
    labels = [["GOOD" if w in ("good", "great", "nice") else "O" for w in row] for row in words]
    # Kernel, recurrent kernel and bias of each direction of two layers, and the linear layer.
    assert len(tagger.trainable_variables) == 2 * 2 * 3 + 2
    tagger.compile(optimizer=keras.optimizers.Adam(0.02), run_eagerly=True)
    frozen = [variable.numpy() for variable in tagger.backbone.backbone.weights]
    losses = tagger.fit(words, labels, epochs=2, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    after = [variable.numpy() for variable in tagger.backbone.backbone.weights]
    assert all(map(np.array_equal, frozen, after))
    tagger.save_to_preset(tmp_path / "preset")
    loaded = Task.from_preset(tmp_path / "preset")
    np.testing.assert_allclose(
        loaded.predict(texts, verbose=0), tagger.predict(texts, verbose=0), atol=1e-5
    )


@pytest.mark.eager
def test_padding_changes_nothing(tagger):
    packed = tagger.preprocess([["the", "film"]])
    width = packed["token_ids"].shape[1]
    wider = {name: tf.pad(value, [[0, 0], [0, 3]]) for name, value in packed.items()}
    np.testing.assert_allclose(tagger(wider)[:, :width], tagger(packed), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_lstm_layers": -1}, "num_lstm_layers=-1"),
        ({"pooling": "none", "num_lstm_layers": 1, "lstm_dim": 7}, "lstm_dim=7"),
        ({"pooling": "mean", "num_lstm_layers": 1}, "one vector a token"),
    ],
)
def test_bad_arguments(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(FeatureExtractor, **options)
