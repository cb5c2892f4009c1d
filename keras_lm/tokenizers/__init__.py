"""Tokenizers: strings to ids and back, in the graph."""

from keras_lm.tokenizers.byte_pair import BytePairTokenizer, GPTTokenizer
from keras_lm.tokenizers.characters import CharacterTokenizer
from keras_lm.tokenizers.sentence_piece import MarianTokenizer, SentencePieceTokenizer
from keras_lm.tokenizers.subwords import SubwordTokenizer
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.tokenizers.training import train_vocabulary
from keras_lm.tokenizers.wordpiece import WordPieceTokenizer
from keras_lm.tokenizers.words import WordTokenizer, learn_words

__all__ = [
    "BytePairTokenizer",
    "CharacterTokenizer",
    "GPTTokenizer",
    "MarianTokenizer",
    "SentencePieceTokenizer",
    "SubwordTokenizer",
    "Tokenizer",
    "WordPieceTokenizer",
    "WordTokenizer",
    "learn_words",
    "train_vocabulary",
]
