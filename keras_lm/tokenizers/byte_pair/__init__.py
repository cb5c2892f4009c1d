"""Byte-pair encoding: of bytes, as in GPT-2, and of characters, as in GPT."""

from keras_lm.tokenizers.byte_pair.byte_pair import BytePairTokenizer
from keras_lm.tokenizers.byte_pair.gpt import GPTTokenizer

__all__ = ["BytePairTokenizer", "GPTTokenizer"]
