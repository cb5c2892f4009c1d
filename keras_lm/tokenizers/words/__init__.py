"""Whole words, looked up in a list."""

from keras_lm.tokenizers.words.word_lists import learn_words
from keras_lm.tokenizers.words.words import WordTokenizer

__all__ = ["WordTokenizer", "learn_words"]
