"""The small pieces that tests share. Look here first: most tests need no model of their own.

`MODELS`, `ENCODER_DECODERS` and `TASKS` are what the tests of all models and of all tasks run over:
a new model or a new task joins all of them by a line here. `tokenizer_of("wordpiece")` and
`backbone_of("BertBackbone")`, fixtures in conftest.py, hand out one object for all tests of a
process: read only. A test that trains or changes one makes its own, by `make_backbone`.
"""

import itertools
import re
from pathlib import Path

import keras
import numpy as np
import pytest

from keras_lm import models
from keras_lm.tokenizers import (
    BytePairTokenizer,
    CharacterTokenizer,
    GPTTokenizer,
    SentencePieceTokenizer,
    WordPieceTokenizer,
    WordTokenizer,
)

GOLDENS = Path(__file__).parent / "goldens"

GOOD = ["the film was good", "great story", "i loved it", "a very nice cast"]
BAD = ["the film was bad", "awful story", "i hated it", "a very dull cast"]
WORDS = ["the", "film", "was", "good", "great", "story", "loved", "it", "very", "bad", "dull"]
SPECIAL_WORDS = ["<unk>", "<pad>", "xxbos", "xxfld"]

# === Goldens ===

# The inputs of Hugging Face's models → ours.
RENAMED = {
    "input_ids": "token_ids",
    "token_type_ids": "segment_ids",
    "attention_mask": "padding_mask",
}


def inputs_of(arrays):
    """Return the inputs of a golden, `expected.npz`, under our names, int32."""
    stored = {f"in.{theirs}": ours for theirs, ours in RENAMED.items()}
    return {ours: arrays[n].astype("int32") for n, ours in stored.items() if n in arrays}


def assert_equal(actual, expected):
    """The family's tolerance: 5e-5, and 1e-5 of the value's size; outputs must vary, too."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    assert expected.size < 3 or expected.std() > 1e-3
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=5e-5)


def hidden_states(backbone, inputs):
    """Return the hidden states of a backbone, (depths, B, S, D)."""
    model = keras.Model(backbone.inputs, backbone.hidden_states)
    return np.stack(model(backbone.complete(inputs)))


def thorough(*names):
    """Return parameters of a test that only `make thorough` tries."""
    return [pytest.param(name, marks=pytest.mark.thorough) for name in names]


# === Tokenizers ===


def mpnet_tokenizer():
    """BERT's entries between MPNet's own, as in its vocab.txt."""
    entries = TOKENIZERS["wordpiece"]().vocabulary
    return WordPieceTokenizer(
        ["<s>", "<pad>", "</s>", "<unk>", *entries, "<mask>"],
        lowercase=True,
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        mask_token="<mask>",
    )


def modernbert_tokenizer():
    """BERT's special tokens after GPT-2's entries, and text put into Unicode's normal form."""
    entries = TOKENIZERS["bytebpe-gpt2"]().vocabulary
    return BytePairTokenizer(
        [*entries, "[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"],
        GOLDENS / "tokenizers/bytebpe-gpt2/merges.txt",
        unknown_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        mask_token="[MASK]",
        lstrip_tokens=["[MASK]"],
        normalization="NFC",
    )


TOKENIZERS = {
    "wordpiece": lambda: WordPieceTokenizer.from_files(GOLDENS / "tokenizers/wordpiece-uncased"),
    "wordpiece-mpnet": lambda: mpnet_tokenizer(),
    "bytebpe-modernbert": lambda: modernbert_tokenizer(),
    "bytebpe-gpt2": lambda: BytePairTokenizer.from_files(GOLDENS / "tokenizers/bytebpe-gpt2"),
    "bytebpe-roberta": lambda: BytePairTokenizer.from_files(GOLDENS / "tokenizers/bytebpe-roberta"),
    "bpe-gpt1": lambda: GPTTokenizer.from_files(GOLDENS / "tokenizers/bpe-gpt1"),
    "sentencepiece-albert": lambda: SentencePieceTokenizer.from_files(
        GOLDENS / "tokenizers/sentencepiece-albert"
    ),
    "sentencepiece-t5": lambda: SentencePieceTokenizer.from_files(
        GOLDENS / "tokenizers/sentencepiece-t5"
    ),
    "sentencepiece-xlnet": lambda: SentencePieceTokenizer.from_files(
        GOLDENS / "tokenizers/sentencepiece-xlnet"
    ),
    "sentencepiece-deberta": lambda: SentencePieceTokenizer(
        GOLDENS / "tokenizers/sentencepiece-t5/spiece.model",
        **{"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"},
        **{"pad_token": "<pad>", "bos_token": "[CLS]", "eos_token": "[SEP]"},
        additional_special_tokens=["</s>"],
        added_tokens=["[CLS]", "[SEP]", "[MASK]"],
    ),
    "words": lambda: WordTokenizer(
        SPECIAL_WORDS + WORDS, "<unk>", "<pad>", additional_special_tokens=SPECIAL_WORDS[2:]
    ),
    "characters": lambda: CharacterTokenizer(6),
}

