"""Asking a preset and its exports from Python, by the same method."""

import numpy as np
import pytest

from keras_lm import serving


def test_all_answer_alike(critic, tmp_path):
    critic.task.save_to_preset(tmp_path / "preset")
    texts = ["a film", "", "film a a"]
    expected = critic.task.classify(texts)
    sources = [tmp_path / "preset", critic.folder]
    if critic.tflite.exists():
        sources.append(critic.tflite)
    for source in sources:
        model = serving.open_predictor(source)
        assert model.inputs == ["text"]
        actual = model.answers({"text": texts}, batch_size=2)
        scores = [answer["scores"] for answer in actual]
        np.testing.assert_allclose(scores, expected["scores"], atol=1e-5)
    with pytest.raises(ValueError, match="is not exported: leave signature=x out"):
        serving.open_predictor(tmp_path / "preset", signature="x")
    with pytest.raises(ValueError, match="has no version 7; it has 1"):
        serving.open_predictor(critic.folder, version=7)
