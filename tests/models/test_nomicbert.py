"""NomicBERT against transformers' outputs, and the authors' names and configurations."""

import json
import re

import numpy as np
import pytest

from keras_lm import tasks
from keras_lm.models import Backbone, NomicBertBackbone
from keras_lm.models.sizes import estimate

GOLDENS = {"nomic-bert": tasks.MaskedLM, "nomic-bert-seqcls": tasks.TextClassifier}
GOLDENS |= {"nomic-bert-tokencls": tasks.TokenClassifier}
TINY = {"vocabulary_size": 20, "num_layers": 1, "num_heads": 2, "hidden_dim": 8}
TINY |= {"intermediate_dim": 12}
TRANSFORM = "cls.predictions.transform"
TEXTS = ["the film was good", "search_query: was it", "", "Ünïcödé the"]
# As the authors' files name them.
OLD_CONFIG = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "intermediate_size": "n_inner",
    "layer_norm_eps": "layer_norm_epsilon",
    "hidden_dropout_prob": "resid_pdrop",
    "attention_probs_dropout_prob": "attn_pdrop",
    "max_position_embeddings": "n_positions",
}


@pytest.mark.eager
@pytest.mark.parametrize("folder", GOLDENS)
def test_huggingface(folder, assert_equals_huggingface):
    # (The reference's classifier of texts reads what is in the first column, padding or not.)
    assert_equals_huggingface(folder, GOLDENS[folder])


# === Folders ===


@pytest.mark.slow
def test_a_folder_of_sentence_transformers(sentence_folder, encodes_and_learns, bert_tokenizer):
    tokenizer, roles = bert_tokenizer(TEXTS)
    encodes_and_learns(sentence_folder("nomic-bert", tokenizer, roles), tokenizer, TEXTS)


def test_the_authors_form(variant, goldens):
    folder = goldens("nomic-bert")
    stated = json.loads((folder / "config.json").read_text())
    old = {name: stated[new] for new, name in OLD_CONFIG.items()} | dict.fromkeys(OLD_CONFIG, ...)
    old |= {"hidden_act": ..., "activation_function": "swiglu", "rope_parameters": ...}
    old |= {"head_dim": ..., "rotary_emb_base": 50.0, "rotary_emb_fraction": 1.0}
    old |= {"rotary_scaling_factor": None, "use_flash_attn": True, "prenorm": False}
    network = variant("nomic-bert", old, lambda name: name.removeprefix("nomic_"))
    actual = Backbone.from_preset(network)
    expected = Backbone.from_preset(folder)
    assert actual.config == expected.config
    ids = {"token_ids": [[2, 7, 9, 3]], "segment_ids": [[0, 0, 1, 1]]}
    first, second = (model(ids)["sequence_output"] for model in (actual, expected))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    "config, arguments",
    [
        ({"rope_parameters": ...}, {"rope_max_wavelength": 1000.0}),
        (
            {"max_position_embeddings": 40, "n_positions": 60},
            {"max_sequence_length": 60},
        ),
        # Beyond the texts that it was trained with, positions would be scaled.
        (
            {"max_position_embeddings": ..., "n_positions": 60, "rotary_scaling_factor": 2},
            {"max_sequence_length": 2048},
        ),
        ({"hidden_act": ..., "activation_function": "geglu"}, {"activation": "gelu"}),
    ],
)
def test_configurations_that_are_read(assert_read, config, arguments):
    assert_read("nomic-bert", config, arguments)


@pytest.mark.parametrize(
    "config, words",
    [
        ({"qkv_proj_bias": True}, "qkv_proj_bias=True"),
        ({"prenorm": True}, "prenorm=True"),
        ({"use_rms_norm": True}, "use_rms_norm=True"),
        ({"causal": True}, "causal=True"),
        ({"num_experts": 8}, "num_experts=8"),
        ({"rotary_emb_fraction": 0.5}, "rotary_emb_fraction=0.5"),
        ({"rotary_emb_interleaved": True}, "rotary_emb_interleaved=True"),
        ({"hidden_act": ..., "activation_function": "gelu"}, "activation_function='gelu'"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "'dynamic', factor=2.0"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "'linear', factor=2.0"),
    ],
)
def test_what_the_model_does_not_know_is_an_error(variant, config, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        Backbone.from_preset(variant("nomic-bert", config))


def test_heads_have_halves():
    with pytest.raises(ValueError, match="num_heads=2 does not divide hidden_dim=6 into even"):
        NomicBertBackbone(**TINY | {"hidden_dim": 6})


# As transformers counts them.
def test_sizes():
    cls = NomicBertBackbone
    size = cls.SIZES["nomic_bert_base_en_uncased"]
    assert estimate(cls, **size)["parameters"] == 136_731_648


@pytest.mark.eager
def test_a_masked_lm_without_biases_is_refused(variant):
    def without(name):
        return name if name not in ("cls.predictions.bias", f"{TRANSFORM}.dense.bias") else None

    with pytest.raises(ValueError, match=r"missing are .*token_head/bias"):
        tasks.MaskedLM.from_preset(variant("nomic-bert", {}, without), tokenizer=None)
