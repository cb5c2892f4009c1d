"""Tokenizers: strings to ids and back, in the graph."""

from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.tokenizers.wordpiece import WordPieceTokenizer

__all__ = ["Tokenizer", "WordPieceTokenizer"]