# === Trees ===


def all_trees(start, end):
    """Yield every binary tree over the words from one place to another, as a list of spans."""
    if end - start == 1:
        yield [(start, end)]
    for middle in range(start + 1, end):
        for left, right in itertools.product(all_trees(start, middle), all_trees(middle, end)):
            yield [(start, end), *left, *right]


# === Models that read texts ===

SIZE = {"num_heads": 2, "hidden_dim": 16, "intermediate_dim": 24, "dropout": 0.0}
TRANSFORMER = {"num_layers": 1, "max_sequence_length": 32, **SIZE}


def elmo():
    return models.ElmoBackbone(
        num_layers=1, hidden_dim=8, cell_dim=8, filters=[(1, 4), (2, 4)], characters_per_word=6
    )


def cove(vocabulary_size):
    return models.CoveBackbone(1, embedding_dim=6, hidden_dim=8, vocabulary_size=vocabulary_size)


# A model → its tokenizer, and how it is made for a vocabulary of some size.
MODELS = {
    "BertBackbone": ("wordpiece", lambda n: models.BertBackbone(n, **TRANSFORMER)),
    "RobertaBackbone": ("bytebpe-roberta", lambda n: models.RobertaBackbone(n, **TRANSFORMER)),
    "MPNetBackbone": ("wordpiece-mpnet", lambda n: models.MPNetBackbone(n, **TRANSFORMER)),
    "ModernBertBackbone": (
        "bytebpe-modernbert",
        lambda n: models.ModernBertBackbone(
            n, 3, 2, 16, 24, attention_windows=[None, 4], max_sequence_length=32
        ),
    ),
    "JinaBertBackbone": (
        "wordpiece",
        lambda n: models.JinaBertBackbone(n, query_key_norm=True, **TRANSFORMER),
    ),
    "GteBackbone": (
        "wordpiece",
        lambda n: models.GteBackbone(n, rope_scaling_factor=2.0, **TRANSFORMER),
    ),
    "NomicBertBackbone": ("wordpiece", lambda n: models.NomicBertBackbone(n, **TRANSFORMER)),
    "EuroBertBackbone": (
        "bytebpe-roberta",
        lambda n: models.EuroBertBackbone(
            n, 2, 4, 16, 24, num_key_value_heads=2, max_sequence_length=32
        ),
    ),
    "DistilBertBackbone": ("wordpiece", lambda n: models.DistilBertBackbone(n, **TRANSFORMER)),
    "AlbertBackbone": (
        "sentencepiece-albert",
        lambda n: models.AlbertBackbone(n, embedding_dim=8, **TRANSFORMER),
    ),
    "ElectraBackbone": (
        "wordpiece",
        lambda n: models.ElectraBackbone(n, embedding_dim=12, **TRANSFORMER),
    ),
    "DebertaV3Backbone": (
        "sentencepiece-deberta",
        lambda n: models.DebertaV3Backbone(
            n, bucket_size=8, conv_kernel_size=3, conv_activation="gelu", **TRANSFORMER
        ),
    ),
    "SpanBertBackbone": ("wordpiece", lambda n: models.SpanBertBackbone(n, **TRANSFORMER)),
    "TinyBertBackbone": ("wordpiece", lambda n: models.TinyBertBackbone(n, **TRANSFORMER)),
    "ErnieBackbone": (
        "wordpiece",
        lambda n: models.ErnieBackbone(
            n, 2, 2, 16, 24, entity_dim=8, num_entity_heads=2, max_sequence_length=32, dropout=0.0
        ),
    ),
    "GPTBackbone": ("bpe-gpt1", lambda n: models.GPTBackbone(n, **TRANSFORMER)),
    "GPT2Backbone": ("bytebpe-gpt2", lambda n: models.GPT2Backbone(n, **TRANSFORMER)),
    "GPT3Backbone": ("bytebpe-gpt2", lambda n: models.GPT3Backbone(n, **TRANSFORMER)),
    "GPTNeoBackbone": ("bytebpe-gpt2", lambda n: models.GPTNeoBackbone(n, **TRANSFORMER)),
    "TransformerXLBackbone": (
        "words",
        lambda n: models.TransformerXLBackbone(
            n, 2, 2, 16, 24, cutoffs=[4, 9], div_val=2, memory_length=5, dropout=0.0
        ),
    ),
    "XLNetBackbone": (
        "sentencepiece-xlnet",
        lambda n: models.XLNetBackbone(n, 1, memory_length=4, attention_dropout=0.0, **SIZE),
    ),
    "ReformerBackbone": (
        "sentencepiece-t5",
        lambda n: models.ReformerBackbone(
            n,
            2,
            **SIZE,
            local_chunk_length=8,
            lsh_chunk_length=8,
            local_attention_dropout=0.0,
            axial_shape=[4, 8],
            axial_dims=[4, 12],
            max_sequence_length=32,
        ),
    ),
    "LSTMBackbone": ("words", lambda n: models.LSTMBackbone(n, 1, hidden_dim=12, dropout=0.0)),
    "AWDLSTMBackbone": (
        "words",
        lambda n: models.AWDLSTMBackbone(n, num_layers=2, hidden_dim=12, embedding_dim=8),
    ),
    "ElmoBackbone": ("characters", lambda n: elmo()),
    "CoveBackbone": ("words", cove),
    "PairLSTMBackbone": (
        "words",
        lambda n: models.PairLSTMBackbone(n, 6, hidden_dim=8, num_layers=1, pooled_dim=8),
    ),
    "PairCBOWBackbone": ("words", lambda n: models.PairCBOWBackbone(n, 6, pooled_dim=8)),
    "EsimBackbone": ("words", lambda n: models.EsimBackbone(n, 6, hidden_dim=8)),
    "TagLMBackbone": (
        "words",
        lambda n: models.TagLMBackbone(cove(n), embedding_dim=6, hidden_dim=8, dropout=0.0),
    ),
    "WordVectorBackbone": ("words", lambda n: models.WordVectorBackbone(n, 8)),
    "T5EncoderBackbone": (
        "sentencepiece-t5",
        lambda n: models.T5EncoderBackbone(n, 1, 2, 16, 24, num_buckets=8, dropout=0.0),
    ),
}
# One of each kind: what does not depend on the model is shown of these.
REPRESENTATIVES = (
    "BertBackbone",
    "GPT2Backbone",
    "AWDLSTMBackbone",
    "ElmoBackbone",
    "WordVectorBackbone",
    "T5EncoderBackbone",
)


