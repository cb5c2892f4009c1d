"""SentencePiece, with unigram and byte-pair models."""

from keras_lm.tokenizers.sentence_piece.marian import MarianTokenizer
from keras_lm.tokenizers.sentence_piece.sentence_piece import SentencePieceTokenizer

__all__ = ["MarianTokenizer", "SentencePieceTokenizer"]
