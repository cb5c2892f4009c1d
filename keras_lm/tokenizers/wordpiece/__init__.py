"""WordPiece, the tokenizer of BERT."""

from keras_lm.tokenizers.wordpiece.wordpiece import WordPieceTokenizer

__all__ = ["WordPieceTokenizer"]
