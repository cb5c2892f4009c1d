"""Words as the characters that spell them, as in ELMo."""

from keras_lm.tokenizers.characters.characters import CharacterTokenizer

__all__ = ["CharacterTokenizer"]