def make_backbone(name, vocabulary_size, spread=True):
    """Return a new backbone; with `spread`, its rows differ as much as those of a trained one."""
    backbone = MODELS[name][1](vocabulary_size)
    for weight in backbone.trainable_weights if spread else ():
        weight.assign_add(keras.random.normal(weight.shape, stddev=0.2))
    return backbone


def make_still_task(cls, tokenizer, **arguments):
    """Return a task over a small BERT, whose weights `fit` does not change; nothing is traced."""
    backbone = make_backbone("BertBackbone", tokenizer.vocabulary_size)
    task = cls(backbone, tokenizer=tokenizer, **arguments)
    task.compile(optimizer=keras.optimizers.SGD(0.0), run_eagerly=True)
    return task


# === Encoder-decoders ===


def rnn(**arguments):
    return models.RNNEncoderDecoderBackbone(
        50, 1, hidden_dim=16, num_decoder_layers=2, dropout=0.0, **arguments
    )


# Each has one block in the encoder, and two in the decoder; " with …" are other arguments.
ENCODER_DECODERS = {
    "T5Backbone": lambda: models.T5Backbone(
        50, 1, head_dim=6, num_decoder_layers=2, num_buckets=8, max_distance=6, **SIZE
    ),
    "T5Backbone 1.1": lambda: models.T5Backbone(
        50, 1, num_decoder_layers=2, gated=True, tie_embeddings=False, **SIZE
    ),
    "TransformerBackbone": lambda: models.TransformerBackbone(
        50, 1, num_decoder_layers=2, max_sequence_length=9, **SIZE
    ),
    "TransformerBackbone with more": lambda: models.TransformerBackbone(
        50, 1, num_decoder_layers=2, decoder_vocabulary_size=48, final_norms=True, **SIZE
    ),
    "MarianBackbone": lambda: models.MarianBackbone(50, 1, num_decoder_layers=2, **SIZE),
    "MarianBackbone with more": lambda: models.MarianBackbone(
        50, 1, num_decoder_layers=2, decoder_vocabulary_size=48, scale_embedding=False, **SIZE
    ),
    "Tensor2TensorBackbone": lambda: models.Tensor2TensorBackbone(
        50, 1, num_decoder_layers=2, **SIZE
    ),
    "Tensor2TensorBackbone with more": lambda: models.Tensor2TensorBackbone(
        *(50, 1),
        num_decoder_layers=2,
        decoder_vocabulary_size=48,
        tie_embeddings=False,
        pre_norm=False,
        target_space=None,
        **SIZE,
    ),
    "RNNEncoderDecoderBackbone": lambda: rnn(input_feeding=True),
    "RNNEncoderDecoderBackbone additive": lambda: rnn(cell="gru", attention="additive"),
    "RNNEncoderDecoderBackbone of one direction": lambda: rnn(
        attention=None, bidirectional=False, reverse_source=True, decoder_vocabulary_size=48
    ),
}

