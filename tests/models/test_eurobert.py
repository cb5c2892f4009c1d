"""EuroBERT against transformers' outputs, with shared heads, and folders with words of Llama 3."""

import re

import numpy as np
import pytest
import tokenizers

from keras_lm import tasks
from keras_lm.inspection import inspect_checkpoint
from keras_lm.models import Backbone, EuroBertBackbone
from keras_lm.models.sizes import estimate

GOLDENS = {"eurobert": tasks.MaskedLM, "eurobert-seqcls": tasks.TextClassifier}
GOLDENS |= {"eurobert-seqcls-mean": tasks.TextClassifier}
GOLDENS |= {"eurobert-tokencls": tasks.TokenClassifier}
TINY = {"vocabulary_size": 20, "num_layers": 2, "num_heads": 4, "hidden_dim": 8}
TINY |= {"intermediate_dim": 12, "max_sequence_length": 64}
# How Llama 3's tokenizer.json splits text into words.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ROLES = {
    "bos_token": "<|begin_of_text|>",
    "eos_token": "<|end_of_text|>",
    "mask_token": "<|mask|>",
    "pad_token": "<|pad|>",
}
TEXTS = ["the film was good", "it's 12345 times", "  two\n lines ", "Ünïcödé ☕", ""]


@pytest.mark.eager
@pytest.mark.parametrize("folder", GOLDENS)
def test_huggingface(folder, assert_equals_huggingface):
    assert_equals_huggingface(folder, GOLDENS[folder])


def test_the_first_token_is_read_wherever_it_is():
    backbone = EuroBertBackbone(**TINY, classifier_pooling="first")
    task = tasks.TextClassifier(backbone, num_classes=2)
    alone = task({"token_ids": [[2, 7, 3]]})
    left = {"token_ids": [[0, 0, 2, 7, 3]], "padding_mask": [[0, 0, 1, 1, 1]]}
    np.testing.assert_allclose(task(left), alone, atol=1e-5)


# === Folders ===


def llama_tokenizer():
    """A tokenizer of the package `tokenizers`, as EuroBERT's tokenizer.json describes it."""
    splitters, processors = tokenizers.pre_tokenizers, tokenizers.processors
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = splitters.Sequence(
        [
            splitters.Split(tokenizers.Regex(WORDS), behavior="isolated"),
            splitters.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=splitters.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 9, trainer)
    tokenizer.add_special_tokens([*ROLES.values()])
    begin, end = ROLES["bos_token"], ROLES["eos_token"]
    template = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} {begin}:1 $B:1 {end}:1",
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in (begin, end)],
    )
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(), template])
    return tokenizer


@pytest.mark.eager
def test_a_folder_of_sentence_transformers(sentence_folder, encodes_and_learns):
    tokenizer = llama_tokenizer()
    encodes_and_learns(sentence_folder("eurobert", tokenizer, ROLES), tokenizer, TEXTS)


# === Configurations ===


@pytest.mark.parametrize(
    "config, arguments",
    [
        # As the authors' files have them.
        (
            {"rope_parameters": ..., "rope_theta": 250000, "rope_scaling": None},
            {"rope_max_wavelength": 250000},
        ),
        ({"rope_parameters": ..., "pretraining_tp": 1}, {"rope_max_wavelength": 10000.0}),
        ({"head_dim": 8, "num_attention_heads": 4}, {"head_dim": 8, "num_key_value_heads": 2}),
        ({"classifier_pooling": "bos"}, {"classifier_pooling": "first"}),
    ],
)
def test_configurations_that_are_read(assert_read, config, arguments):
    assert_read("eurobert", config, arguments)


@pytest.mark.parametrize(
    "config, words",
    [
        ({"attention_bias": True}, "attention_bias=True"),
        ({"mlp_bias": True}, "mlp_bias=True"),
        ({"hidden_dropout": 0.1}, "hidden_dropout=0.1"),
        ({"classifier_pooling": "max"}, "classifier_pooling='max'"),
        ({"num_key_value_heads": 3}, "num_key_value_heads=3 does not divide num_heads=4"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_parameters": ...}, "'linear'"),
        # Where both forms are stated, transformers follows the older one.
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "'linear', factor=2.0"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "'yarn', factor=4.0"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "factor=0.5"),
    ],
)
def test_what_the_model_does_not_know_is_an_error(variant, config, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        Backbone.from_preset(variant("eurobert", config))


def test_an_output_matrix_that_is_the_embedding(variant, goldens):
    tied = variant(
        "eurobert", {"tie_word_embeddings": True}, lambda n: n if "lm" not in n else None
    )
    task = tasks.MaskedLM.from_preset(tied, tokenizer=None)
    assert task.backbone.config["tie_embeddings"]
    ids = {"token_ids": [[2, 7, 9, 3]]}
    table = np.asarray(task.backbone.token_embedding.embeddings)
    expected = task.backbone(ids)["sequence_output"] @ table.T
    np.testing.assert_allclose(task(ids), expected, atol=1e-5)


def test_its_masked_lm_is_named(goldens):
    assert inspect_checkpoint(goldens("eurobert"))["heads"] == ["masked language model"]
    assert inspect_checkpoint(goldens("eurobert-seqcls"))["heads"] == ["classification"]


def test_heads_have_halves():
    with pytest.raises(ValueError, match="head_dim=5 is odd"):
        EuroBertBackbone(**TINY, head_dim=5)
    with pytest.raises(ValueError, match="num_heads=4 does not divide hidden_dim=20 into even"):
        EuroBertBackbone(**TINY | {"hidden_dim": 20})


# As transformers counts them.
@pytest.mark.parametrize(
    "size, parameters", [("eurobert_210m", 211_766_016), ("eurobert_610m", 607_874_688)]
)
def test_sizes(size, parameters):
    cls = EuroBertBackbone
    assert estimate(cls, **cls.SIZES[size])["parameters"] == parameters
