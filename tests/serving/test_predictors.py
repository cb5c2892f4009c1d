"""Asking a preset and its exports from Python, by the same method."""

import numpy as np
import pytest

from keras_lm import serving
from keras_lm.models import GPT2Backbone
from keras_lm.serving.client import Client, ServerError
from keras_lm.serving.predictors import open_litert
from keras_lm.serving.server import Server
from keras_lm.tasks import CausalLM
from keras_lm.tokenizers import train_vocabulary


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


@pytest.mark.slow
def test_a_tflite_writes(tmp_path):
    pytest.importorskip("ai_edge_litert", reason="needs litert")
    letters = train_vocabulary("byte_pair", 290, texts=["the cat sat on the mat ."] * 3)
    backbone = GPT2Backbone(letters.vocabulary_size, 1, 2, 16, 32, max_sequence_length=64)
    random = np.random.default_rng(1)
    for weight in backbone.trainable_weights:
        weight.assign_add(random.normal(size=weight.shape, scale=0.4))
    task = CausalLM(backbone, tokenizer=letters)
    path = task.export(tmp_path / "writer.tflite", tokenizer="bytes")
    texts = ["the cat", "", "the mat sat"]

    def written(model):
        return [a["text"].decode("utf-8", "replace") for a in model.answers({"prompt": texts}, 2)]

    assert written(serving.open_predictor(path)) == task.generate(texts, max_new_tokens=50)
    assert written(open_litert(path, max_new_tokens=5)) == task.generate(texts, max_new_tokens=5)
    draws = {"temperature": 0.9, "seed": 3, "top_k": 9, "max_new_tokens": 7}
    assert written(open_litert(path, **draws)) == task.generate(texts, **draws)
    with pytest.raises(ValueError, match=r"'generate' does not take top_k, but max_new_tokens"):
        open_litert(path, top_k=3)

    with Server(path) as server:
        client = Client(server.rest_url, "writer")
        answer = client.predict({"prompt": texts, "max_new_tokens": 5}, "generate")
        served = [
            t.decode("utf-8", "replace") if isinstance(t, bytes) else t for t in answer["text"]
        ]
        assert served == task.generate(texts, max_new_tokens=5)
        with pytest.raises(ServerError, match="at most"):
            client.predict({"prompt": texts, "max_new_tokens": 2**16}, "generate")
