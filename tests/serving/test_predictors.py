"""Asking a preset and its exports from Python, by the same method."""

import numpy as np
import pytest

from keras_lm import serving, tasks
from keras_lm.models import BertBackbone
from keras_lm.tokenizers import WordPieceTokenizer


def test_all_answer_alike(tmp_path):
    tokenizer = WordPieceTokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "film"], True
    )
    task = tasks.TextClassifier(
        BertBackbone(7, 1, 2, 8, 8, max_sequence_length=8),
        tokenizer=tokenizer,
        class_names=["bad", "good"],
        text_pair=False,
    )
    task.save_to_preset(tmp_path / "preset")
    task.export(tmp_path / "exported")
    texts, expected = ["a film", "", "film a a"], task.classify(["a film", "", "film a a"])
    for source in ("preset", "exported"):
        model = serving.open_predictor(tmp_path / source)
        assert model.inputs == ["text"]
        found = model.answers({"text": texts}, batch_size=2)
        scores = [answer["scores"] for answer in found]
        np.testing.assert_allclose(scores, expected["scores"], atol=1e-5)
    with pytest.raises(ValueError, match="is not exported: leave signature=x out"):
        serving.open_predictor(tmp_path / "preset", signature="x")
    with pytest.raises(ValueError, match="has no version 7; it has 1"):
        serving.open_predictor(tmp_path / "exported", version=7)
