"""GTE against transformers' outputs; the authors' form, with scaled positions, against our program.

The authors' code is not part of transformers: the golden of their form was made by a small program
of our own, from what their code does.
"""

import re

import numpy as np
import pytest
import tokenizers
from tiny import inputs_of

from keras_lm import tasks
from keras_lm.models import Backbone, GteBackbone
from keras_lm.models.sizes import estimate

GOLDENS = {"gte": tasks.MaskedLM, "gte-seqcls": tasks.TextClassifier}
GOLDENS |= {"gte-tokencls": tasks.TokenClassifier}
TEXTS = ["the film was good", "query: was it", "", "Ünïcödé the", "  two  "]
ROLES = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "mask_token": "<mask>",
    "cls_token": "<s>",
    "sep_token": "</s>",
}


@pytest.mark.eager
@pytest.mark.parametrize("folder", GOLDENS)
def test_huggingface(folder, assert_equals_huggingface):
    assert_equals_huggingface(folder, GOLDENS[folder])


@pytest.mark.eager
def test_the_authors_form(goldens, assert_equal, hidden_states):
    arrays = np.load(goldens("gte-ntk") / "expected.npz")
    backbone = Backbone.from_preset(goldens("gte-ntk"))
    assert type(backbone) is GteBackbone
    assert backbone.config["rope_scaling_factor"] == 4
    inputs = inputs_of(arrays)
    assert_equal(hidden_states(backbone, inputs), arrays["out.hidden_states"])
    assert_equal(backbone.attention_probabilities(inputs), arrays["out.attentions"])


# === Folders ===


def xlm_roberta_tokenizer():
    """A tokenizer of the package `tokenizers`, as XLM-R's tokenizer.json describes it."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram())
    metaspace = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [tokenizers.pre_tokenizers.WhitespaceSplit(), metaspace]
    )
    tokenizer.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=60, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 9, trainer)
    tokenizer.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True)])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return tokenizer


def test_a_folder_of_sentence_transformers(sentence_folder, encodes_and_learns):
    tokenizer = xlm_roberta_tokenizer()
    folder = sentence_folder("gte-ntk", tokenizer, ROLES)
    encodes_and_learns(folder, tokenizer, TEXTS)


@pytest.mark.parametrize(
    "config, arguments",
    [
        ({}, {"rope_max_wavelength": 50.0, "rope_scaling_factor": 4.0}),
        ({"rope_scaling": None}, {"rope_scaling_factor": 1.0}),
        # As the authors' code has them by default.
        (
            {"rope_theta": ..., "max_position_embeddings": ...},
            {"rope_max_wavelength": 10000.0, "max_sequence_length": 2048},
        ),
    ],
)
def test_configurations_that_are_read(variant, config, arguments):
    actual = Backbone.from_preset(variant("gte-ntk", config)).config
    assert {name: actual[name] for name in arguments} == arguments


@pytest.mark.parametrize(
    "config, words",
    [
        ({"position_embedding_type": "absolute"}, "position_embedding_type='absolute'"),
        ({"layer_norm_type": "rms_norm"}, "layer_norm_type='rms_norm'"),
        ({"logn_attention_scale": True}, "logn_attention_scale=True"),
        ({"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.5}}, "mixed_b=0.5"),
        ({"rope_scaling": {"type": "ntk", "factor": "2"}}, "factor='2'"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "'linear', factor=2.0"),
    ],
)
def test_what_the_model_does_not_know_is_an_error(variant, config, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        Backbone.from_preset(variant("gte-ntk", config))


def test_scaled_positions_are_not_written(goldens, tmp_path):
    backbone = Backbone.from_preset(goldens("gte-ntk"))
    with pytest.raises(ValueError, match=r"rope_scaling_factor=4\.0, and"):
        backbone.save_to_huggingface(tmp_path / "new")


# As their cards count them.
@pytest.mark.parametrize(
    "size, parameters",
    [
        ("gte_base_en_v1.5", 136_776_192),
        ("gte_large_en_v1.5", 434_139_136),
        ("gte_base_multi", 305_368_320),
    ],
)
def test_sizes(size, parameters):
    cls = GteBackbone
    assert estimate(cls, **cls.SIZES[size])["parameters"] == parameters
