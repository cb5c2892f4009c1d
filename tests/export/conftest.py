"""A tiny BERT with random weights, its vocabulary, and texts that are hard to export for."""

import keras
import pytest

from keras_lm.models import BertBackbone
from keras_lm.tokenizers import WordPieceTokenizer

VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("a", "the", "film", "song", "was", "is", "good", "bad", "loud", "un", "中"),
    *("##ly", "##er", "##s", "##aff", "##able", ".", ",", "!", "?"),
]

TEXTS = [
    "the film was good",
    "",
    "Unaffable films, louder and LOUDER!",
    b"a bad \xff\xfe song \xf0\x9f",
    "the good song " * 500,
    "Ünaffable 中文 song\u200d\u0000s",
]


@pytest.fixture(scope="session")
def texts():
    return TEXTS


@pytest.fixture(scope="session")
def tokenizer():
    return WordPieceTokenizer(VOCABULARY, lowercase=True)


@pytest.fixture(scope="session")
def make_backbone():
    """`make_backbone(**arguments)` is a BertBackbone of one block, its weights far from zero."""

    def make(**arguments):
        keras.utils.set_random_seed(1)
        sizes = {
            "vocabulary_size": len(VOCABULARY),
            "num_layers": 1,
            "num_heads": 2,
            "hidden_dim": 16,
            "intermediate_dim": 32,
            "max_sequence_length": 24,
        }
        backbone = BertBackbone(**sizes | arguments)
        for weight in backbone.weights:
            weight.assign_add(keras.random.normal(weight.shape, stddev=0.3, dtype=weight.dtype))
        return backbone

    return make
