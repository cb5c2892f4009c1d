"""Tokenizers: strings to ids and back, in the graph.

A module is imported when its class is first used, or when a source names the class.
"""

import importlib
from typing import TYPE_CHECKING

from keras_lm.utils.registry import TOKENIZER_MODULES

if TYPE_CHECKING:
    from keras_lm.tokenizers.byte_pair import BytePairTokenizer
    from keras_lm.tokenizers.characters import CharacterTokenizer
    from keras_lm.tokenizers.gpt import GPTTokenizer
    from keras_lm.tokenizers.linking import EntityTokenizer
    from keras_lm.tokenizers.marian import MarianTokenizer
    from keras_lm.tokenizers.raw_bytes import ByteTokenizer
    from keras_lm.tokenizers.sentence_piece import SentencePieceTokenizer
    from keras_lm.tokenizers.subwords import SubwordTokenizer
    from keras_lm.tokenizers.tokenizer import Tokenizer
    from keras_lm.tokenizers.training import learn_words, train_vocabulary
    from keras_lm.tokenizers.transformer_xl import TransformerXLTokenizer
    from keras_lm.tokenizers.wordpiece import WordPieceTokenizer
    from keras_lm.tokenizers.words import WordTokenizer

__all__ = [
    "BytePairTokenizer",
    "ByteTokenizer",
    "CharacterTokenizer",
    "EntityTokenizer",
    "GPTTokenizer",
    "MarianTokenizer",
    "SentencePieceTokenizer",
    "SubwordTokenizer",
    "Tokenizer",
    "TransformerXLTokenizer",
    "WordPieceTokenizer",
    "WordTokenizer",
    "learn_words",
    "train_vocabulary",
]

# In the order in which a folder's files are looked for, if it does not say whose they are.
TOKENIZER_MODULES |= {
    "BytePairTokenizer": "keras_lm.tokenizers.byte_pair",
    "CharacterTokenizer": "keras_lm.tokenizers.characters",
    "WordPieceTokenizer": "keras_lm.tokenizers.wordpiece",
    "GPTTokenizer": "keras_lm.tokenizers.gpt",
    "EntityTokenizer": "keras_lm.tokenizers.linking",
    "SentencePieceTokenizer": "keras_lm.tokenizers.sentence_piece",
    "MarianTokenizer": "keras_lm.tokenizers.marian",
    "TransformerXLTokenizer": "keras_lm.tokenizers.transformer_xl",
    "ByteTokenizer": "keras_lm.tokenizers.raw_bytes",
    "SubwordTokenizer": "keras_lm.tokenizers.subwords",
    "WordTokenizer": "keras_lm.tokenizers.words",
}
_MODULES = TOKENIZER_MODULES | {
    "Tokenizer": "keras_lm.tokenizers.tokenizer",
    "learn_words": "keras_lm.tokenizers.training",
    "train_vocabulary": "keras_lm.tokenizers.training",
}


def __getattr__(name):
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULES[name]), name)
    return value


def __dir__():
    return __all__
