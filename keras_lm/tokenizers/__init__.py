"""Tokenizers: strings to ids and back, in the graph."""

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
