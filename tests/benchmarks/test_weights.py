"""The comparison of stored weights: how exports are opened and asked."""

import numpy as np
import pytest
import weights

from keras_lm import models, tasks, tokenizers


@pytest.mark.thorough
@pytest.mark.parametrize("format", ["saved_model", "litert"])
def test_exports_of_both_formats_are_asked(format, tmp_path):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "film", "good"]
    tokenizer = tokenizers.WordPieceTokenizer(vocabulary, lowercase=True)
    backbone = models.BertBackbone(len(vocabulary), 1, 2, 8, 16, max_sequence_length=8)
    task = tasks.TextClassifier(backbone, tokenizer=tokenizer, num_classes=2)
    name = "model.tflite" if format == "litert" else "model"
    serve = weights.open_export(task.export(tmp_path / name, format=format))
    texts = ["good film", "film"]
    np.testing.assert_allclose(serve(texts)["scores"], task.classify(texts)["scores"], atol=1e-5)
    assert weights.seconds(serve, texts) > 0
