"""tensor2tensor's subwords."""

from keras_lm.tokenizers.subwords.subwords import SubwordTokenizer

__all__ = ["SubwordTokenizer"]
