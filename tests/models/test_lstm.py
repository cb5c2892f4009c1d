"""The stacked LSTM as a language model, a classifier and a tagger, all on raw strings."""

import keras
import numpy as np
import pytest

from keras_lm.models import LSTMBackbone
from keras_lm.tasks import CausalLM, Task, TextClassifier, TokenClassifier
from keras_lm.tokenizers import WordTokenizer, learn_words
from keras_lm.training import AdamW

TEXTS = ["the cat sat on the mat .", "the dog ran on the road .", "a dog sat .", "a cat ran ."]


@pytest.fixture(scope="module")
def tokenizer():
    words = learn_words(TEXTS, 50)
    return WordTokenizer(words, unknown_token="<UNK>", bos_token="<S>", eos_token="</S>")


def make(tokenizer, **options):
    keras.utils.set_random_seed(0)
    options = {"hidden_dim": 16, "dropout": 0.0} | options
    return LSTMBackbone(tokenizer.vocabulary_size, **options)


@pytest.fixture(scope="module")
def language_model(tokenizer):
    """A task that has learnt the texts, and its perplexities while it did."""
    task = CausalLM(make(tokenizer, num_layers=1), tokenizer=tokenizer)
    task.compile(optimizer=AdamW(0.1))
    return task, task.fit(TEXTS, epochs=30, verbose=0).history["perplexity"]


def test_it_is_a_stack_of_lstms(tokenizer):
    """Keras's own, with our weights, give the same; except after a padded position."""
    backbone = make(tokenizer)
    ids = np.array([[3, 5, 4, 0, 0], [6, 3, 7, 8, 4]])
    mask = (ids > 0).astype("int32")
    x = np.array(backbone.token_embedding(ids))
    for i in range(2):
        layer = keras.layers.LSTM(16, return_sequences=True, zero_output_for_mask=True)
        layer.build(x.shape)
        layer.set_weights(backbone.get_layer(f"lstm_{i}").get_weights())
        x = layer(x, mask=mask > 0)
    outputs = backbone({"token_ids": ids, "padding_mask": mask})
    np.testing.assert_allclose(outputs["sequence_output"], x, atol=1e-5)
    np.testing.assert_allclose(outputs["states"][1]["hidden"][0], x[0, 2], atol=1e-5)
    dropped = [
        backbone_({"token_ids": ids, "padding_mask": mask}, training=True)["sequence_output"]
        for backbone_ in (backbone, make(tokenizer, dropout=0.5))
    ]
    np.testing.assert_allclose(dropped[0], x, atol=1e-5)
    assert np.abs(dropped[1] - x).max() > 0.01


@pytest.mark.slow
@pytest.mark.eager
def test_a_language_model_learns_from_strings_and_continues_them(language_model):
    task, perplexities = language_model
    assert perplexities[-1] < 2.2 < 10 < perplexities[0]
    texts = task.generate(["the dog ran on", "a cat"], max_new_tokens=8)
    with pytest.raises(ValueError, match="pass prompt_lookup=0"):
        task.generate("a cat", prompt_lookup=2)
    assert texts[0] in ("the mat .", "the road .") and texts[1] in ("sat .", "ran .")
    scores = task.score(["the cat sat on the mat .", "mat the on sat cat the ."])["perplexity"]
    assert scores[0] < 3 < 10 < scores[1]


@pytest.mark.slow
@pytest.mark.eager
def test_preset_round_trip(language_model, tmp_path):
    task, _ = language_model
    prompts = ["the dog ran on", "a cat", ""]
    expected = task.generate(prompts)
    task.save_to_preset(tmp_path / "preset")
    again = Task.from_preset(tmp_path / "preset")
    assert type(again.backbone) is LSTMBackbone
    assert again.backbone.get_config() == task.backbone.get_config()
    assert again.generate(prompts) == expected


@pytest.mark.eager
def test_a_bidirectional_stack_classifies_and_tags(tokenizer):
    backbone = make(tokenizer, bidirectional=True)
    task = TextClassifier(backbone, tokenizer=tokenizer, class_names=["cat", "dog"])
    task.compile(optimizer=AdamW(0.1), run_eagerly=True)
    labels = ["cat", "dog", "dog", "cat"]
    for _ in range(4):
        task.train_on_batch(TEXTS, labels)
    assert list(task.classify(TEXTS)["labels"]) == labels
    tagger = TokenClassifier(backbone, tokenizer=tokenizer, num_classes=3)
    assert tagger.predict_on_batch(TEXTS).shape == (4, 7, 3)
    with pytest.raises(ValueError, match="reads the word that it would predict"):
        CausalLM(backbone, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="LSTMBackbone has no attention"):
        backbone.attention_probabilities({"token_ids": [[1]]})
