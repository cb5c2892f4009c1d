"""JinaBERT, in both forms, against a small program of our own, and what its folders may not say.

The authors' code is not part of transformers: the goldens were made by a program of our own, from
what their code does.
"""

import re

import numpy as np
import pytest

from keras_lm import tasks
from keras_lm.models import Backbone, BertBackbone, JinaBertBackbone
from keras_lm.models.jinabert import slopes_of_heads
from keras_lm.models.sizes import estimate

TEXTS = ["the film was good", "was it", "", "Ünïcödé the"]


@pytest.mark.eager
@pytest.mark.parametrize("folder", ["jinabert", "jinabert-normed"])
def test_reference(folder, goldens, assert_equal, hidden_states):
    """In the goldens, one row has padding on the right, and one on the left."""
    arrays = np.load(goldens(folder) / "expected.npz")
    names = {"input_ids": "token_ids", "attention_mask": "padding_mask"}
    names |= {"token_type_ids": "segment_ids"}
    inputs = {ours: arrays[f"in.{theirs}"].astype("int32") for theirs, ours in names.items()}
    backbone = Backbone.from_preset(goldens(folder))
    assert type(backbone) is JinaBertBackbone
    assert_equal(hidden_states(backbone, inputs), arrays["out.hidden_states"])
    assert_equal(backbone.attention_probabilities(inputs), arrays["out.attentions"])
    if "out.logits" in arrays:
        task = tasks.MaskedLM.from_preset(goldens(folder), tokenizer=None)
        assert_equal(task(inputs), arrays["out.logits"])


def test_slopes():
    np.testing.assert_array_equal(slopes_of_heads(8), 2.0 ** -np.arange(1, 9))
    more = 2.0 ** -np.array([0.5, 1.5, 2.5, 3.5])
    expected = np.concatenate([2.0 ** -np.arange(1, 9), more]).astype("float32")
    np.testing.assert_array_equal(slopes_of_heads(12), expected)


@pytest.mark.slow
@pytest.mark.eager
def test_a_folder_of_sentence_transformers(sentence_folder, encodes_and_learns, bert_tokenizer):
    tokenizer, roles = bert_tokenizer(TEXTS)
    encodes_and_learns(sentence_folder("jinabert-normed", tokenizer, roles), tokenizer, TEXTS)


@pytest.mark.parametrize(
    "config, words",
    [
        ({"feed_forward_type": "original"}, "feed_forward_type='original'"),
        ({"hidden_act": "relu"}, "hidden_act='relu'"),
    ],
)
def test_what_the_model_does_not_know_is_an_error(variant, config, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        Backbone.from_preset(variant("jinabert", config))


def test_it_is_no_bert(variant):
    with pytest.raises(ValueError, match="position_embedding_type='alibi'"):
        BertBackbone.from_preset(variant("bert", {"position_embedding_type": "alibi"}))


# As their cards count them, without the pooler.
@pytest.mark.parametrize(
    "size, parameters",
    [
        ("jina_v2_small_en", 32_428_032),
        ("jina_v2_base_en", 136_777_728),
        ("jina_v2_base_code", 160_278_528),
    ],
)
def test_sizes(size, parameters):
    cls = JinaBertBackbone
    assert estimate(cls, **cls.SIZES[size])["parameters"] == parameters
