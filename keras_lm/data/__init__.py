"""Corpora for language models: text files → documents → windows of tokens → batches."""

from keras_lm.data.documents import read_documents
from keras_lm.data.packed_windows import epoch_batches, token_windows, window_batches
from keras_lm.data.shards import read_token_shards, write_token_shards
from keras_lm.files import find_files

__all__ = [
    "epoch_batches",
    "find_files",
    "read_documents",
    "read_token_shards",
    "token_windows",
    "window_batches",
    "write_token_shards",
]