# === Parts of others, whose code is tested with the whole ===

PARTS = {
    "ElectraGeneratorBackbone": lambda: make_backbone("ElectraBackbone", 1200).make_generator(),
    "ElmoForwardBackbone": None,  # tests/export/test_recurrent_generation.py
    "RNNEncoderBackbone": lambda: rnn().encoder_backbone(),
    "TransformerEncoderBackbone": lambda: ENCODER_DECODERS[
        "TransformerBackbone"
    ]().encoder_backbone(),
    "MarianEncoderBackbone": lambda: ENCODER_DECODERS["MarianBackbone"]().encoder_backbone(),
    "Tensor2TensorEncoderBackbone": lambda: ENCODER_DECODERS[
        "Tensor2TensorBackbone"
    ]().encoder_backbone(),
}

# === Tasks ===

CHOICES = [["good", "bad"]] * 4
# A task → its arguments, and the four texts that it is asked.
TASKS = {
    "TextClassifier": ({"num_classes": 3}, {"text": GOOD}),
    "TextRegressor": ({}, {"text": GOOD}),
    "TokenClassifier": ({"class_names": ["O", "X"]}, {"text": GOOD}),
    "ConstituencyParser": ({"class_names": ["NP", "S"], "hidden_dim": 8}, {"text": GOOD}),
    "CoreferenceResolver": ({"max_span_width": 2, "hidden_dim": 4}, {"text": GOOD}),
    "MultipleChoice": ({}, {"text": GOOD, "choices": CHOICES}),
    "QuestionAnswerer": ({}, {"question": GOOD, "context": BAD}),
    "MaskedLM": ({}, {"text": GOOD}),
    "SparseEncoder": ({}, {"text": GOOD}),
    "CausalLM": ({}, {"prompt": GOOD}),
    "Seq2SeqLM": ({}, {"text": GOOD}),
    "FeatureExtractor": ({}, {"text": GOOD}),
    # Not all models have a mask to expand queries by.
    "MultiVectorEncoder": ({"query_length": 8, "expand_queries": False}, {"text": GOOD}),
}


def tasks_over(backbone, tokenizer=None):
    """Return a task of every kind that a model has a head for: a dict of their names."""
    from keras_lm import tasks

    made = {}
    for name, (arguments, _) in TASKS.items():
        try:
            made[name] = getattr(tasks, name)(backbone, tokenizer=tokenizer, **arguments)
        except ValueError as error:
            refused = ("has no head", "no special token", "has no mask token", "takes no token_ids")
            if not any(words in str(error) for words in refused):
                raise
    return made


def tasks_in_the_table(name):
    """Return the tasks that docs/models.md gives a model, which `python docs/tables.py` writes."""
    page = (Path(__file__).parents[1] / "docs" / "models.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| `{name}` \| [^|]* \| ((?:\w+, )*\w+) \|$", page, re.MULTILINE)
    return [task for task in row.split(", ") if task in TASKS]
